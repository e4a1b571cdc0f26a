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

Text coloured(Colour colour, std::string_view text) {
  Text result = text;
  constexpr std::string_view kCodes[] = {"0", "1", "2", "32", "33", "31", "36"};
  if (colours_on && colour != Colour::plain)
    result.shown_ = fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<int>(colour)], result.shown_);
  return result;
}

void print_line(const Text& text) {
  fmt::print(stdout, "{}\n", text.shown());
  std::fflush(stdout);
}

void print_error(std::string_view text) {
  std::fflush(stdout);
  fmt::print(stderr, "saccade: error: {}\n", printable(text));
}

TextTable::TextTable(const std::vector<std::string>& header) {
  std::vector<Text> cells;
  for (const std::string_view title : header) {
    right_.push_back(title.starts_with('>'));
    cells.push_back(coloured(Colour::bold, title.substr(right_.back() ? 1 : 0)));
  }
  rows_.push_back(std::move(cells));
}

void TextTable::add(std::vector<Text> cells) {
  cells.resize(right_.size());
  for (Text& cell : cells) {
    std::replace(cell.shown_.begin(), cell.shown_.end(), '\n', ' ');
    std::replace(cell.shown_.begin(), cell.shown_.end(), '\t', ' ');
  }
  rows_.push_back(std::move(cells));
}

Text TextTable::text() const {
  std::vector<std::size_t> width(right_.size(), 0);
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], visible_width(row[i].shown()));
  Text result;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string& cell = row[i].shown();
      const std::string padding(width[i] - visible_width(cell), ' ');
      line += (i ? "  " : "") + (right_[i] ? padding + cell : cell + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    result.shown_ += (result.shown_.empty() ? "" : "\n") + line;
  }
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
