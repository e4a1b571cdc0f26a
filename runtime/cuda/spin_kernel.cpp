#include "runtime/cuda/spin_kernel.h"

namespace saccade::cuda {
namespace {

constexpr char kSpinPtx[] = R"ptx(
.version 7.0
.target sm_80
.address_size 64
.visible .entry saccade_spin(.param .u64 nanoseconds)
{
  .reg .u64 %start, %now, %limit;
  .reg .pred %again;
  ld.param.u64 %limit, [nanoseconds];
  mov.u64 %start, %globaltimer;
wait:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %start;
  setp.lt.u64 %again, %now, %limit;
  @%again bra wait;
  ret;
}
)ptx";

}  // namespace

SpinKernel::~SpinKernel() {
  if (module_ == nullptr) return;
  const ContextScope scope(*driver_, context_);
  if (scope.result() == kSuccess) driver_->cuModuleUnload(module_);
}

Status SpinKernel::load(const Driver& driver) {
  const RelaxedCaptureScope relaxed(driver);
  SACCADE_TRY(driver.check(driver.cuCtxGetCurrent(&context_), "reading the current context"));
  SACCADE_TRY(
      driver.check(driver.cuModuleLoadDataEx(&module_, kSpinPtx, 0, nullptr, nullptr), "loading the timer's kernel"));
  driver_ = &driver;
  return driver.check(driver.cuModuleGetFunction(&function_, module_, "saccade_spin"), "finding the timer's kernel");
}

Status SpinKernel::enqueue(const Driver& driver, unsigned long long nanoseconds, StreamHandle stream) const {
  const LaunchConfig config{1, 1, 1, 1, 1, 1, 0, stream, nullptr, 0};
  void* arguments[] = {&nanoseconds};
  return driver.check(driver.cuLaunchKernelEx(&config, function_, arguments, nullptr), "launching the timer's kernel");
}

}  // namespace saccade::cuda
