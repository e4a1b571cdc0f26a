#include "runtime/binaries.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "runtime/once.h"

namespace saccade {
namespace {

using Clock = std::chrono::steady_clock;

// Several times what a compile takes (NVRTC: 1 s, Clang: 0.3 s): a process that holds the lock longer is stuck, and
// compiling twice beats waiting for it.
constexpr int kLockTimeoutMs = 5000;

// What the store calls the layer of what this process put itself.
constexpr char kInMemory[] = "memory";

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::string metadata_of(const CompiledBinary& binary, const Compiler& compiler) {
  const nlohmann::json json = {{"registers", binary.registers},     {"spill_bytes", binary.spill_bytes},
                               {"stack_bytes", binary.stack_bytes}, {"static_shared_bytes", binary.static_shared_bytes},
                               {"compile_ms", binary.compile_ms},   {"compiler", compiler.identity()},
                               {"generator", kGeneratorVersion}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Provenance only: whatever it is damaged into, the code beside it has passed its own checksum.
void read_metadata(const std::string& metadata, CompiledBinary& binary) {
  const nlohmann::json json = nlohmann::json::parse(metadata, nullptr, false);
  if (!json.is_object()) return;
  const auto integer = [&](const char* name) {
    const auto field = json.find(name);
    return field != json.end() && field->is_number_integer() ? field->get<std::int64_t>() : 0;
  };
  binary.registers = static_cast<int>(integer("registers"));
  binary.spill_bytes = integer("spill_bytes");
  binary.stack_bytes = integer("stack_bytes");
  binary.static_shared_bytes = integer("static_shared_bytes");
}

std::string kernel_key(const Device& device, const std::string& binary_key, const std::vector<Launch>& launches,
                       bool use_cache) {
  cache::KeyBuilder key;
  key.add("device", static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(&device))).add("binary", binary_key);
  key.add("cached", use_cache ? 1 : 0);
  for (const Launch& launch : launches) key.add(launch.symbol, launch.shared_bytes);
  return key.bytes();
}

}  // namespace

Binaries::Job::Job(const BuildRequest& given)
    : request(given),
      compiler(compiler_for(given.target.kind)),
      key(compiler.ok() ? binary_key(given.source, given.target, **compiler) : ""),
      pack_key(pack_binary_key(given.source, given.target)) {}

std::optional<ObtainedBinary> Binaries::from_cache(const Job& job) {
  std::string layer;
  std::optional<cache::Binary> found;
  if (!job.key.empty()) found = store_.find_binary(job.key, &layer);
  if (!found) found = store_.find_binary(job.pack_key, &layer);
  if (!found) return std::nullopt;
  ++counters_.cache_hits;
  ObtainedBinary obtained;
  obtained.binary.code = std::move(found->code);
  read_metadata(found->metadata, obtained.binary);
  if (layer.empty() || layer == kInMemory) {
    obtained.source = kInMemory;
  } else {
    obtained.source = layer == store_.user_path() ? "user cache" : "pack " + layer;
  }
  log::info(log::Topic::cache, fmt::format("binary from {}, {} bytes", obtained.source, obtained.binary.code.size()));
  return obtained;
}

Binaries::BinaryResult Binaries::compile(const Job& job) {
  const BuildRequest& request = job.request;
  SACCADE_ASSIGN(const Compiler* compiler, job.compiler);
  log::info(log::Topic::compile, fmt::format("compiling {} for {}", request.label, request.target.arch));
  SACCADE_ASSIGN(CompiledBinary binary, compiler->compile(request.source, request.target));
  ++counters_.compiled;
  counters_.compile_ms += binary.compile_ms;
  log::info(log::Topic::compile, fmt::format("compiled {} in {:.0f} ms: {} registers, {} bytes spilled", request.label,
                                             binary.compile_ms, binary.registers, binary.spill_bytes));
  if (request.use_cache) store_.put_binary(job.key, {binary.code, metadata_of(binary, *compiler)}, request.label);
  return std::make_shared<const ObtainedBinary>(ObtainedBinary{std::move(binary), "compiled"});
}

Binaries::BinaryResult Binaries::find_or_compile(const Job& job) {
  if (!job.request.use_cache) return compile(job);
  if (auto found = from_cache(job)) return std::make_shared<const ObtainedBinary>(std::move(*found));
  if (!job.compiler.ok()) return job.compiler.status();
  // Another process may be compiling the same: wait for it, then look again. Its entry may stay invisible (network file
  // systems); then this process compiles too and uses its own binary.
  const std::unique_ptr<cache::CompileLock> lock = store_.lock(job.key, kLockTimeoutMs);
  if (lock != nullptr) {
    if (auto found = from_cache(job)) return std::make_shared<const ObtainedBinary>(std::move(*found));
  }
  BinaryResult result = compile(job);
  if (lock != nullptr && result.ok()) store_.flush();  // so that whoever gets the lock next finds the binary
  return result;
}

Binaries::BinaryResult Binaries::obtain(const Job& job) {
  return once<std::shared_ptr<const ObtainedBinary>>(mutex_, compiling_, job.pack_key, Keep::while_running,
                                                     [&] { return find_or_compile(job); });
}

Expected<ObtainedBinary> Binaries::obtain(const BuildRequest& request) {
  SACCADE_ASSIGN(auto binary, obtain(Job(request)));
  return *binary;
}

Binaries::KernelResult Binaries::load_once(const std::shared_ptr<const Device>& device, const Job& job,
                                           const std::vector<Launch>& launches) {
  SACCADE_ASSIGN(auto obtained, obtain(job));
  Clock::time_point start = Clock::now();
  Expected<std::shared_ptr<const Kernel>> kernel = device->load(obtained->binary.code, launches);
  if (!kernel.ok() && !job.compiler.ok())
    return Status(kernel.status().code(),
                  fmt::format("{} ({}), and it cannot be compiled again: {}", kernel.status().message(),
                              obtained->source, job.compiler.status().message()));
  if (!kernel.ok() && obtained->source != "compiled") {
    log::warn_once(fmt::format("a cached binary ({}) does not load and is compiled again: {}", obtained->source,
                               kernel.status().message()));
    SACCADE_ASSIGN(obtained, compile(job));
    start = Clock::now();
    kernel = device->load(obtained->binary.code, launches);
  }
  if (!kernel.ok()) return kernel.status();
  LoadedKernel loaded;
  loaded.device = device;
  loaded.kernel = std::move(*kernel);
  loaded.usage = obtained->binary;
  loaded.usage.code.clear();
  loaded.usage.log.clear();
  loaded.binary_source = obtained->source;
  loaded.compile_ms = obtained->source == "compiled" ? obtained->binary.compile_ms : 0;
  loaded.load_ms = milliseconds_since(start);
  return std::make_shared<const LoadedKernel>(std::move(loaded));
}

Expected<LoadedKernel> Binaries::load(const std::shared_ptr<const Device>& device, const BuildRequest& request,
                                      const std::vector<Launch>& launches) {
  const Job job(request);
  bool made = false;
  SACCADE_ASSIGN(auto loaded, once<std::shared_ptr<const LoadedKernel>>(
                                  mutex_, kernels_, kernel_key(*device, job.pack_key, launches, request.use_cache),
                                  Keep::when_ok, [&] {
                                    made = true;
                                    return load_once(device, job, launches);
                                  }));
  LoadedKernel result = *loaded;
  if (!made) {
    result.binary_source = kInMemory;
    result.compile_ms = result.load_ms = 0;
  }
  return result;
}

}  // namespace saccade
