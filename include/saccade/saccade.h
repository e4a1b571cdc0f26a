/* Saccade: fused attention kernels, generated, tuned and cached at run time. The C interface.
 *
 *   saccade_engine  ->  saccade_problem + saccade_shape  ->  saccade_prepare  ->  saccade_plan  ->  saccade_plan_run
 *
 * Every function returns a saccade_status; saccade_last_error() is the text of this thread's last failure. Null handles and
 * pointers give SACCADE_INVALID_ARGUMENT, never a crash. No function throws, prints or exits.
 * Structs carry their own size as the first field: set it with SACCADE_INIT, so that later versions can add fields at the end.
 * Engines, problems and plans may be used from any number of threads at once; destroying one while it is in use is an error.
 * Texts that a function hands out are UTF-8, end in a zero and are given back to saccade_text_free.
 * A child of fork() makes engines of its own and leaves the parent's, with their plans, alone; CUDA does not work there once the
 * parent has used it. With GNU's OpenMP, CPU kernels on several threads hang in a child when the thread that forked had run one:
 * such a child sets cpu_threads to 1, or calls exec.
 */
#ifndef SACCADE_SACCADE_H_
#define SACCADE_SACCADE_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define SACCADE_API __attribute__((visibility("default")))
#else
#define SACCADE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define SACCADE_VERSION_MAJOR 0
#define SACCADE_VERSION_MINOR 1
#define SACCADE_VERSION_PATCH 0

/* ---- Status -------------------------------------------------------------------------------------------------------- */

typedef enum saccade_status {
  SACCADE_OK = 0,
  SACCADE_INVALID_ARGUMENT = 1, /* the input is wrong, whatever the machine */
  SACCADE_UNSUPPORTED = 2,      /* well formed, but no kernel family can do it on this device */
  SACCADE_NOT_FOUND = 3,        /* a file, library, device or symbol is missing */
  SACCADE_COMPILE_FAILED = 4,   /* the message carries the compiler's log */
  SACCADE_DEVICE_ERROR = 5,     /* the driver reported a failure */
  SACCADE_OUT_OF_MEMORY = 6,
  SACCADE_IO_ERROR = 7,
  SACCADE_CANCELLED = 8,
  SACCADE_INTERNAL = 9 /* a bug of Saccade's */
} saccade_status;

/* "0.1.0" */
SACCADE_API const char* saccade_version(void);
/* "invalid_argument" and so on; "unknown" for a value that is no status. Never null. */
SACCADE_API const char* saccade_status_name(int32_t status);
/* What the last failing call on this thread had to say; valid until the next failing call on it. Never null. */
SACCADE_API const char* saccade_last_error(void);
/* Gives back a text. Null is allowed. */
SACCADE_API void saccade_text_free(char* text);

/* Zeroes a struct and sets its size: saccade_shape shape; SACCADE_INIT(&shape); */
#define SACCADE_INIT(pointer) saccade_init((pointer), sizeof *(pointer))
static inline void saccade_init(void* structure, size_t size) {
  memset(structure, 0, size);
  memcpy(structure, &size, sizeof size); /* struct_size is the first field of each */
}

/* ---- Engine -------------------------------------------------------------------------------------------------------- */

typedef struct saccade_engine saccade_engine;

typedef struct saccade_engine_options {
  size_t struct_size;
  const char*
      cache_directory; /* null: $SACCADE_CACHE_DIR, $XDG_CACHE_HOME/saccade, $HOME/.cache/saccade, else memory only */
  const char* const* packs; /* read-only databases below the user's; pack_count paths */
  size_t pack_count;
  int64_t cache_max_bytes;   /* 0: 1 GiB */
  int32_t cache_read_only;   /* bool */
  int32_t cache_memory_only; /* bool */
  /* 0: all that the process may use; at most four for each logical CPU of the machine, or 16 if that is more. Checked by
   * starting that many once, when a plan for the CPU is first made: OpenMP ends a process in which it cannot start a thread.
   * Each thread that runs plans has a team of that size; leave room for them under limits on memory and processes. */
  int32_t cpu_threads;
  int32_t frozen;            /* bool: measure nothing, whatever policy is asked for. Also by $SACCADE_FROZEN */
  int32_t require_signature; /* bool: open only packs that a trusted key has signed */
  /* File of public keys beside /etc/saccade/trusted-keys and $SACCADE_TRUSTED_KEYS; null: none. */
  const char* trusted_keys;
  /* File to which problems and shapes are appended for `saccade sweep`; null: $SACCADE_CAPTURE. */
  const char* capture;
} saccade_engine_options;

