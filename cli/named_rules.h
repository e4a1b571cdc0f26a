// The friendly names of masks and scores on the command line ("causal-br", "softcap:50"), turned into program text.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace saccade::cli {

/// A name, or any expression, as program text. `equal_lengths`: whether "causal" alone is unambiguous.
Expected<std::string> mask_text(std::string_view specification, bool equal_lengths);
Expected<std::string> score_text(std::string_view specification, bool equal_lengths);

/// Several masks keep what all of them keep; several scores are applied in their order. Empty text for none.
Expected<std::string> combined_mask(std::span<const std::string> specifications, bool equal_lengths);
Expected<std::string> combined_score(std::span<const std::string> specifications, bool equal_lengths);

/// The table that `--score alibi` reads when none is named.
inline constexpr std::string_view kAlibiTable = "slopes";
/// Slopes of ALiBi (Press et al., 2022, section 3 and its code): 2^(-8 (h + 1) / n) for a power of two, interleaved
/// otherwise.
std::vector<float> alibi_slopes(int heads);

/// One line for each name, for --help.
std::string rule_names_help();

}  // namespace saccade::cli
