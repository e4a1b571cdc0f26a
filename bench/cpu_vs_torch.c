/* What this machine can do: the read rate of memory and the rate of fused multiply-adds, with `threads` threads. Built and
 * called by cpu_vs_torch.py; the figures put attention's times into proportion. */
#include <stddef.h>
#include <time.h>

#define WIDTH 16
typedef float Vector __attribute__((vector_size(WIDTH * sizeof(float))));

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Bytes per second of the best of `rounds` passes over `bytes` bytes (a multiple of 4 KiB per thread). */
double read_rate(const char* data, size_t bytes, int threads, int rounds) {
  double best = 1e30;
  for (int round = 0; round < rounds; ++round) {
    const double start = seconds();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int i = 0; i < threads; ++i) {
      const size_t share = bytes / (size_t)threads;
      const Vector* v = (const Vector*)(data + (size_t)i * share);
      Vector a = {0}, b = {0}, c = {0}, d = {0};
      for (size_t j = 0; j + 4 <= share / sizeof(Vector); j += 4) {
        a += v[j], b += v[j + 1], c += v[j + 2], d += v[j + 3];
      }
      a += b + c + d;
      __asm__ volatile("" ::"m"(a));
    }
    const double time = seconds() - start;
    if (time < best) best = time;
  }
  return (double)bytes / best;
}

/* Float operations per second (a fused multiply-add is two). */
double multiply_add_rate(int threads, int rounds) {
  const long steps = 2000000;
  double best = 1e30;
  for (int round = 0; round < rounds; ++round) {
    const double start = seconds();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int i = 0; i < threads; ++i) {
      Vector x = {1.0f}, y = {0.5f}, acc[12] = {{0}};
      for (long step = 0; step < steps; ++step) {
        for (int j = 0; j < 12; ++j) {
          acc[j] += x * y;
          __asm__ volatile("" : "+x"(acc[j]));
        }
      }
      for (int j = 0; j < 12; ++j) __asm__ volatile("" ::"m"(acc[j]));
    }
    const double time = seconds() - start;
    if (time < best) best = time;
  }
  return 2.0 * WIDTH * 12 * (double)steps * threads / best;
}
