// The loader of CPU kernel objects: real objects run, damaged ones give a Status.
#include "runtime/cpu/object_loader.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <string>

#include "runtime/compiler.h"
#include "runtime/cpu/host.h"
#include "runtime/library_file.h"

namespace saccade::cpu {
namespace {

/// An object that Clang makes of `source`, or an empty string where there is no Clang or no AVX2.
std::string object_of(const std::string& source) {
  const auto target = host_target("");
  if (!target.ok() || !clang_status().ok()) return {};
  auto binary = (*clang_compiler())->compile(source, *target);
  EXPECT_TRUE(binary.ok()) << binary.status().message();
  return binary.ok() ? binary->code : std::string();
}

/// Constants in .rodata, a local call, and calls of memcpy and memset.
const char* const kSource = R"(
extern "C" void* memcpy(void*, const void*, decltype(sizeof 0));
extern "C" void* memset(void*, int, decltype(sizeof 0));
static const double kTable[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
__attribute__((noinline)) static double lookup(int i) { return kTable[i & 15] * 1.5; }
extern "C" double total(const char* bytes, int n) {
  char copy[256];
  memset(copy, 0, 256);
  memcpy(copy, bytes, n);
  double sum = 0;
  for (int i = 0; i < 256; ++i) sum += lookup(copy[i]);
  return sum;
}
extern "C" int seven() { return 7; }
)";

class ObjectLoader : public ::testing::Test {
 protected:
  void SetUp() override {
    object_ = object_of(kSource);
    if (object_.empty()) GTEST_SKIP() << clang_status().message();
  }
  std::string object_;
};

TEST_F(ObjectLoader, RunsFunctionsOfACompiledObject) {
  const auto loaded = LoadedObject::load(object_);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const auto seven = reinterpret_cast<int (*)()>((*loaded)->find("seven"));
  const auto total = reinterpret_cast<double (*)(const char*, int)>((*loaded)->find("total"));
  ASSERT_NE(seven, nullptr);
  ASSERT_NE(total, nullptr);
  EXPECT_EQ(seven(), 7);
  const char bytes[4] = {1, 2, 5, 0};
  EXPECT_DOUBLE_EQ(total(bytes, 4), 1.5 * (1 + 4 + 9 + 253 * 3));
}

TEST_F(ObjectLoader, FindsOnlyGlobalFunctions) {
  const auto loaded = LoadedObject::load(object_);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ((*loaded)->find("eight"), nullptr);
  EXPECT_EQ((*loaded)->find("_ZL6kTable"), nullptr);
  EXPECT_EQ((*loaded)->find("memcpy"), nullptr);
}

TEST_F(ObjectLoader, NoPageIsWritableAndExecutable) {
  const auto loaded = LoadedObject::load(object_);
  ASSERT_TRUE(loaded.ok());
  const auto address = reinterpret_cast<std::uintptr_t>((*loaded)->find("seven"));
  std::ifstream maps("/proc/self/maps");
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    const std::uintptr_t begin = std::stoull(line, nullptr, 16);
    const std::uintptr_t end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    if (address < begin || address >= end) continue;
    found = true;
    EXPECT_NE(line.find(" r-xp "), std::string::npos) << line;
  }
  EXPECT_TRUE(found);
}

TEST_F(ObjectLoader, EveryTruncationIsAStatus) {
  for (std::size_t size = 0; size < object_.size(); ++size) {
    // A copy of exactly that size, so that AddressSanitizer sees a read behind it.
    const std::string cut(object_.data(), size);
    const auto loaded = LoadedObject::load(cut);
    EXPECT_FALSE(loaded.ok()) << size << " of " << object_.size() << " bytes";
  }
}

TEST_F(ObjectLoader, DamagedBytesNeverCrash) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Elf64_Ehdr header;
  std::memcpy(&header, object_.data(), sizeof(header));
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = object_;
    const int count = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < count; ++i) {
      // Mostly where the numbers are: the ELF header and the section table.
      const bool table = random() % 4 != 0;
      const std::size_t at =
          table ? header.e_shoff + random() % (damaged.size() - header.e_shoff) : random() % damaged.size();
      constexpr unsigned char kEdges[] = {0, 1, 0x7f, 0x80, 0xff};
      damaged[at] = static_cast<char>(random() % 2 ? random() : kEdges[random() % 5]);
    }
    if (!LoadedObject::load(damaged).ok()) ++refused;
  }
  EXPECT_GT(refused, 1000);
}

