// Status and Expected: how every layer reports failure. Nothing in the library throws across a layer, exits or prints.
#pragma once

#include <cassert>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

namespace saccade {

/// The values are the C ABI's (`saccade_status` in saccade.h) and never change.
enum class StatusCode : std::int32_t {
  ok = 0,
  invalid_argument = 1,  ///< the caller's input is wrong, whatever the machine
  unsupported = 2,       ///< well formed, but no family can do it on this target
  not_found = 3,         ///< a file, library, device or symbol is missing
  compile_failed = 4,    ///< the compiler refused the emitted source; the message carries its log
  device_error = 5,      ///< the driver reported a failure
  out_of_memory = 6,
  io_error = 7,
  cancelled = 8,
  internal = 9,  ///< a bug of Saccade's
};

/// Stable lower-case name, such as "invalid_argument".
const char* name_of(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status invalid_argument(std::string m) { return {StatusCode::invalid_argument, std::move(m)}; }
  static Status unsupported(std::string m) { return {StatusCode::unsupported, std::move(m)}; }
  static Status not_found(std::string m) { return {StatusCode::not_found, std::move(m)}; }
  static Status io_error(std::string m) { return {StatusCode::io_error, std::move(m)}; }
  static Status device_error(std::string m) { return {StatusCode::device_error, std::move(m)}; }
  static Status internal(std::string m) { return {StatusCode::internal, std::move(m)}; }

  bool ok() const { return code_ == StatusCode::ok; }
  explicit operator bool() const { return ok(); }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::ok;
  std::string message_;
};

/// A value or the Status that says why there is none.
template <class T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Expected(Status status) : state_(std::in_place_index<1>, std::move(status)) {  // NOLINT(google-explicit-constructor)
    assert(!std::get<1>(state_).ok());
  }

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Status status() const { return ok() ? Status() : std::get<1>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace saccade

/// Returns from the enclosing function when `expr` (a Status) is not ok.
#define SACCADE_TRY(expr)                                                              \
  do {                                                                                 \
    if (::saccade::Status try_status_ = (expr); !try_status_.ok()) return try_status_; \
  } while (false)

#define SACCADE_CONCAT_(a, b) a##b
#define SACCADE_CONCAT(a, b) SACCADE_CONCAT_(a, b)
/// `SACCADE_ASSIGN(auto x, f());` binds the value or returns the Status.
#define SACCADE_ASSIGN(declaration, expr) SACCADE_ASSIGN_(SACCADE_CONCAT(expected_, __LINE__), declaration, expr)
#define SACCADE_ASSIGN_(temporary, declaration, expr) \
  auto temporary = (expr);                            \
  if (!temporary.ok()) return temporary.status();     \
  declaration = std::move(temporary).value()
