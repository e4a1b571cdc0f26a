#include "runtime/cuda/ptxas_log.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace saccade::cuda {
namespace {

/// The integer just before `unit` in `line`, such as 72 in "Used 72 registers, used 1 barriers".
std::optional<std::int64_t> number_before(std::string_view line, std::string_view unit) {
  const std::size_t end = line.find(unit);
  if (end == std::string_view::npos) return std::nullopt;
  std::size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  std::int64_t value = 0;
  const auto [rest, error] = std::from_chars(line.data() + begin, line.data() + end, value);
  if (error != std::errc() || rest != line.data() + end) return std::nullopt;
  return value;
}

void read_line(std::string_view line, PtxasUsage& usage) {
  const auto says = [line](std::string_view text) { return line.find(text) != std::string_view::npos; };
  usage.keeps_registers |= says("setmaxnreg") && says("ignored");
  usage.serializes_wgmma |= says("wgmma") && says("serialized");
  if (const auto stack = number_before(line, " bytes stack frame")) {
    usage.stack_bytes = std::max(usage.stack_bytes, *stack);
    usage.spill_bytes += number_before(line, " bytes spill stores").value_or(0);
    usage.spill_bytes += number_before(line, " bytes spill loads").value_or(0);
  }
  if (const auto registers = number_before(line, " registers"); registers && says("Used ")) {
    ++usage.kernels;
    usage.registers = std::max(usage.registers, static_cast<int>(*registers));
    usage.static_shared_bytes = std::max(usage.static_shared_bytes, number_before(line, " bytes smem").value_or(0));
  }
}

}  // namespace

PtxasUsage parse_ptxas_log(std::string_view log) {
  PtxasUsage usage;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size());
    read_line(log.substr(0, end), usage);
    log.remove_prefix(std::min(end + 1, log.size()));
  }
  return usage;
}

}  // namespace saccade::cuda