/* `options` may be null: all defaults. A cache that cannot be opened is no error. */
SACCADE_API saccade_status saccade_engine_create(const saccade_engine_options* options, saccade_engine** engine);
/* Unloads its kernels, but for those of plans that are left: work that was enqueued, and graphs that were captured, must be
 * done with. Null is allowed. */
SACCADE_API void saccade_engine_destroy(saccade_engine* engine);
/* JSON: {"plan_hits":..,"plan_misses":..,"compiled":..,"cache_hits":..,"tuned":..,"compile_ms":..,"tune_ms":..,
 * "cache":[{"path":..,"writable":..,"binaries":..,"binary_bytes":..,"tuned":..,"rejected":..,"file_bytes":..}]} */
SACCADE_API saccade_status saccade_engine_statistics(saccade_engine* engine, char** json);

/* ---- Problem: what is computed --------------------------------------------------------------------------------------- */

typedef enum saccade_dtype {
  SACCADE_F32 = 0,
  SACCADE_F16 = 1,
  SACCADE_BF16 = 2,
  SACCADE_E4M3 = 3,
  SACCADE_E5M2 = 4,
  SACCADE_F64 = 5,
  SACCADE_I8 = 6,
  SACCADE_I16 = 7,
  SACCADE_I32 = 8,
  SACCADE_I64 = 9,
  SACCADE_U8 = 10,
  SACCADE_U16 = 11,
  SACCADE_U32 = 12,
  SACCADE_BOOL = 13
} saccade_dtype;

typedef enum saccade_layout { SACCADE_DENSE = 0, SACCADE_VARLEN = 1 } saccade_layout;

/* A named scalar of mask and score programs: SACCADE_I32, SACCADE_I64 or SACCADE_F32. */
typedef struct saccade_scalar_declaration {
  const char* name;
  int32_t dtype; /* saccade_dtype */
} saccade_scalar_declaration;

/* A named table of mask and score programs, of rank 1 to 4. */
typedef struct saccade_table_declaration {
  const char* name;
  int32_t dtype; /* saccade_dtype */
  int32_t rank;
} saccade_table_declaration;

typedef struct saccade_problem_options {
  size_t struct_size;
  int32_t q_dtype, k_dtype, v_dtype, o_dtype; /* saccade_dtype */
  int32_t head_dim_qk;
  int32_t head_dim_v; /* 0: as head_dim_qk */
  int32_t layout;     /* saccade_layout */
  int32_t lse;        /* bool: also write the log-sum-exp of each row */
  const char* mask;   /* such as "kv_idx <= q_idx"; null: every key is kept */
  const char* score;  /* such as "30 * tanh(score / 30)"; null: the score itself */
  const saccade_scalar_declaration* scalars;
  size_t scalar_count; /* at most 16 */
  const saccade_table_declaration* tables;
  size_t table_count; /* at most 8 */
} saccade_problem_options;

typedef struct saccade_problem saccade_problem;

SACCADE_API saccade_status saccade_problem_create(const saccade_problem_options* options, saccade_problem** problem);
/* The form that saccade_problem_to_json gives, such as {"dtype":"bf16","head_dim":128,"mask":"kv_idx <= q_idx"}. */
SACCADE_API saccade_status saccade_problem_from_json(const char* json, saccade_problem** problem);
SACCADE_API saccade_status saccade_problem_to_json(const saccade_problem* problem, char** json);
SACCADE_API void saccade_problem_destroy(saccade_problem* problem); /* Null is allowed. */

/* The sizes of a call, each from 0 to 2^30 - 1 (totals: 2^40). batch x heads x seqlen and heads x total are 2^40 at most, for q
 * as for k and v. A varlen call may pad, so that one plan or CUDA graph serves many lengths: seqlen may be more than any sequence
 * has, and rows before the first sequence and after the last are neither read nor written. */
typedef struct saccade_shape {
  size_t struct_size;
  int64_t batch, heads_q, heads_kv;
  int64_t seqlen_q, seqlen_kv; /* varlen: no sequence is longer */
  int64_t total_q, total_kv;   /* varlen: rows of q, and of k and v; dense: 0 */
  int32_t alignment;           /* bytes (2, 4, 8 or 16) that divide every pointer and stride of q, k, v and o; 0: 16 */
} saccade_shape;