TEST_F(ObjectLoader, EveryPairOfDamagedSectionFieldsIsSurvived) {
  Elf64_Ehdr header;
  std::memcpy(&header, object_.data(), sizeof(header));
  // The 4-byte and 8-byte fields of Elf64_Shdr.
  struct Field {
    std::size_t offset, size;
  };
  constexpr Field kFields[] = {{4, 4}, {8, 8}, {24, 8}, {32, 8}, {40, 4}, {44, 4}, {48, 8}, {56, 8}};
  const std::uint64_t values[] = {0, 1, 2, 6, 8, 0x7fffffff, object_.size(), ~std::uint64_t{0}};
  int loads = 0;
  for (int section = 0; section < header.e_shnum; ++section) {
    const std::size_t at = header.e_shoff + static_cast<std::size_t>(section) * sizeof(Elf64_Shdr);
    for (const Field& first : kFields) {
      for (const Field& second : kFields) {
        if (second.offset <= first.offset) continue;
        for (const std::uint64_t a : values) {
          for (const std::uint64_t b : values) {
            std::string damaged = object_;
            std::memcpy(damaged.data() + at + first.offset, &a, first.size);
            std::memcpy(damaged.data() + at + second.offset, &b, second.size);
            const auto loaded = LoadedObject::load(damaged);
            loads += loaded.ok() ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GT(loads, 0);
}

TEST_F(ObjectLoader, ForeignBytesAreRefused) {
  EXPECT_FALSE(LoadedObject::load("").ok());
  EXPECT_FALSE(LoadedObject::load(std::string(4096, '\0')).ok());
  std::string executable = object_;
  executable[offsetof(Elf64_Ehdr, e_type)] = ET_EXEC;
  EXPECT_EQ(LoadedObject::load(executable).status().code(), StatusCode::invalid_argument);
  std::string other_machine = object_;
  other_machine[offsetof(Elf64_Ehdr, e_machine)] = static_cast<char>(EM_AARCH64);
  EXPECT_EQ(LoadedObject::load(other_machine).status().code(), StatusCode::invalid_argument);
}

TEST_F(ObjectLoader, OtherExternalSymbolsAreRefusedByName) {
  const std::string object =
      object_of("extern \"C\" int system(const char*); extern \"C\" int f() { return system(\"true\"); }");
  const Status status = LoadedObject::load(object).status();
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_NE(status.message().find("'system'"), std::string::npos) << status.message();
}

TEST_F(ObjectLoader, WritableDataIsRefused) {
  const std::string object = object_of("static int counter = 5; extern \"C\" int f() { return ++counter; }");
  EXPECT_EQ(LoadedObject::load(object).status().code(), StatusCode::unsupported);
}

TEST_F(ObjectLoader, TheCompilersIdentityIsOfItsLibrariesBuilds) {
  const std::string identity = (*clang_compiler())->identity();
  for (const std::string name : {"libclang-cpp.so.19.1", "libLLVM.so.19.1"}) {
    const std::string path = find_on_loader_path(name);
    ASSERT_NE(path, "");
    EXPECT_NE(build_id_of(path), "");
    EXPECT_NE(identity.find(identity_of_file(path)), std::string::npos) << identity;
  }
}

TEST_F(ObjectLoader, AnErrorOfTheCompilerCarriesItsLog) {
  const auto target = host_target("");
  ASSERT_TRUE(target.ok());
  const auto binary = (*clang_compiler())->compile("extern \"C\" int f() { return unknown_name; }", *target);
  ASSERT_FALSE(binary.ok());
  EXPECT_EQ(binary.status().code(), StatusCode::compile_failed);
  EXPECT_NE(binary.status().message().find("unknown_name"), std::string::npos);
}

TEST_F(ObjectLoader, TheCompilerReadsNoFiles) {
  const auto target = host_target("");
  ASSERT_TRUE(target.ok());
  const auto binary = (*clang_compiler())->compile("#include \"/usr/include/stdio.h\"\n", *target);
  EXPECT_EQ(binary.status().code(), StatusCode::compile_failed);
}

}  // namespace
}  // namespace saccade::cpu
