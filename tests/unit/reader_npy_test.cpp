#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "cli/npy.h"
#include "cli/safetensors.h"

namespace saccade::cli {
namespace {

std::string npy(std::string_view header, std::size_t data_bytes, int major = 1) {
  std::string file("\x93NUMPY", 6);
  file += {static_cast<char>(major), '\0'};
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) file += static_cast<char>(header.size() >> (8 * i));
  file += header;
  for (std::size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
  return file;
}

Status status_of(const std::string& file) { return read_npy(*open_memory("x.npy", bytes_of(file))).status(); }

void expect_refused(const std::string& file, std::string_view words) {
  const Status status = status_of(file);
  EXPECT_FALSE(status.ok()) << words;
  EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  EXPECT_EQ(status.message().rfind("x.npy: ", 0), 0U) << status.message();
}

TEST(Npy, EveryKnownTypeIsRead) {
  for (const auto& [descriptor, type] : {std::pair{"<f4", DataType::f32},
                                         {"<f2", DataType::f16},
                                         {"<f8", DataType::f64},
                                         {"|i1", DataType::i8},
                                         {"<i2", DataType::i16},
                                         {"=i4", DataType::i32},
                                         {"<i8", DataType::i64},
                                         {"|u1", DataType::u8},
                                         {"<u2", DataType::u16},
                                         {"<u4", DataType::u32},
                                         {"|b1", DataType::boolean}}) {
    const std::string header =
        std::string("{'descr': '") + descriptor + "', 'fortran_order': False, 'shape': (2, 3), }\n";
    const std::string file = npy(header, 6 * size_of(type));
    const auto tensor = read_npy(*open_memory("x.npy", bytes_of(file)));
    ASSERT_TRUE(tensor.ok()) << tensor.status().message();
    EXPECT_EQ(tensor->dtype, type);
    EXPECT_EQ(tensor->shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(std::memcmp(tensor->data.data(), file.data() + 10 + header.size(), 6 * size_of(type)), 0);
  }
}

TEST(Npy, Formats2And3HaveALongerLengthField) {
  for (const int major : {2, 3})
    EXPECT_TRUE(status_of(npy("{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(4,)}", 16, major)).ok());
  expect_refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}", 16, 4), "format 4");
  expect_refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}", 16, 0), "format 0");
}

TEST(Npy, ScalarsAndEmptyArraysAreRead) {
  EXPECT_TRUE(status_of(npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4)).ok());
  EXPECT_TRUE(status_of(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 0, 9223372036854775807)}", 0)).ok());
}

TEST(Npy, FortranOrderBecomesStrides) {
  const std::string file = npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}", 6);
  auto tensor = read_npy(*open_memory("x.npy", bytes_of(file)));
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(tensor->stride, (std::vector<std::int64_t>{1, 2}));
  const auto rows = row_major(std::move(tensor).value());
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->stride, (std::vector<std::int64_t>{3, 1}));
  // Column-major 0..5 in a 2 x 3 matrix.
  const std::vector<unsigned char> expected = {0, 2, 4, 1, 3, 5};
  EXPECT_EQ(std::memcmp(rows->data.data(), expected.data(), 6), 0);
}

TEST(Npy, WhatCannotBeComputedWithIsRefusedWithAReason) {
  expect_refused(npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", 4), "big-endian");
  expect_refused(npy("{'descr': '<V2', 'fortran_order': False, 'shape': (1,)}", 2), "no bf16");
  expect_refused(npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", 8), "'<c8' is not one of");
  expect_refused(npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8), "is not one of");
  expect_refused(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4), "structured");
}

TEST(Npy, EveryPrefixOfAFileIsRefused) {
  const std::string file = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24);
  for (std::size_t length = 0; length < file.size(); ++length) EXPECT_FALSE(status_of(file.substr(0, length)).ok());
  EXPECT_TRUE(status_of(file).ok());
  expect_refused(file + "x", "trailing bytes");
}