/* ---- Plan: a kernel bound to a problem, a shape and a device --------------------------------------------------------- */

typedef struct saccade_plan saccade_plan;

typedef enum saccade_tuning {
  SACCADE_TUNE_OFF = 0,       /* a tuned row if the cache has one, else the cost model's choice */
  SACCADE_TUNE_QUICK = 1,     /* measures for at most 2 s when the cache has no tuned row */
  SACCADE_TUNE_NORMAL = 2,    /* at most 15 s */
  SACCADE_TUNE_EXHAUSTIVE = 3 /* every candidate */
} saccade_tuning;

/* A table's argument. Reads outside `extent` give 0. `data` is device memory in a run, host memory in prepare options.
 * It points to the element at index 0 of each dimension, so strides may have any sign; 0 repeats. */
typedef struct saccade_table {
  const void* data;
  int64_t extent[4];
  int64_t stride[4]; /* elements */
} saccade_table;

/* A scalar's argument: `i` for SACCADE_I32 and SACCADE_I64, `f` for SACCADE_F32. */
typedef union saccade_scalar {
  int64_t i;
  float f;
} saccade_scalar;

typedef struct saccade_prepare_options {
  size_t struct_size;
  int32_t tuning;            /* saccade_tuning */
  const char* schedule_json; /* use exactly this schedule; null: choose one */
  /* Host copies of the problem's scalars and tables, all of them or null, so that the cost model sees how much the mask
   * keeps. They steer the choice of a schedule and never the result. A SACCADE_I64 lies within -2^53 and 2^53 here. */
  const saccade_scalar* scalars;
  const saccade_table* tables;
  int32_t no_cache; /* bool: neither read nor write the cache */
  void* stream;     /* looked at only to refuse tuning while it is being captured */
} saccade_prepare_options;

/* `device` is "cpu", "cuda" or "cuda:N". Compiles, and measures if asked to; a plan that was made before is found in under a
 * microsecond. `options` may be null. A plan keeps its kernel, also beyond the engine. Errors:
 *   SACCADE_INVALID_ARGUMENT  no such device name; a size, scalar or option that cannot be; a schedule that is malformed
 *                             or of a family for other devices
 *   SACCADE_UNSUPPORTED       no kernel family takes the problem on this device; a CPU without AVX2
 *   either of these two       a schedule that is not possible for the problem and the shape
 *   SACCADE_NOT_FOUND         no CUDA driver or no such GPU; no NVRTC or libsaccade_clang.so, and the kernel is not in the cache
 *   SACCADE_COMPILE_FAILED    the compiler refused the kernel
 *   SACCADE_DEVICE_ERROR      the driver failed to load it; SACCADE_OUT_OF_MEMORY when that was for want of memory
 *   SACCADE_OUT_OF_MEMORY     also when the process cannot start cpu_threads threads
 *   SACCADE_CANCELLED         tuning was interrupted before anything was measured
 * Tuning that is not possible (a stream that is being captured) or that fails is no error: the cost model chooses, and
 * the plan's report says why. */
SACCADE_API saccade_status saccade_prepare(saccade_engine* engine, const char* device, const saccade_problem* problem,
                                           const saccade_shape* shape, const saccade_prepare_options* options,
                                           saccade_plan** plan);
SACCADE_API void saccade_plan_destroy(saccade_plan* plan); /* Null is allowed. */
SACCADE_API saccade_status saccade_plan_workspace_bytes(const saccade_plan* plan, int64_t* bytes);
/* JSON: the schedule, where it and the binary came from, what was predicted, registers, times. */
SACCADE_API saccade_status saccade_plan_report(const saccade_plan* plan, char** json);

/* Strides in elements; the head_dim stride is 1. None is negative. Rows of q, k and v may overlap (0 repeats); no two rows of o
 * may: in order of size, the first of o's strides is at least head_dim_v, and each further one steps over all that the smaller
 * ones reach. The stride of a dimension of one element is not looked at. */
typedef struct saccade_strides {
  int64_t batch; /* unused when the layout is varlen */
  int64_t head;
  int64_t row;
} saccade_strides;

