// What tensor maps are asked of the driver, by a double of it that refuses what the driver API refuses. No GPU.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/cuda/tensor_map.h"

namespace saccade::cuda {
namespace {

struct Request {
  const void* address;
  std::vector<unsigned long long> extents, strides;
  std::vector<unsigned> box;
  int swizzle;
};

std::vector<Request> requests;
unsigned long long maps_made = 0;
constexpr Result kInvalidValue = 1;

/// CUDA driver API, cuTensorMapEncodeTiled.
Result encode_tiled(void* map, int, unsigned rank, void* address, const unsigned long long* extents,
                    const unsigned long long* strides, const unsigned* box, const unsigned*, int, int swizzle, int,
                    int) {
  requests.push_back({address, {extents, extents + rank}, {strides, strides + rank - 1}, {box, box + rank}, swizzle});
  static_cast<TensorMap*>(map)->words[0] = ++maps_made;
  if (address == nullptr || reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return kInvalidValue;
  for (unsigned i = 0; i < rank; ++i) {
    if (extents[i] == 0 || extents[i] > 1ull << 32 || box[i] == 0 || box[i] > 256) return kInvalidValue;
    if (i > 0 && (strides[i - 1] % 16 != 0 || strides[i - 1] == 0 || strides[i - 1] >= 1ull << 40))
      return kInvalidValue;
  }
  const unsigned span = swizzle == kTensorMapSwizzle128 ? 128 : 64;
  return 2 * box[0] <= span ? kSuccess : kInvalidValue;
}

Driver fake_driver() {
  Driver driver{};
  driver.cuTensorMapEncodeTiled = encode_tiled;
  driver.cuGetErrorName = [](Result, const char** text) { return *text = "CUDA_ERROR_INVALID_VALUE", kSuccess; };
  driver.cuGetErrorString = [](Result, const char** text) { return *text = "invalid argument", kSuccess; };
  return driver;
}

/// Batch 2, 3 heads, 50 rows of 64 elements, at addresses that no other test has: maps of earlier runs are remembered.
KernelParams params_of_rows() {
  alignas(16) static char memory[64 * 64];
  static char* next = memory;
  KernelParams params{};
  params.q = next;
  params.k = next + 16;
  params.v = next + 32;
  params.o = next + 48;
  next += 64;
  params.q_stride = params.k_stride = params.v_stride = params.o_stride = {3 * 50 * 64, 50 * 64, 64};
  return params;
}

TensorMapSpecs specs_of_rows() {
  const TensorMapSpec q{2, 3, 50, 64, 64, 64}, k{2, 3, 50, 64, 128, 64}, v{2, 3, 50, 64, 128, 32};
  return {q, k, v, TensorMapSpec{2, 3, 50, 64, 16, 64}};
}

Status encode_anew(const TensorMapSpecs& specs, const KernelParams& params, TensorMaps& maps) {
  requests.clear();
  return encode(fake_driver(), specs, params, maps);
}

TEST(TensorMap, SaysExtentsStridesBoxesAndSwizzlesInTheDriversUnits) {
  const KernelParams params = params_of_rows();
  TensorMaps maps;
  const Status status = encode_anew(specs_of_rows(), params, maps);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[0].address, params.q);
  EXPECT_EQ(requests[1].address, params.k);
  EXPECT_EQ(requests[2].address, params.v);
  EXPECT_EQ(requests[3].address, params.o);
  for (const Request& request : requests) {
    EXPECT_EQ(request.extents, (std::vector<unsigned long long>{64, 50, 3, 2}));
    EXPECT_EQ(request.strides, (std::vector<unsigned long long>{128, 6400, 19200}));  // bytes
  }
  EXPECT_EQ(requests[0].box, (std::vector<unsigned>{64, 64, 1, 1}));
  EXPECT_EQ(requests[1].box, (std::vector<unsigned>{64, 128, 1, 1}));
  EXPECT_EQ(requests[2].box, (std::vector<unsigned>{32, 128, 1, 1}));
  EXPECT_EQ(requests[3].box, (std::vector<unsigned>{64, 16, 1, 1}));
  EXPECT_EQ(requests[1].swizzle, kTensorMapSwizzle128);
  EXPECT_EQ(requests[2].swizzle, kTensorMapSwizzle64);
}

TEST(TensorMap, OfOIsMadeOnlyWhereItIsAskedFor) {
  TensorMapSpecs specs = specs_of_rows();
  specs.o.reset();
  TensorMaps maps;
  ASSERT_TRUE(encode_anew(specs, params_of_rows(), maps).ok());
  EXPECT_EQ(requests.size(), 3u);
}

/// The kernel makes all rows of a tile from the one there is (templates/cuda/tile/warpgroup_producer.h).
TEST(TensorMap, RowsThatShareMemoryAreOneElement) {
  KernelParams params = params_of_rows();
  params.k_stride.row = 0;
  TensorMaps maps;
  const Status status = encode_anew(specs_of_rows(), params, maps);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(requests.at(1).extents, (std::vector<unsigned long long>{64, 1, 3, 2}));
  EXPECT_EQ(requests.at(2).extents, (std::vector<unsigned long long>{64, 50, 3, 2}));
}

TEST(TensorMap, HeadsAndBatchesThatShareMemoryAreOneElement) {
  KernelParams params = params_of_rows();
  params.k_stride.head = params.v_stride.batch = 0;
  TensorMaps maps;
  const Status status = encode_anew(specs_of_rows(), params, maps);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(requests.at(1).extents, (std::vector<unsigned long long>{64, 50, 1, 2}));
  EXPECT_EQ(requests.at(2).extents, (std::vector<unsigned long long>{64, 50, 3, 1}));
}

TEST(TensorMap, WithoutKeysPointersAndStridesOfKAndVMayBeAnything) {
  TensorMapSpecs specs = specs_of_rows();
  specs.k.rows = specs.v.rows = 0;
  KernelParams null = params_of_rows(), odd = params_of_rows();
  null.k = null.v = nullptr;
  odd.k = static_cast<const char*>(odd.k) + 2;
  odd.v_stride = {1, 7, -5};
  for (const KernelParams& params : {null, odd}) {
    TensorMaps maps;
    const Status status = encode_anew(specs, params, maps);
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(TensorMap, RefusalOfTheDriverNamesTheTensorAndItsSizes) {
  KernelParams params = params_of_rows();
  params.v_stride.row = 66;
  TensorMaps maps;
  const Status status = encode_anew(specs_of_rows(), params, maps);
  EXPECT_EQ(status.code(), StatusCode::device_error);
  EXPECT_NE(status.message().find("tensor map of v"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("132"), std::string::npos) << status.message();
}

TEST(TensorMap, OfTheSameRunIsNotMadeAgain) {
  const KernelParams params = params_of_rows(), other = params_of_rows();
  const auto words = [](const TensorMaps& maps) {
    return std::vector{maps.q.words[0], maps.k.words[0], maps.v.words[0], maps.o.words[0]};
  };
  TensorMaps first, between, again;
  ASSERT_TRUE(encode_anew(specs_of_rows(), params, first).ok());
  ASSERT_TRUE(encode_anew(specs_of_rows(), other, between).ok());
  EXPECT_EQ(requests.size(), 4u);
  ASSERT_TRUE(encode_anew(specs_of_rows(), params, again).ok());
  EXPECT_TRUE(requests.empty());
  EXPECT_EQ(words(again), words(first));
}

TEST(TensorMap, AnotherPointerStrideOrSizeIsAnotherMap) {
  const KernelParams params = params_of_rows();
  TensorMaps maps;
  ASSERT_TRUE(encode_anew(specs_of_rows(), params, maps).ok());
  KernelParams moved = params, strided = params;
  moved.v = params.k;
  strided.k_stride.row = 128;
  TensorMapSpecs longer = specs_of_rows();
  longer.k.rows = 51;
  ASSERT_TRUE(encode_anew(specs_of_rows(), moved, maps).ok());
  EXPECT_EQ(requests.at(2).address, moved.v);
  ASSERT_TRUE(encode_anew(specs_of_rows(), strided, maps).ok());
  EXPECT_EQ(requests.at(1).strides[0], 256u);
  ASSERT_TRUE(encode_anew(longer, params, maps).ok());
  EXPECT_EQ(requests.at(1).extents[1], 51u);
}

TEST(TensorMap, OfARefusedRunIsNotRemembered) {
  KernelParams params = params_of_rows();
  params.k_stride.row = 66;
  TensorMaps maps;
  EXPECT_FALSE(encode_anew(specs_of_rows(), params, maps).ok());
  EXPECT_FALSE(encode_anew(specs_of_rows(), params, maps).ok());
  EXPECT_FALSE(requests.empty());
}

}  // namespace
}  // namespace saccade::cuda