TEST(Npy, HostileShapesAreRefusedBeforeAnythingIsAllocated) {
  const std::string start = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
  expect_refused(npy(start + "(4294967296, 4294967296, 4)}", 16), "more than 2^62 bytes");
  expect_refused(npy(start + "(2305843009213693952,)}", 16), "more than 2^62 bytes");
  expect_refused(npy(start + "(1152921504606846976,)}", 16), "truncated");
  expect_refused(npy(start + "(99999999999999999999,)}", 16), "a size from 0");
  expect_refused(npy(start + "(-1,)}", 16), "a size from 0");
  expect_refused(npy(start + "(1e9,)}", 16), "',' or ')'");
  std::string sizes;
  for (int i = 0; i < 40; ++i) sizes += "1, ";
  expect_refused(npy(start + "(" + sizes + ")}", 4), "more than 32 sizes");
}

TEST(Npy, MalformedHeadersPointAtThePlace) {
  expect_refused(npy("", 0), "'{' is expected at byte 0");
  expect_refused(npy("{'descr': '<f4'", 0), "',' or '}' is expected at byte 15");
  expect_refused(npy("{'descr': '<f4'}", 0), "lacks one of");
  expect_refused(npy("{'descr': '<f4', 'descr': '<f4'}", 0), "twice");
  expect_refused(npy("{'evil': 1}", 0), "unknown key 'evil'");
  expect_refused(npy("{'descr': '<f4", 0), "a closing quote");
  expect_refused(npy("{'descr': '<\\x41'}", 0), "without escapes");
  expect_refused(npy("{'descr': '<f4', 'fortran_order': 0}", 0), "True or False");
  expect_refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': 4}", 4), "'('");
  expect_refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4)}", 16), "a tuple of one size");
  expect_refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4 4)}", 64), "',' or ')'");
  expect_refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,)} import os", 16), "the end of the header");
  expect_refused("PK\x03\x04 this is a zip file", "wrong magic");
  std::string huge = npy("", 0, 2);
  huge[11] = '\x7f';
  expect_refused(huge, "at most 65536");
}

TEST(Npy, WrittenFilesReadBackAndAlignTheirData) {
  const std::string path = (std::filesystem::path(testing::TempDir()) / "saccade_written.npy").string();
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {5}, {2, 3}, {1, 0, 4}}) {
    auto tensor = make_tensor(DataType::f32, shape);
    ASSERT_TRUE(tensor.ok());
    for (std::int64_t i = 0; i < tensor->elements(); ++i)
      store_from_double(DataType::f32, tensor->data.data(), i, static_cast<double>(i) + 0.5);
    ASSERT_TRUE(write_npy(path, *tensor).ok());
    const auto source = open_file(path);
    ASSERT_TRUE(source.ok());
    const auto header = read_npy_header(**source);
    ASSERT_TRUE(header.ok()) << header.status().message();
    EXPECT_EQ(header->data_offset % 64, 0U);
    const auto read = read_tensor(path, "");
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read->shape, shape);
    EXPECT_EQ(std::memcmp(read->data.data(), tensor->data.data(), tensor->data.size()), 0);
  }
  std::filesystem::remove(path);
}

TEST(Npy, Bf16IsNotWritten) {
  const auto tensor = make_tensor(DataType::bf16, {4});
  ASSERT_TRUE(tensor.ok());
  const Status status = write_npy("never_written.npy", *tensor);
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_NE(status.message().find(".safetensors"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists("never_written.npy"));
}

TEST(ReadTensor, FilesThatAreNotRegularOrHaveNoKnownNameAreRefused) {
  EXPECT_EQ(read_tensor("/nonexistent/x.npy", "").status().code(), StatusCode::not_found);
  EXPECT_NE(read_tensor(testing::TempDir(), "").status().message().find("not a regular file"), std::string::npos);
  EXPECT_NE(read_tensor("/proc/self/exe", "q").status().message().find("must end in"), std::string::npos);
}

}  // namespace
}  // namespace saccade::cli
