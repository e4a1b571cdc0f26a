// Text from files, caches and the command line, made safe to show: a terminal would obey some of its characters.
#pragma once

#include <string>
#include <string_view>

namespace saccade {

/// `text` with control characters, bytes that are no UTF-8 and characters that reorder a line written as "\x1b". Line
/// feeds and tabs stay.
std::string printable(std::string_view text);
/// A name out of a file, on one line: as above, without line feeds, and cut where it is longer than any honest name.
std::string printable_name(std::string_view name);

}  // namespace saccade
