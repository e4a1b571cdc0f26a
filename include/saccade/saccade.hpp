// Saccade for C++17 and newer: thin, header-only, on saccade.h. Handles clean up after themselves; failures throw
// saccade::Error.
#pragma once

#include <saccade/saccade.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace saccade {
inline namespace api {

/// What a failed call said: what() is the message, status() the kind.
class Error : public std::runtime_error {
 public:
  Error(saccade_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  saccade_status status() const noexcept { return status_; }

 private:
  saccade_status status_;
};

namespace detail {

inline void check(saccade_status status) {
  if (status != SACCADE_OK) throw Error(status, std::string(saccade_status_name(status)) + ": " + saccade_last_error());
}

inline std::string take(char* text) {
  const std::unique_ptr<char, void (*)(char*)> owner(text, saccade_text_free);
  return text;
}

template <class Struct>
Struct made() {
  Struct value;
  SACCADE_INIT(&value);
  return value;
}

}  // namespace detail

/// Sizes of a call; designated fields are saccade_shape's.
inline saccade_shape dense_shape(std::int64_t batch, std::int64_t heads_q, std::int64_t heads_kv, std::int64_t seqlen_q,
                                 std::int64_t seqlen_kv) {
  auto shape = detail::made<saccade_shape>();
  shape.batch = batch;
  shape.heads_q = heads_q;
  shape.heads_kv = heads_kv;
  shape.seqlen_q = seqlen_q;
  shape.seqlen_kv = seqlen_kv;
  return shape;
}

/// Strides of a contiguous [batch, heads, rows, head_dim] tensor.
inline saccade_strides contiguous(std::int64_t heads, std::int64_t rows, std::int64_t head_dim) {
  return {heads * rows * head_dim, rows * head_dim, head_dim};
}

inline saccade_engine_options engine_options() { return detail::made<saccade_engine_options>(); }
inline saccade_problem_options problem_options() { return detail::made<saccade_problem_options>(); }
inline saccade_prepare_options prepare_options() { return detail::made<saccade_prepare_options>(); }
inline saccade_run_arguments run_arguments() { return detail::made<saccade_run_arguments>(); }

class Problem {
 public:
  /// From JSON, such as R"({"dtype":"bf16","head_dim":128,"mask":"kv_idx <= q_idx"})".
  explicit Problem(const std::string& json) { detail::check(saccade_problem_from_json(json.c_str(), &handle_)); }
  explicit Problem(const saccade_problem_options& options) {
    detail::check(saccade_problem_create(&options, &handle_));
  }
  Problem(Problem&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Problem& operator=(Problem&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Problem() { saccade_problem_destroy(handle_); }

  std::string to_json() const {
    char* text = nullptr;
    detail::check(saccade_problem_to_json(handle_, &text));
    return detail::take(text);
  }
  const saccade_problem* handle() const { return handle_; }

 private:
  saccade_problem* handle_ = nullptr;
};

class Plan {
 public:
  explicit Plan(saccade_plan* handle) : handle_(handle) {}
  Plan(Plan&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Plan& operator=(Plan&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Plan() { saccade_plan_destroy(handle_); }

  void run(const saccade_run_arguments& arguments) const { detail::check(saccade_plan_run(handle_, &arguments)); }
  std::int64_t workspace_bytes() const {
    std::int64_t bytes = 0;
    detail::check(saccade_plan_workspace_bytes(handle_, &bytes));
    return bytes;
  }
  std::string report() const {
    char* text = nullptr;
    detail::check(saccade_plan_report(handle_, &text));
    return detail::take(text);
  }
  const saccade_plan* handle() const { return handle_; }

 private:
  saccade_plan* handle_ = nullptr;
};

/// Workspace of a plan for the CPU: host memory, aligned to 256 bytes; throws std::bad_alloc when there is none. On CUDA
/// use device memory of workspace_bytes().
class HostWorkspace {
 public:
  explicit HostWorkspace(const Plan& plan)
      : memory_(static_cast<std::size_t>(plan.workspace_bytes()) + kAlignment), data_(memory_.data()) {
    std::size_t space = memory_.size();
    std::align(kAlignment, space - kAlignment, data_, space);
  }
  HostWorkspace(const HostWorkspace&) = delete;
  HostWorkspace& operator=(const HostWorkspace&) = delete;
  void* data() const { return data_; }

 private:
  static constexpr std::size_t kAlignment = 256;
  std::vector<unsigned char> memory_;
  void* data_;
};

class Engine {
 public:
  Engine() { detail::check(saccade_engine_create(nullptr, &handle_)); }
  explicit Engine(const saccade_engine_options& options) { detail::check(saccade_engine_create(&options, &handle_)); }
  Engine(Engine&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Engine& operator=(Engine&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Engine() { saccade_engine_destroy(handle_); }

  /// `device` is "cpu", "cuda" or "cuda:N".
  Plan prepare(const std::string& device, const Problem& problem, const saccade_shape& shape) {
    return prepare(device, problem, shape, prepare_options());
  }
  Plan prepare(const std::string& device, const Problem& problem, const saccade_shape& shape,
               const saccade_prepare_options& options) {
    saccade_plan* plan = nullptr;
    detail::check(saccade_prepare(handle_, device.c_str(), problem.handle(), &shape, &options, &plan));
    return Plan(plan);
  }
  std::string statistics() const {
    char* text = nullptr;
    detail::check(saccade_engine_statistics(handle_, &text));
    return detail::take(text);
  }
  saccade_engine* handle() const { return handle_; }

 private:
  saccade_engine* handle_ = nullptr;
};

/// JSON of saccade_supports, saccade_explain; source text of saccade_emit. What these refuse is an Error with their
/// status: SACCADE_INVALID_ARGUMENT for a target or shape that cannot be, SACCADE_NOT_FOUND for a device that is not
/// there, SACCADE_UNSUPPORTED for a CPU without AVX2 and, from emit, for a problem that no family takes (supports and
/// explain give the reasons for it).
inline std::string supports(const std::string& target, const Problem& problem) {
  char* text = nullptr;
  detail::check(saccade_supports(target.c_str(), problem.handle(), &text));
  return detail::take(text);
}
inline std::string explain(const std::string& target, const Problem& problem, const saccade_shape& shape,
                           int most = 10) {
  char* text = nullptr;
  detail::check(saccade_explain(target.c_str(), problem.handle(), &shape, nullptr, most, &text));
  return detail::take(text);
}
inline std::string emit(const std::string& target, const Problem& problem, const saccade_shape& shape) {
  char* text = nullptr;
  detail::check(saccade_emit(target.c_str(), problem.handle(), &shape, nullptr, &text));
  return detail::take(text);
}

}  // namespace api
}  // namespace saccade
