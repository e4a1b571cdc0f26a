// What the command prints: text for people on stdout (coloured only on a terminal), or one JSON document.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"

namespace saccade::cli {

/// Exit codes, as --help documents them.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,       ///< something could not be read, compiled, written or run; or a library is missing
  kExitUsage = 2,         ///< the command line, a problem or a tensor is wrong
  kExitUnsupported = 3,   ///< well formed, but no kernel does it here, or the device is missing
  kExitVerification = 4,  ///< a result was wrong
  kExitInterrupted = 130,
};

enum class Colour { plain, bold, dim, green, yellow, red, cyan };

/// What a terminal is shown. Plain strings become it by printable(); escape sequences come from coloured() alone.
class Text {
 public:
  Text() = default;
  template <std::convertible_to<std::string_view> String>
  Text(const String& plain) : shown_(printable(plain)) {}  // NOLINT(google-explicit-constructor)

  const std::string& shown() const { return shown_; }
  Text& operator+=(const Text& other) {
    shown_ += other.shown_;
    return *this;
  }
  friend Text operator+(Text left, const Text& right) { return left += right; }

 private:
  friend Text coloured(Colour colour, std::string_view text);
  friend class TextTable;
  std::string shown_;
};

/// `text` in a colour, when stdout is a terminal, NO_COLOR is unset and JSON was not asked for.
Text coloured(Colour colour, std::string_view text);
/// Decides once whether to colour; `json` turns colours off.
void set_up_output(bool json);

void print_line(const Text& text = {});
void print_error(std::string_view text);  ///< "saccade: error: ..." on stderr

/// A table with aligned columns. A cell is one line; columns whose header starts with '>' are right-aligned.
class TextTable {
 public:
  explicit TextTable(const std::vector<std::string>& header);
  void add(std::vector<Text> cells);
  Text text() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<Text>> rows_;
};

std::string human_bytes(double bytes);           ///< "1.5 MiB"
std::string human_time_us(double microseconds);  ///< "12.3 us", "4.56 ms", "1.20 s"

}  // namespace saccade::cli
