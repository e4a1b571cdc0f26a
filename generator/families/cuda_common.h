// What the CUDA families have in common.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/status.h"
#include "generator/problem.h"
#include "generator/schedule.h"

namespace saccade {

inline constexpr std::string_view kForwardSymbol = "saccade_forward";
inline constexpr std::int64_t kMaxBlocks = std::numeric_limits<std::int32_t>::max();  ///< of a grid

/// ok for a forward pass of one 16-bit dtype and head dims that are multiples of 8 up to 256.
Status check_sixteen_bit_forward(const Problem& problem);

/// Columns of tiles in shared memory: head dims padded to the depth of one product.
inline int padded(int head_dim) { return (head_dim + 15) / 16 * 16; }

/// Masks that read tables are loops and guarded loads: too much code to stand once for each element.
bool has_long_mask(const Problem& problem);

/// Instructions that a program takes for each element, about: one for an operation, several for one of the special functions.
double element_work(const expr::Program& program);

/// What a family adds to the text that all CUDA kernels share.
struct KernelText {
  std::string_view header;  ///< of the template
  std::string definitions;  ///< in namespace saccade: the constants, and whatever else the template asks for
  int threads = 0;
  std::int64_t blocks_per_sm = 1;
  std::string_view parameters;  ///< of the kernel
  std::string_view body;        ///< the call of the template
  expr::TableRanges table_ranges = expr::TableRanges::read;
};
/// The emitted source: header comment, include, `struct Rules`, definitions, one extern "C" kernel.
std::string translation_unit(const Problem& problem, const Schedule& schedule, const KernelText& text);

/// Text of an emitted struct of named constants.
class ConstantsText {
 public:
  explicit ConstantsText(std::string_view struct_name);
  ConstantsText& add(std::string_view type, std::string_view name, std::string_view value);
  ConstantsText& add(std::string_view name, std::int64_t value);  ///< an int
  ConstantsText& add_flag(std::string_view name, bool value);
  /// Element, head dims, varlen, lse, long_mask.
  ConstantsText& add_problem(const Problem& problem);
  std::string finish() const;

 private:
  std::string text_;
};

}  // namespace saccade
