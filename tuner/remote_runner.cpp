#include "tuner/remote_runner.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tuner/table_span.h"

namespace saccade::tuner {
namespace {

/// How often a wait looks at the cancel flag.
constexpr double kSliceMs = 25;
/// A sample under way when the budget ends may finish within this: killing the worker would cost more.
constexpr double kSampleGraceMs = 100;

AddOutcome outcome_of(Fault fault, std::string reason) {
  AddOutcome outcome;
  outcome.fault = fault;
  outcome.reason = std::move(reason);
  return outcome;
}

}  // namespace

Expected<std::unique_ptr<RemoteRunner>> RemoteRunner::open(WorkerSettings settings, const Limits& limits) {
  std::unique_ptr<RemoteRunner> runner(new RemoteRunner(std::move(settings)));
  SACCADE_TRY(runner->start_once(limits));
  return runner;
}

Status RemoteRunner::share_tables() {
  constexpr std::int64_t kAlignment = 64;
  const expr::Declarations& declarations = settings_.open.problem.problem.declarations;
  settings_.open.scalars = settings_.bindings.scalars;
  settings_.open.tables.clear();
  std::vector<const std::byte*> sources;
  std::int64_t end = 0;
  for (std::size_t i = 0; i < settings_.bindings.tables.size() && i < declarations.tables.size(); ++i) {
    const expr::HostTable& table = settings_.bindings.tables[i];
    SACCADE_ASSIGN(const TableSpan span, table_span(table, declarations.tables[i]));
    protocol::WireTable wire;
    wire.has_data = table.data != nullptr;
    wire.bytes = wire.has_data ? span.bytes : 0;
    wire.offset = end;
    std::copy(std::begin(table.extent), std::end(table.extent), std::begin(wire.extent));
    std::copy(std::begin(table.stride), std::end(table.stride), std::begin(wire.stride));
    end += (wire.bytes + kAlignment - 1) / kAlignment * kAlignment;
    settings_.open.tables.push_back(wire);
    sources.push_back(wire.has_data ? span.lowest_of(table.data) : nullptr);
  }
  if (end == 0) return Status();
  if (ftruncate(process_->arena(), end) != 0) {
    return Status(StatusCode::out_of_memory, fmt::format("no {} bytes to share tables with the worker", end));
  }
  void* mapped = mmap(nullptr, static_cast<std::size_t>(end), PROT_READ | PROT_WRITE, MAP_SHARED, process_->arena(), 0);
  if (mapped == MAP_FAILED) return Status(StatusCode::out_of_memory, "cannot map the memory shared with the worker");
  for (std::size_t i = 0; i < settings_.open.tables.size(); ++i) {
    const protocol::WireTable& wire = settings_.open.tables[i];
    if (!wire.has_data) continue;
    std::memcpy(static_cast<std::byte*>(mapped) + wire.offset, sources[i], static_cast<std::size_t>(wire.bytes));
  }
  munmap(mapped, static_cast<std::size_t>(end));
  return Status();
}

Status RemoteRunner::start_once(const Limits& limits) {
  SACCADE_ASSIGN(process_, WorkerProcess::start(settings_.executable));
  SACCADE_TRY(share_tables());
  Status refusal;
  bool greeted = false;
  Exchange opened = await(0, settings_.watchdog.hello_ms, limits, [&](const protocol::Reply& reply) {
    greeted = true;
    const auto* hello = std::get_if<protocol::Hello>(&reply);
    if (hello == nullptr || hello->protocol != protocol::kVersion || hello->abi != kGeneratorAbi ||
        hello->version != kGeneratorVersion) {
      refusal = Status::not_found(fmt::format("{} is the worker of another version of Saccade", settings_.executable));
    }
    return true;
  });
  if (opened.end == Exchange::End::answered && refusal.ok()) {
    opened = exchange(settings_.open, 0, settings_.watchdog.open_ms, limits, [&](const protocol::Reply& reply) {
      if (const auto* setup = std::get_if<protocol::Setup>(&reply)) setup_ = setup->setup;
      if (const auto* error = std::get_if<protocol::Error>(&reply)) refusal = error->status;
      return std::holds_alternative<protocol::Setup>(reply) || std::holds_alternative<protocol::Error>(reply);
    });
  }
  if (opened.end == Exchange::End::interrupted) {
    process_.reset();
    return Status(StatusCode::cancelled, "tuning was stopped before the worker was ready");
  }
  if (opened.end != Exchange::End::answered) {
    process_.reset();
    if (!greeted) {
      return Status::not_found(
          fmt::format("{} did not answer as a tuning worker does: {}. Is it saccade-worker? "
                      "SACCADE_WORKER, when it is set, must name that",
                      settings_.executable, opened.reason));
    }
    return Status::internal(
        fmt::format("the tuning worker {} failed to open the problem: {}", settings_.executable, opened.reason));
  }
  if (!refusal.ok()) process_.reset();
  return refusal;
}

Status RemoteRunner::ensure_running(const Limits& limits) {
  if (process_ != nullptr) return Status();
  SACCADE_TRY(broken_);
  while (process_ == nullptr) {
    if (restarts_ >= settings_.max_restarts) {
      broken_ = Status::internal(fmt::format("the tuning worker was lost {} times", restarts_));
      return broken_;
    }
    ++restarts_;
    if (Status status = start_once(limits); !status.ok()) {
      if (status.code() != StatusCode::cancelled) broken_ = status;
      return status;
    }
    SACCADE_TRY(restore(limits));
  }
  return Status();
}

Status RemoteRunner::restore(const Limits& limits) {
  // May lose the worker again, to a survivor that no longer survives: the caller's loop starts the next.
  const std::map<int, Live> survivors = live_;
  for (const auto& [id, candidate] : survivors) {
    bool worker_lost = false;
    const AddOutcome outcome = add_once(id, candidate, true, limits, worker_lost);
    if (outcome.fault == Fault::interrupted) return Status(StatusCode::cancelled, outcome.reason);
    if (outcome.fault != Fault::none) {
      lost_.push_back({id, outcome.fault, outcome.reason});
      live_.erase(id);
    }
    if (worker_lost) break;
  }
  return Status();
}

double RemoteRunner::allowance_ms(protocol::Phase phase, double predicted_us) const {
  const Watchdog& watchdog = settings_.watchdog;
  if (phase == protocol::Phase::compile) return watchdog.compile_ms;
  return std::max(watchdog.floor_ms, watchdog.factor * std::max(predicted_us, 0.0) / 1000);
}

RemoteRunner::Exchange RemoteRunner::exchange(const protocol::Request& request, double predicted_us, double patience_ms,
                                              const Limits& limits, const Listener& listener) {
  if (const Status sent = process_->send(protocol::encode(request)); !sent.ok()) {
    Exchange result;
    result.end = Exchange::End::died;
    result.reason = sent.message();
    lose_worker(result);
    return result;
  }
  return await(predicted_us, patience_ms, limits, listener);
}

RemoteRunner::Exchange RemoteRunner::await(double predicted_us, double patience_ms, const Limits& limits,
                                           const Listener& listener) {
  Exchange result;
  std::string line;
  double silent_since = steady_now_ms();
  while (true) {
    const LineReader::Event event = process_->receive(kSliceMs, line);
    if (event == LineReader::Event::timeout) {
      const bool sampling = result.id >= 0 && result.phase == protocol::Phase::sample;
      const double grace = sampling && !limits.cancelled() ? kSampleGraceMs : 0;
      if (limits.cancelled() || limits.now_ms() >= limits.deadline_ms + grace) {
        result.end = Exchange::End::interrupted;
        result.reason = limits.cancelled() ? "tuning was cancelled" : "the budget is spent";
      } else if (steady_now_ms() - silent_since > patience_ms) {
        result.end = Exchange::End::hung;
        result.reason = fmt::format("no answer within {:.1f} s", patience_ms / 1000);
      } else {
        continue;
      }
      lose_worker(result);
      return result;
    }
    silent_since = steady_now_ms();
    const Expected<protocol::Reply> reply = event == LineReader::Event::line
                                                ? protocol::decode_reply(line)
                                                : Expected<protocol::Reply>(Status::io_error("the channel closed"));
    if (!reply.ok()) {
      result.end = Exchange::End::died;
      result.reason = event == LineReader::Event::end ? "" : reply.status().message();
      lose_worker(result);
      return result;
    }
    if (const auto* phase = std::get_if<protocol::PhaseStart>(&*reply)) {
      result.id = phase->id;
      result.phase = phase->phase;
      patience_ms = allowance_ms(phase->phase, predicted_us);
      continue;
    }
    if (listener(*reply)) return result;
  }
}

void RemoteRunner::lose_worker(Exchange& exchange) {
  const std::string end = process_->kill_and_describe();
  if (exchange.end == Exchange::End::died && process_->was_killed_from_outside()) {
    exchange.end = Exchange::End::killed_from_outside;
    exchange.reason = "SIGKILL from outside (is memory short?)";
  }
  process_.reset();
  if (exchange.end == Exchange::End::died) {
    exchange.reason += exchange.reason.empty() ? "the worker " + end : fmt::format("; the worker {}", end);
  }
  if (exchange.id >= 0) exchange.reason += fmt::format(", in phase {}", protocol::name_of(exchange.phase));
}

Fault RemoteRunner::fault_of(Exchange::End end) {
  switch (end) {
    case Exchange::End::answered: return Fault::none;
    case Exchange::End::died: return Fault::crashed;
    case Exchange::End::killed_from_outside:
      return Fault::refused;  // not the candidate's doing, as far as one can tell
    case Exchange::End::hung: return Fault::hung;
    case Exchange::End::interrupted: return Fault::interrupted;
  }
  return Fault::crashed;
}

AddOutcome RemoteRunner::add_once(int id, const Live& candidate, bool trusted, const Limits& limits,
                                  bool& worker_lost) {
  AddOutcome outcome;
  Status error;
  const Exchange result = exchange(protocol::Add{id, candidate.schedule, trusted}, candidate.predicted_us,
                                   settings_.watchdog.compile_ms, limits, [&](const protocol::Reply& reply) {
                                     if (const auto* added = std::get_if<protocol::Added>(&reply))
                                       outcome = added->outcome;
                                     if (const auto* failed = std::get_if<protocol::Error>(&reply))
                                       error = failed->status;
                                     return std::holds_alternative<protocol::Added>(reply) || !error.ok();
                                   });
  worker_lost = process_ == nullptr;
  if (result.end != Exchange::End::answered) return outcome_of(fault_of(result.end), result.reason);
  if (!error.ok()) return outcome_of(Fault::refused, error.message());
  if (outcome.fault == Fault::crashed) {
    // A device error is sticky: every later candidate of this worker would fail for it.
    process_->kill_and_describe();
    process_.reset();
    worker_lost = true;
  }
  return outcome;
}

AddOutcome RemoteRunner::add(int id, const Schedule& schedule, double predicted_us, const Limits& limits) {
  const Live candidate{schedule, predicted_us};
  for (int attempt = 0;; ++attempt) {
    if (limits.stop()) return outcome_of(Fault::interrupted, "the budget is spent");
    if (const Status status = ensure_running(limits); !status.ok()) {
      return outcome_of(status.code() == StatusCode::cancelled ? Fault::interrupted : Fault::refused, status.message());
    }
    bool worker_lost = false;
    const AddOutcome outcome = add_once(id, candidate, false, limits, worker_lost);
    // A crash while others were compiled in the background may be theirs: once more, alone.
    const bool blame_is_unclear = worker_lost && prefetching_ && outcome.fault != Fault::interrupted && attempt == 0;
    if (worker_lost) prefetching_ = false;
    if (blame_is_unclear) {
      prefetch_allowed_ = false;
      continue;
    }
    if (outcome.fault == Fault::none) live_.insert_or_assign(id, candidate);
    return outcome;
  }
}

std::optional<Failure> RemoteRunner::time_once(int id, const Limits& limits, RoundOutcome& outcome) {
  std::optional<Failure> failure;
  Status error;
  const double predicted_us = live_.at(id).predicted_us;
  const Exchange result = exchange(protocol::Time{{id}}, predicted_us, settings_.watchdog.floor_ms, limits,
                                   [&](const protocol::Reply& reply) {
                                     if (const auto* sample = std::get_if<Sample>(&reply))
                                       outcome.samples.push_back(*sample);
                                     if (const auto* failed = std::get_if<protocol::Failed>(&reply))
                                       failure = failed->failure;
                                     if (const auto* refused = std::get_if<protocol::Error>(&reply))
                                       error = refused->status;
                                     return std::holds_alternative<protocol::Done>(reply) || !error.ok();
                                   });
  if (result.end == Exchange::End::interrupted) {
    outcome.interrupted = true;
    return std::nullopt;
  }
  if (result.end != Exchange::End::answered) return Failure{id, fault_of(result.end), result.reason};
  if (!error.ok()) return Failure{id, Fault::refused, error.message()};
  if (failure.has_value() && failure->fault == Fault::crashed) {
    process_->kill_and_describe();
    process_.reset();
  }
  return failure;
}

RoundOutcome RemoteRunner::time(std::span<const int> ids, const Limits& limits) {
  RoundOutcome outcome;
  prefetching_ = false;  // the worker waits for its compilers before it times anything
  for (const int id : ids) {
    if (limits.stop() || !ensure_running(limits).ok()) {
      outcome.interrupted = true;
      break;
    }
    if (live_.contains(id)) {
      if (std::optional<Failure> failure = time_once(id, limits, outcome)) {
        live_.erase(id);
        outcome.failures.push_back(*std::move(failure));
      }
    }
    if (outcome.interrupted) break;
  }
  outcome.failures.insert(outcome.failures.end(), lost_.begin(), lost_.end());
  lost_.clear();
  return outcome;
}

void RemoteRunner::prefetch(std::span<const Schedule> schedules) {
  if (process_ == nullptr || !prefetch_allowed_ || schedules.empty()) return;
  protocol::Prefetch request;
  request.schedules.assign(schedules.begin(), schedules.end());
  prefetching_ = process_->send(protocol::encode(request)).ok();
}

void RemoteRunner::drop(int id) {
  if (live_.erase(id) == 0 || process_ == nullptr) return;
  // A worker that cannot be told will be found lost by the next request.
  (void)process_->send(protocol::encode(protocol::Drop{id}));
}

}  // namespace saccade::tuner
