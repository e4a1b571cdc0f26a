"""What mma.sync can reach on this GPU: alone, and with the ldmatrix traffic of 16 or 32 rows of S per warp."""
import torch

from launch import Kernel, KernelParams
from nvrtc import compile_source

SOURCE = """
#include "saccade_templates/common/params.h"
#include "saccade_templates/cuda/prims/ldmatrix.h"
#include "saccade_templates/cuda/prims/mma.h"
#include "saccade_templates/cuda/prims/shared_memory.h"
using namespace saccade::cuda;
extern "C" __global__ void __launch_bounds__(128, 2) saccade_forward(const __grid_constant__ saccade::KernelParams params) {
  extern __shared__ __align__(128) unsigned char memory[];
  const uint32 base = shared_address_of(memory) + threadIdx.x %% 32 * 16;
  float c[%(m)d][8][4] = {};
  uint32 a[%(m)d][4], b[4] = {1, 2, 3, 4};
  for (int m = 0; m < %(m)d; ++m) for (int i = 0; i < 4; ++i) a[m][i] = threadIdx.x + i + m;
#pragma unroll 1
  for (int step = 0; step < params.seqlen_q; ++step) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        if (%(load)d) ldmatrix_x4(b, base + (k * 4 + n) * 512);
#pragma unroll
        for (int m = 0; m < %(m)d; ++m) {
          mma_accumulate<bf16>(c[m][2 * n], a[m], b[0], b[1]);
          mma_accumulate<bf16>(c[m][2 * n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }
  float sum = 0;
  for (int m = 0; m < %(m)d; ++m) for (int n = 0; n < 8; ++n) for (int i = 0; i < 4; ++i) sum += c[m][n][i];
  if (sum == 12345.f) params.lse[0] = sum;
}
"""


def main():
    sink = torch.zeros(1, device="cuda")
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    for m in (1, 2):
        for load in (0, 1):
            for blocks in (1, 2, 4):
                kernel = Kernel(compile_source(SOURCE % dict(m=m, load=load)).cubin, 128, 16384)
                p = KernelParams()
                p.lse, p.seqlen_q = sink.data_ptr(), 2000
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                kernel.launch(sms * blocks, p)
                start.record()
                kernel.launch(sms * blocks, p)
                end.record()
                torch.cuda.synchronize()
                flops = 2 * 16 * 8 * 16 * (4 * 4 * 2 * m) * 2000 * 4 * sms * blocks
                print(f"rows/warp {16 * m}, ldmatrix {load}, {4 * blocks} warps/SM: {flops / start.elapsed_time(end) / 1e9:.0f} TFLOP/s")


if __name__ == "__main__":
    main()
