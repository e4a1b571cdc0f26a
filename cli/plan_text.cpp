#include "cli/plan_text.h"

#include <fmt/format.h>

#include "cli/session.h"

namespace saccade::cli {

std::string plan_text(const PlanReport& report) {
  std::string text = fmt::format("schedule   {} ({})\n           from {}\n", report.schedule.family,
                                 schedule_text(report.schedule), report.schedule_source);
  text += fmt::format("binary     {}", report.binary_source.empty() ? "none needed" : report.binary_source);
  if (report.compile_ms > 0) text += fmt::format(" in {:.0f} ms", report.compile_ms);
  if (report.registers > 0)
    text += fmt::format("; {} registers, {} spilled, {} shared", report.registers,
                        human_bytes(static_cast<double>(report.spill_bytes)),
                        human_bytes(static_cast<double>(report.shared_bytes)));
  text += fmt::format("\nprepared   in {:.1f} ms", report.total_ms);
  for (const std::string& declined : report.declined) text += fmt::format("\ndeclined   {}", declined);
  return text;
}

Text verification_text(const Verification& verification, bool with_lse) {
  const ErrorReport& report = verification.report;
  const std::string rows = verification.rows_checked == verification.rows
                               ? fmt::format("all {} rows", verification.rows)
                               : fmt::format("{} of {} rows", verification.rows_checked, verification.rows);
  if (verification.stray_nan) return coloured(Colour::red, "wrong") + ": an output that was written is NaN";
  if (!report.pass) return coloured(Colour::red, "wrong") + fmt::format(": {} ({})", report.detail, rows);
  std::string text = fmt::format("error {:.2e}, bound {:.2e}", report.o_error, report.o_bound);
  if (with_lse) text += fmt::format("; LSE error {:.2e}, bound {:.2e}", report.lse_error, report.lse_bound);
  return coloured(Colour::green, "verified") + fmt::format(" ({}, {})", text, rows);
}

}  // namespace saccade::cli