/* Pointers are device pointers on CUDA. q, k, v and tables may overlap each other. o, lse and workspace must overlap
 * nothing: that is not checked, and gives wrong results. */
typedef struct saccade_run_arguments {
  size_t struct_size;
  const void* q; /* dense [batch, heads_q, seqlen_q, head_dim_qk]; varlen [total_q, heads_q, head_dim_qk] */
  const void* k; /* dense [batch, heads_kv, seqlen_kv, head_dim_qk]; varlen [total_kv, heads_kv, head_dim_qk] */
  const void* v; /* dense [batch, heads_kv, seqlen_kv, head_dim_v]; varlen [total_kv, heads_kv, head_dim_v] */
  void* o;       /* dense [batch, heads_q, seqlen_q, head_dim_v]; varlen [total_q, heads_q, head_dim_v] */
  float* lse;    /* contiguous; dense [batch, heads_q, seqlen_q]; varlen [heads_q, total_q]; natural logarithm */
  saccade_strides q_stride, k_stride, v_stride, o_stride;
  const int32_t* cu_seqlens_q; /* varlen: [batch + 1], in device memory on CUDA */
  const int32_t* cu_seqlens_kv;
  const saccade_table* tables;   /* as many as the problem declares, in its order */
  const saccade_scalar* scalars; /* likewise */
  void* workspace;               /* saccade_plan_workspace_bytes() of memory, aligned to 256 bytes */
  void* stream;                  /* CUDA: a CUstream or cudaStream_t; null: the legacy default stream */
  float scale;                   /* read when has_scale is set; else 1 / sqrt(head_dim_qk) */
  int32_t has_scale;             /* bool */
} saccade_run_arguments;

/* Enqueues the work and returns (on CPUs it computes first). Never allocates, synchronises or locks, so it may be captured
 * into a CUDA graph. Any number of threads may run one plan, each with its own workspace.
 * A CPU kernel takes up to 512 KiB of the stack of the calling thread and of each OpenMP thread (OMP_STACKSIZE). Errors:
 *   SACCADE_INVALID_ARGUMENT  a pointer that is missing or less aligned than the shape said, a stride that cannot be, a
 *                             scale that is not finite, cu_seqlens (looked at on CPUs) that do not fit the shape;
 *                             nothing was written then
 *   SACCADE_DEVICE_ERROR      the driver refused the launch; what goes wrong later shows at CUDA's next synchronisation */
SACCADE_API saccade_status saccade_plan_run(const saccade_plan* plan, const saccade_run_arguments* arguments);

/* ---- Seeing what Saccade would do ------------------------------------------------------------------------------------ */

/* JSON: {"ok":..,"families":[{"family":..,"ok":..,"reason":..}]}. `target` is a device as in saccade_prepare, or a CUDA
 * architecture such as "sm_90a", which needs no GPU. SACCADE_OK whether it is supported or not. */
SACCADE_API saccade_status saccade_supports(const char* target, const saccade_problem* problem, char** json);
/* JSON: families with their reasons, and candidates with their predicted cost, cheapest first, at most `most` (0: 10).
 * SACCADE_OK also when no family takes the problem: then there are no candidates. Errors are saccade_target's, and
 * SACCADE_INVALID_ARGUMENT for a shape or options that cannot be. */
SACCADE_API saccade_status saccade_explain(const char* target, const saccade_problem* problem,
                                           const saccade_shape* shape, const saccade_prepare_options* options,
                                           int32_t most, char** json);
/* The source text of a kernel, with the given schedule or, when it is null, the cost model's. Errors are saccade_target's,
 * and those of saccade_prepare for shapes, schedules and problems that no family takes. */
SACCADE_API saccade_status saccade_emit(const char* target, const saccade_problem* problem, const saccade_shape* shape,
                                        const char* schedule_json, char** source);
/* JSON: what is known of a device or architecture. SACCADE_INVALID_ARGUMENT when `target` is none that is known,
 * SACCADE_NOT_FOUND when the device is not there, SACCADE_UNSUPPORTED for a CPU without AVX2. */
SACCADE_API saccade_status saccade_target(const char* target, char** json);
/* Number of CUDA devices; 0 when there is no driver. */
SACCADE_API int32_t saccade_cuda_device_count(void);

#ifdef __cplusplus
}
#endif

#endif /* SACCADE_SACCADE_H_ */
