// The host CPU as a Device: kernels are objects in memory, launches are OpenMP loops over their work items.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cpu/host.h"
#include "runtime/cpu/object_loader.h"
#include "runtime/cpu/thread_check.h"
#include "runtime/device.h"

namespace saccade {
namespace {

constexpr std::size_t kAllocationAlignment = 64;

/// What templates/cpu instantiates: computes the work items of [begin, end).
using EntryPoint = void (*)(const KernelParams* params, long long work_begin, long long work_end);

class CpuKernel final : public Kernel {
 public:
  CpuKernel(std::shared_ptr<const cpu::LoadedObject> object, std::vector<std::pair<std::string, EntryPoint>> entries,
            int threads)
      : object_(std::move(object)), entries_(std::move(entries)), threads_(threads) {}

  Status launch(const Launch& launch, const KernelParams& params, Stream /*stream*/) const override {
    if (launch.work_items <= 0) return {};
    for (const auto& [symbol, entry] : entries_) {
      if (symbol == launch.symbol) {
        run(entry, launch.work_items, std::max<std::int64_t>(launch.grain, 1), params);
        return {};
      }
    }
    return Status::internal(fmt::format("kernel '{}' was not loaded with this binary", launch.symbol));
  }

 private:
  /// A team costs several microseconds to wake: work of one grain stays on the calling thread, and no more threads are
  /// asked for than there are grains. Dynamic scheduling, since masks make work items unequal.
  void run(EntryPoint entry, std::int64_t work_items, std::int64_t grain, const KernelParams& params) const {
    const std::int64_t chunks = (work_items + grain - 1) / grain;
    const int threads = static_cast<int>(std::min<std::int64_t>(threads_, chunks));
    if (threads <= 1) {
      entry(&params, 0, work_items);
      return;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      entry(&params, chunk * grain, std::min(work_items, (chunk + 1) * grain));
    }
  }

  std::shared_ptr<const cpu::LoadedObject> object_;
  std::vector<std::pair<std::string, EntryPoint>> entries_;
  int threads_;
};

class CpuTimer final : public Device::Timer {
 public:
  Stream stream() const override { return nullptr; }
  Status begin() override {
    start_ = std::chrono::steady_clock::now();
    return {};
  }
  Expected<double> end_us() override {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(Target target, int threads) : threads_(threads) {
    target_ = std::move(target);
    target_.cores = threads;
  }

  Expected<std::shared_ptr<const Kernel>> load(const std::string& code,
                                               const std::vector<Launch>& launches) const override {
    SACCADE_ASSIGN(std::shared_ptr<const cpu::LoadedObject> object, cpu::LoadedObject::load(code));
    std::vector<std::pair<std::string, EntryPoint>> entries;
    for (const Launch& launch : launches) {
      void* address = object->find(launch.symbol);
      if (address == nullptr) {
        return Status::invalid_argument(fmt::format("the CPU object does not define '{}'", launch.symbol));
      }
      entries.emplace_back(launch.symbol, reinterpret_cast<EntryPoint>(address));
    }
    return std::shared_ptr<const Kernel>(std::make_shared<CpuKernel>(std::move(object), std::move(entries), threads_));
  }

  Expected<void*> allocate(std::size_t bytes) const override {
    void* memory =
        ::operator new(std::max<std::size_t>(bytes, 1), std::align_val_t{kAllocationAlignment}, std::nothrow);
    if (memory == nullptr) return Status(StatusCode::out_of_memory, fmt::format("cannot allocate {} bytes", bytes));
    return memory;
  }
  void release(void* memory) const override { ::operator delete(memory, std::align_val_t{kAllocationAlignment}); }

  Status copy_to_device(void* destination, const void* source, std::size_t bytes) const override {
    if (bytes != 0) std::memmove(destination, source, bytes);
    return {};
  }
  Status copy_to_host(void* destination, const void* source, std::size_t bytes) const override {
    return copy_to_device(destination, source, bytes);
  }
  Status fill(void* destination, unsigned char value, std::size_t bytes) const override {
    if (bytes != 0) std::memset(destination, value, bytes);
    return {};
  }
  Status synchronize() const override { return {}; }
  Expected<bool> is_capturing(Stream /*stream*/) const override { return false; }
  Expected<std::unique_ptr<Timer>> timer() const override {
    return std::unique_ptr<Timer>(std::make_unique<CpuTimer>());
  }

 private:
  int threads_;
};

}  // namespace

Expected<std::shared_ptr<const Device>> cpu_device(int threads, const std::string& arch) {
  SACCADE_ASSIGN(Target target, cpu::host_target(arch));
  const int usable = threads != 0 ? threads : target.cores;
  SACCADE_TRY(cpu::check_threads(usable));
  return std::shared_ptr<const Device>(std::make_shared<CpuDevice>(std::move(target), usable));
}

}  // namespace saccade
