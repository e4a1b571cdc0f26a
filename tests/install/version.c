/* The header is C99, and the library links from C. */
#include <saccade/saccade.h>
#include <stdio.h>

int main(void) {
  saccade_engine_options options;
  saccade_engine* engine = NULL;
  SACCADE_INIT(&options);
  options.cache_memory_only = 1;
  if (saccade_engine_create(&options, &engine) != SACCADE_OK) {
    fprintf(stderr, "%s\n", saccade_last_error());
    return 1;
  }
  printf("saccade %s, %d CUDA device(s)\n", saccade_version(), (int)saccade_cuda_device_count());
  saccade_engine_destroy(engine);
  return 0;
}
