#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "cli/safetensors.h"

namespace saccade::cli {
namespace {

std::string safetensors(std::string_view header, std::size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i));
  file += header;
  for (std::size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
  return file;
}

Status status_of(const std::string& file) {
  return read_safetensors_header(*open_memory("x.safetensors", bytes_of(file))).status();
}

void expect_refused(const std::string& file, std::string_view words) {
  const Status status = status_of(file);
  EXPECT_FALSE(status.ok()) << words;
  EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
}

TEST(Safetensors, TensorsAreReadByName) {
  const std::string file = safetensors(
      R"({"__metadata__":{"made_by":"test"},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]},)"
      R"("a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},"none":{"dtype":"F32","shape":[0,4],"data_offsets":[8,8]}}  )",
      11);
  const auto source = open_memory("x.safetensors", bytes_of(file));
  const auto header = read_safetensors_header(*source);
  ASSERT_TRUE(header.ok()) << header.status().message();
  ASSERT_EQ(header->entries.size(), 3U);
  EXPECT_EQ(header->entries[0].name, "a");
  EXPECT_EQ(header->metadata, (std::vector<std::pair<std::string, std::string>>{{"made_by", "test"}}));
  const auto b = read_safetensors_tensor(*source, *header, "b");
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(std::memcmp(b->data.data(), "\x08\x09\x0a", 3), 0);
  EXPECT_EQ(read_safetensors_tensor(*source, *header, "a")->dtype, DataType::bf16);
  EXPECT_EQ(read_safetensors_tensor(*source, *header, "none")->elements(), 0);
  const Status missing = read_safetensors_tensor(*source, *header, "q").status();
  EXPECT_EQ(missing.code(), StatusCode::not_found);
  EXPECT_NE(missing.message().find("the file has a, none, b"), std::string::npos) << missing.message();
}

TEST(Safetensors, EveryPrefixOfAFileIsRefused) {
  const std::string file = safetensors(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", 16);
  for (std::size_t length = 0; length < file.size(); ++length) EXPECT_FALSE(status_of(file.substr(0, length)).ok());
  EXPECT_TRUE(status_of(file).ok());
  expect_refused(file + "x", "1 bytes of data belong to no tensor");
}

TEST(Safetensors, HeaderLengthsBeyondTheFileAreRefused) {
  for (const char top : {'\x01', '\x7f', '\xff'}) {
    std::string file = safetensors("{}", 0);
    file[7] = top;
    expect_refused(file, "a header of");
  }
  expect_refused(std::string(8, '\xff'), "a header of 18446744073709551615 bytes");
  EXPECT_TRUE(status_of(safetensors("{}", 0)).ok());
}

TEST(Safetensors, OffsetsThatOverlapLeaveGapsOrRunBackwardsAreRefused) {
  const auto two = [](std::string_view first, std::string_view second) {
    return safetensors(std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)") + std::string(first) +
                           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string(second) + "}}",
                       8);
  };
  EXPECT_TRUE(status_of(two("[0,4]", "[4,8]")).ok());
  EXPECT_TRUE(status_of(two("[4,8]", "[0,4]")).ok());
  expect_refused(two("[0,4]", "[3,7]"), "overlap");
  expect_refused(two("[0,4]", "[0,4]"), "overlap");
  expect_refused(two("[0,4]", "[5,9]"), "overlap, gap");
  expect_refused(two("[4,0]", "[4,8]"), "reversed");
  expect_refused(two("[0,4]", "[4,4611686018427387904]"), "truncated");
  expect_refused(two("[0,4]", "[4,18446744073709551615]"), "exceeds 2^62");
  expect_refused(two("[0,4]", "[4]"), "two numbers");
  expect_refused(two("[0,4]", "[4,8,9]"), "a number");
  expect_refused(two("[0,4]", "[-4,8]"), "a negative number");
  expect_refused(two("[0,4]", "[4.0,8]"), "a fraction");
}

