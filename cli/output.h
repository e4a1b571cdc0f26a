// What the command prints: text for people on stdout (coloured only on a terminal), or one JSON document.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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

/// `text` in a colour, when stdout is a terminal, NO_COLOR is unset and JSON was not asked for.
std::string coloured(Colour colour, std::string_view text);
/// Decides once whether to colour; `json` turns colours off.
void set_up_output(bool json);

void print_line(std::string_view text = {});
void print_error(std::string_view text);  ///< "saccade: error: ..." on stderr

/// A table with aligned columns. Cells may hold colours; columns whose header starts with '>' are right-aligned.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  void add(std::vector<std::string> cells);
  std::string text() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

std::string human_bytes(double bytes);           ///< "1.5 MiB"
std::string human_time_us(double microseconds);  ///< "12.3 us", "4.56 ms", "1.20 s"

}  // namespace saccade::cli
