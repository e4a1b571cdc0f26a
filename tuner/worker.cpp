#include "tuner/worker.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <memory>

#include "tuner/local_runner.h"
#include "tuner/process.h"
#include "tuner/protocol.h"
#include "tuner/table_span.h"

namespace saccade::tuner {
namespace {

/// The tuner's table memory, mapped read-only.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Status map(int descriptor) {
    struct stat status{};
    if (fstat(descriptor, &status) != 0) return Status::io_error("the worker has no table memory");
    bytes_ = static_cast<std::size_t>(status.st_size);
    if (bytes_ == 0) return Status();
    void* mapped = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED) return Status::io_error("the worker cannot map its table memory");
    data_ = mapped;
    return Status();
  }
  Expected<const void*> at(std::int64_t offset, std::int64_t bytes) const {
    if (offset < 0 || bytes < 0 || static_cast<std::size_t>(offset) > bytes_ ||
        static_cast<std::size_t>(bytes) > bytes_ - static_cast<std::size_t>(offset)) {
      return Status::invalid_argument("a table outside the table memory");
    }
    return static_cast<const void*>(static_cast<const std::byte*>(data_) + offset);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class Server {
 public:
  explicit Server(const WorkerOptions& options) : options_(options) {}

  Status reply(const protocol::Reply& message) { return send_line(options_.channel, encode(message)); }

  Status handle(const protocol::Request& request) {
    return std::visit([this](const auto& r) { return serve(r); }, request);
  }

 private:
  Status serve(const protocol::Open& open) {
    const Status status = start(open);
    if (!status.ok()) return reply(protocol::Error{status});
    return reply(protocol::Setup{runner_->setup()});
  }
  Status serve(const protocol::Prefetch& prefetch) {
    if (runner_ != nullptr) runner_->prefetch(prefetch.schedules);
    return Status();
  }
  Status serve(const protocol::Add& add) {
    if (runner_ == nullptr) return reply(protocol::Error{Status::invalid_argument("no problem is open")});
    const AddOutcome outcome =
        add.trusted ? runner_->add_trusted(add.id, add.schedule) : runner_->add(add.id, add.schedule, 0, Limits());
    return reply(protocol::Added{add.id, outcome});
  }
  Status serve(const protocol::Time& time) {
    if (runner_ == nullptr) return reply(protocol::Error{Status::invalid_argument("no problem is open")});
    for (const int id : time.ids) {
      const RoundOutcome outcome = runner_->time(std::span(&id, 1), Limits());
      for (const Sample& sample : outcome.samples) SACCADE_TRY(reply(sample));
      for (const Failure& failure : outcome.failures) SACCADE_TRY(reply(protocol::Failed{failure}));
    }
    return reply(protocol::Done{});
  }
  Status serve(const protocol::Drop& drop) {
    if (runner_ != nullptr) runner_->drop(drop.id);
    return Status();
  }

  /// The tuner's, which may be a part of a GPU.
  static Expected<std::shared_ptr<const Device>> gpu_of(const protocol::Open& open) {
    SACCADE_ASSIGN(std::shared_ptr<const Device> whole, cuda_device(open.ordinal));
    if (open.sm_count <= 0 || open.sm_count >= whole->target().sm_count) return whole;
    SACCADE_ASSIGN(std::shared_ptr<const Device> part, cuda_partition(open.ordinal, open.sm_count));
    if (part->target().sm_count == open.sm_count) return part;
    return Status::unsupported(
        fmt::format("not measured: the current context has {} SMs, and the driver splits off {}; a green context of as "
                    "many can be tuned",
                    open.sm_count, part->target().sm_count));
  }

  Status start(const protocol::Open& open) {
    runner_.reset();
    EngineOptions engine_options;
    engine_options.cache.directory = open.cache_directory;
    engine_options.cache.memory_only = open.cache_directory.empty();
    engine_options.cache.finds_packs = false;  // kernels of one compiler are raced, the one that the row names
    engine_options.cpu_threads = open.threads;
    SACCADE_ASSIGN(engine_, Engine::create(engine_options));
    SACCADE_ASSIGN(std::shared_ptr<const Device> device,
                   open.is_cuda ? gpu_of(open) : cpu_device(open.threads, open.arch));
    if (const std::string identity = tuning_identity(device->target()); identity != open.tuning_identity) {
      return Status::internal(
          fmt::format("the worker sees another device ({}) than the tuner ({})", identity, open.tuning_identity));
    }
    RunnerProblem problem = open.problem;
    SACCADE_TRY(bind(open, problem));
    SACCADE_ASSIGN(runner_, LocalRunner::open(*engine_, std::move(device), problem));
    runner_->set_hooks(options_.hooks);
    // A channel that breaks here breaks for the reply as well, where it is seen.
    runner_->listen([this](protocol::Phase phase, int id) { (void)reply(protocol::PhaseStart{phase, id}); });
    return Status();
  }

  Status bind(const protocol::Open& open, RunnerProblem& problem) {
    arena_ = std::make_unique<Arena>();
    SACCADE_TRY(arena_->map(options_.arena));
    problem.bindings.scalars = open.scalars;
    const expr::Declarations& declarations = problem.problem.declarations;
    if (open.tables.size() > declarations.tables.size()) {
      return Status::invalid_argument(fmt::format("{} tables came with a problem that declares {}", open.tables.size(),
                                                  declarations.tables.size()));
    }
    for (std::size_t i = 0; i < open.tables.size(); ++i) {
      const protocol::WireTable& wire = open.tables[i];
      expr::HostTable table;
      std::copy(std::begin(wire.extent), std::end(wire.extent), std::begin(table.extent));
      std::copy(std::begin(wire.stride), std::end(wire.stride), std::begin(table.stride));
      if (wire.has_data) {
        SACCADE_ASSIGN(const TableSpan span, table_span(table, declarations.tables[i]));
        if (span.bytes != wire.bytes) return Status::invalid_argument("a table whose strides do not fit its bytes");
        SACCADE_ASSIGN(const void* const lowest, arena_->at(wire.offset, wire.bytes));
        table.data = span.data_of(lowest);
      }
      problem.bindings.tables.push_back(table);
    }
    return Status();
  }

  WorkerOptions options_;
  std::unique_ptr<Arena> arena_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<LocalRunner> runner_;  ///< after what it uses: destroyed first
};

}  // namespace

void prepare_worker_process() {
  // A hung candidate never reads the channel, so it would not see its tuner die.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // In a background process group of a terminal with TOSTOP, a warning on standard error would stop the worker.
  std::signal(SIGTTOU, SIG_IGN);
  // Candidates that crash are expected.
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
}

int serve_worker(const WorkerOptions& options) {
  Server server(options);
  LineReader reader(options.channel);
  protocol::Hello hello;
  hello.abi = kGeneratorAbi;
  hello.version = kGeneratorVersion;
  if (!server.reply(hello).ok()) return 1;
  std::string line;
  while (true) {
    const LineReader::Event event = reader.next(-1, line);
    if (event == LineReader::Event::end) return 0;
    if (event != LineReader::Event::line) return 1;
    const Expected<protocol::Request> request = protocol::decode_request(line);
    const Status sent = request.ok() ? server.handle(*request) : server.reply(protocol::Error{request.status()});
    if (!sent.ok()) return 1;
  }
}

}  // namespace saccade::tuner
