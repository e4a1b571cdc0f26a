#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace saccade::cli {
namespace {

bool colours_on = false;

/// Characters that a terminal shows: escape sequences count for nothing, UTF-8 continuation bytes neither.
std::size_t visible_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
    } else if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
      ++width;
    }
  }
  return width;
}

}  // namespace

void set_up_output(bool json) {
  const char* const no_color = std::getenv("NO_COLOR");  // https://no-color.org: set and not empty
  const char* const terminal = std::getenv("TERM");
  const bool dumb = terminal && std::string_view(terminal) == "dumb";
  colours_on = !json && !(no_color && *no_color) && !dumb && ::isatty(STDOUT_FILENO) == 1;
}

std::string coloured(Colour colour, std::string_view text) {
  if (!colours_on || colour == Colour::plain) return std::string(text);
  constexpr std::string_view kCodes[] = {"0", "1", "2", "32", "33", "31", "36"};
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<int>(colour)], text);
}

void print_line(std::string_view text) {
  fmt::print(stdout, "{}\n", text);
  std::fflush(stdout);
}

void print_error(std::string_view text) {
  std::fflush(stdout);
  fmt::print(stderr, "saccade: error: {}\n", text);
}

TextTable::TextTable(std::vector<std::string> header) {
  for (std::string& cell : header) {
    right_.push_back(cell.starts_with('>'));
    if (right_.back()) cell.erase(0, 1);
    cell = coloured(Colour::bold, cell);
  }
  rows_.push_back(std::move(header));
}

void TextTable::add(std::vector<std::string> cells) {
  cells.resize(right_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text() const {
  std::vector<std::size_t> width(right_.size(), 0);
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], visible_width(row[i]));
  std::string result;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(width[i] - visible_width(row[i]), ' ');
      line += (i ? "  " : "") + (right_[i] ? padding + row[i] : row[i] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    result += line + "\n";
  }
  if (!result.empty()) result.pop_back();
  return result;
}

std::string human_bytes(double bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string human_time_us(double microseconds) {
  if (microseconds < 1e3) return fmt::format("{:.1f} us", microseconds);
  if (microseconds < 1e6) return fmt::format("{:.2f} ms", microseconds / 1e3);
  return fmt::format("{:.2f} s", microseconds / 1e6);
}

}  // namespace saccade::cli