TEST(Safetensors, ShapesMustFitTheirBytes) {
  const auto one = [](std::string_view dtype, std::string_view shape, std::size_t bytes) {
    return safetensors(std::string(R"({"a":{"dtype":")") + std::string(dtype) + R"(","shape":)" + std::string(shape) +
                           R"(,"data_offsets":[0,)" + std::to_string(bytes) + "]}}",
                       bytes);
  };
  EXPECT_TRUE(status_of(one("F8_E4M3", "[3]", 3)).ok());
  EXPECT_TRUE(status_of(one("F32", "[]", 4)).ok());
  expect_refused(one("F32", "[3]", 4), "does not fit 4 bytes");
  expect_refused(one("F32", "[4294967296,4294967296]", 4), "more than 2^62 bytes");
  expect_refused(one("F32", "[4611686018427387905]", 4), "exceeds 2^62");
  expect_refused(one("F31", "[1]", 4), "unknown dtype 'F31'");
  std::string sizes = "[1";
  for (int i = 0; i < 40; ++i) sizes += ",1";
  expect_refused(one("F32", sizes + "]", 4), "more than 32 sizes");
}

TEST(Safetensors, UnsignedSixtyFourBitTensorsMayStandInAFileButAreNotRead) {
  const std::string file = safetensors(R"({"a":{"dtype":"U64","shape":[1],"data_offsets":[0,8]}})", 8);
  const auto source = open_memory("x.safetensors", bytes_of(file));
  const auto header = read_safetensors_header(*source);
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(read_safetensors_tensor(*source, *header, "a").status().code(), StatusCode::unsupported);
}

TEST(Safetensors, MalformedHeadersAreRefused) {
  expect_refused(safetensors("", 0), "does not begin with '{'");
  expect_refused(safetensors(" {}", 0), "does not begin with '{'");
  expect_refused(safetensors("{", 0), "malformed JSON");
  expect_refused(safetensors("{} {}", 0), "malformed JSON");
  expect_refused(safetensors("{\"a\xff\":1}", 0), "malformed JSON");
  expect_refused(safetensors(R"({"a":1})", 0), "a number");
  expect_refused(safetensors(R"({"a":{}})", 0), "lacks one of");
  expect_refused(safetensors(R"({"a":{"dtype":"F32","dtype":"F32"}})", 0), "twice");
  expect_refused(safetensors(R"({"a":{"strides":[1]}})", 0), "unknown key 'strides'");
  expect_refused(safetensors(R"({"__metadata__":{"n":1}})", 0), "a number");
  expect_refused(safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                             1),
                 "appears twice");
}

TEST(Safetensors, DeepNestingIsRefusedAtOnce) {
  expect_refused(safetensors("{\"a\":" + std::string(1 << 20, '['), 0), "an array where the format has none");
  std::string objects = "{";
  for (int i = 0; i < 100000; ++i) objects += "\"a\":{";
  expect_refused(safetensors(objects, 0), "unknown key");
}

TEST(Safetensors, WrittenFilesReadBack) {
  const std::string path = (std::filesystem::path(testing::TempDir()) / "saccade_written.safetensors").string();
  auto q = make_tensor(DataType::bf16, {2, 3});
  auto lse = make_tensor(DataType::f32, {5});
  ASSERT_TRUE(q.ok() && lse.ok());
  for (std::int64_t i = 0; i < 6; ++i) store_from_double(DataType::bf16, q->data.data(), i, static_cast<double>(i));
  for (std::int64_t i = 0; i < 5; ++i) store_from_double(DataType::f32, lse->data.data(), i, -static_cast<double>(i));
  ASSERT_TRUE(write_safetensors(path, {{"q", &*q}, {"lse", &*lse}}).ok());
  for (const auto& [name, tensor] : {std::pair{"q", &*q}, {"lse", &*lse}}) {
    const auto read = read_tensor(path, name);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->dtype, tensor->dtype);
    EXPECT_EQ(read->shape, tensor->shape);
    EXPECT_EQ(std::memcmp(read->data.data(), tensor->data.data(), tensor->data.size()), 0);
  }
  std::filesystem::remove(path);
}

TEST(Safetensors, AFailedWriteLeavesNothingBehind) {
  const auto tensor = make_tensor(DataType::f32, {1});
  ASSERT_TRUE(tensor.ok());
  const Status status = write_safetensors("/nonexistent/folder/o.safetensors", {{"o", &*tensor}});
  EXPECT_EQ(status.code(), StatusCode::io_error);
  EXPECT_NE(status.message().find("/nonexistent/folder/o.safetensors"), std::string::npos);
}

}  // namespace
}  // namespace saccade::cli
