#include "cli/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <concepts>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "cli/named_rules.h"
#include "cli/numbers.h"
#include "generator/family.h"
#include "runtime/cpu/thread_check.h"

namespace saccade::cli {
namespace {

constexpr const char* kExitCodes =
    "Exit codes:\n"
    "  0    success\n"
    "  1    a file could not be read or written, a compiler or device failed\n"
    "  2    the command line, a problem, a schedule or a tensor is wrong\n"
    "  3    well formed, but no kernel does it here, or the device is missing\n"
    "  4    a result failed verification\n"
    "  130  interrupted; what was finished is kept\n";

constexpr std::int64_t kMaxSize = std::int64_t{1} << 40;  // beyond what any problem may have
constexpr int kMaxHeadDim = 1 << 16;

/// CLI11 itself would read 010 as 8, and take 0x10, +5 and " 5".
template <class Number>
CLI::Validator number(Number least, Number most) {
  const std::string range = fmt::format("{} to {}", least, most);
  return CLI::Validator(
      [=](const std::string& text) {
        const auto value = number_from<Number>(text);
        if (value && *value >= least && *value <= most) return std::string();
        return fmt::format("'{}' is not a{} number from {}", text, std::integral<Number> ? " whole decimal" : "",
                           range);
      },
      range);
}

/// "100,512,37"
void add_lengths(CLI::App& app, const std::string& name, std::vector<std::int64_t>& lengths, const std::string& help) {
  const auto read = [&lengths](const std::string& text) {
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const auto length = number_from<std::int64_t>(std::string_view(text).substr(begin, end - begin));
      if (!length) throw CLI::ValidationError(fmt::format("'{}' is no list of lengths such as 100,512,37", text));
      lengths.push_back(*length);
      begin = end + 1;
    }
  };
  app.add_option_function<std::string>(name, read, help)->type_name("N,N,...")->group("Sizes");
}

/// Flags that take a list take one value each time they are given.
void add_list(CLI::App& app, const std::string& name, std::vector<std::string>& values, const std::string& help,
              const std::string& type) {
  app.add_option(name, values, help)->type_name(type)->allow_extra_args(false);
}

void add_common(CLI::App& app, Options& options) {
  app.add_flag("--json", options.json, "print one JSON document instead of text");
  app.add_flag("--progress", options.progress, "report progress even where stderr is no terminal");
}

void add_problem(CLI::App& app, Options& options, bool with_sizes) {
  ProblemOptions& p = options.problem;
  const std::string group = "Problem";
  auto* const problem =
      app.add_option("--problem", p.problem, "the problem as a JSON file or inline JSON")->group(group);
  std::vector<CLI::Option*> exclusive;
  exclusive.push_back(app.add_option("--dtype", p.dtype, "f32, f16 or bf16 (default f32)"));
  exclusive.push_back(
      app.add_option("--head-dim", p.head_dim, "of Q and K (default 64)")->check(number(1, kMaxHeadDim)));
  exclusive.push_back(
      app.add_option("--head-dim-v", p.head_dim_v, "of V and O (default: as Q and K)")->check(number(1, kMaxHeadDim)));
  exclusive.push_back(app.add_option("--mask", p.mask, "a mask by name, or an expression that is true for kept keys")
                          ->type_name("RULE")
                          ->allow_extra_args(false));
  exclusive.push_back(app.add_option("--score", p.score, "a score rule by name, or an expression of score")
                          ->type_name("RULE")
                          ->allow_extra_args(false));
  exclusive.push_back(app.add_option("--layout", p.layout, "dense (default) or varlen"));
  exclusive.push_back(app.add_flag("--lse", p.lse, "also the log-sum-exp of each row"));
  for (CLI::Option* const option : exclusive) option->group(group)->excludes(problem);
  app.add_option("--scalar", p.scalars, "a number that rules may use: NAME=VALUE or NAME:TYPE=VALUE (i32, i64, f32)")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--table", p.tables,
                 "a table that rules may index: NAME=FILE.npy, NAME=FILE.safetensors[:TENSOR], or NAME:DTYPE:RANK "
                 "without values")
      ->type_name("NAME=FILE")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--scale", p.scale, "s = scale * q.k (default 1/sqrt(head_dim))")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return number_from<double>(text) ? "" : fmt::format("'{}' is no number", text);
          },
          ""))
      ->group(group);
  const std::string sizes = "Sizes";
  add_lengths(app, "--lengths", p.lengths, "varlen: the sequences' lengths");
  add_lengths(app, "--lengths-kv", p.lengths_kv, "varlen: the lengths of K and V, where they differ");
  if (!with_sizes) return;
  const auto size = number(std::int64_t{0}, kMaxSize);
  const auto at_least_one = number(std::int64_t{1}, kMaxSize);
  app.add_option("--batch", p.batch, "sequences (default 1)")->check(size)->group(sizes);
  app.add_option("--heads", p.heads, "query heads (default 8)")->check(size)->group(sizes);
  app.add_option("--heads-kv", p.heads_kv, "key and value heads (default: as many)")->check(at_least_one)->group(sizes);
  app.add_option("--seqlen", p.seqlen, "queries and keys (default 1024)")->check(size)->group(sizes);
  app.add_option("--seqlen-q", p.seqlen_q, "queries")->check(size)->group(sizes);
  app.add_option("--seqlen-kv", p.seqlen_kv, "keys")->check(size)->group(sizes);
}

void add_cache(CLI::App& app, Options& options) {
  EngineFlags& e = options.engine;
  const std::string group = "Cache";
  auto* const directory =
      app.add_option(
             "--cache-dir", e.cache_dir,
             "folder of the user database (default $SACCADE_CACHE_DIR, $XDG_CACHE_HOME/saccade, ~/.cache/saccade)")
          ->type_name("FOLDER")
          ->group(group);
  app.add_flag("--no-cache", e.no_cache, "neither read nor write the cache")->group(group)->excludes(directory);
}

constexpr const char* kMachine = "Machine";

void add_machine(CLI::App& app, EngineFlags& e, const char* devices = "cpu (default), cuda or cuda:N") {
  app.add_option("--device", e.device, devices)->group(kMachine);
  app.add_option("--threads", e.threads, "CPU threads (default: all)")
      ->check(number(0, cpu::most_threads()))
      ->group(kMachine);
}

void add_engine(CLI::App& app, Options& options, bool with_tuning) {
  EngineFlags& e = options.engine;
  add_machine(app, e);
  app.add_option("--arch", e.arch,
                 "restrict the CPU to avx2 or avx512; emit and compile: also sm_80 ... sm_120a, without a GPU")
      ->group(kMachine);
  app.add_option("--schedule", e.schedule, "use this schedule: JSON or a JSON file")
      ->type_name("JSON")
      ->group(kMachine);
  if (with_tuning)
    app.add_option("--tuning", e.tuning, "off (cost model), quick (2 s), normal (15 s) or exhaustive")->group(kMachine);
  add_cache(app, options);
}

void add_doctor(CLI::App& app, Options& options) {
  CLI::App* const command = app.add_subcommand("doctor", "What is found on this machine, and how to fix what is not");
  add_common(*command, options);
  add_cache(*command, options);
  command->footer("Example:\n  saccade doctor\n  saccade doctor --json");
}

void add_demo(CLI::App& app, Options& options) {
  CLI::App* const command = app.add_subcommand(
      "demo", "Real attention problems: chosen, compiled, verified, timed (a second run compiles nothing)");
  add_common(*command, options);
  DemoOptions& d = options.demo;
  command->add_option("--tuning", options.engine.tuning, "off, quick (default), normal or exhaustive");
  command->add_option("--threads", options.engine.threads, "CPU threads (default: all)")
      ->check(number(0, cpu::most_threads()));
  command->add_option("--data", d.data, "minilm_qkv.safetensors (default: where the build or the package has it)")
      ->type_name("FILE");
  add_list(*command, "--only", d.only, "run the problems whose name contains this", "TEXT");
  command->add_option("--seed", options.seed, "of the random inputs (default 1)")
      ->check(number(std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()));
  add_cache(*command, options);
  command->footer("Examples:\n  saccade demo\n  saccade demo --only llama --tuning off --cache-dir /tmp/cache");
}

void add_run(CLI::App& app, Options& options) {
  CLI::App* const command = app.add_subcommand("run", "Attention of Q, K, V from .npy or .safetensors files");
  add_common(*command, options);
  RunOptions& r = options.run;
  const std::string group = "Tensors";
  command->add_option("--input", r.input, "a .safetensors file with Q, K and V")->type_name("FILE")->group(group);
  command->add_option("--q", r.q_file, "file of Q: [batch, heads, seqlen, head_dim], varlen [total, heads, head_dim]")
      ->type_name("FILE")
      ->group(group);
  command->add_option("--k", r.k_file, "file of K")->type_name("FILE")->group(group);
  command->add_option("--v", r.v_file, "file of V")->type_name("FILE")->group(group);
  command->add_option("--q-name", r.q_name, "name of Q in .safetensors (default q)")->group(group);
  command->add_option("--k-name", r.k_name, "name of K (default k)")->group(group);
  command->add_option("--v-name", r.v_name, "name of V (default v)")->group(group);
  command->add_option("--order", r.tensor_order, "axes of dense tensors: bhsd (default) or bshd")
      ->check(CLI::IsMember({"bhsd", "bshd"}))
      ->group(group);
  command->add_option("--output", r.output, "write O: .npy, or .safetensors with o (and lse)")
      ->type_name("FILE")
      ->group(group);
  command->add_option("--lse-output", r.lse_output, "write the log-sum-exp to a .npy file")
      ->type_name("FILE")
      ->group(group);
  command->add_flag("--verify", r.verify, "check O (and LSE) against a float64 computation");
  add_problem(*command, options, false);
  add_engine(*command, options, true);
  command->footer(
      "Sizes, dtype and head_dim are the tensors'. .npy has no bf16: use .safetensors for it.\n\n"
      "Examples:\n"
      "  saccade run --input qkv.safetensors --mask causal --output o.safetensors --lse --verify\n"
      "  saccade run --q q.npy --k k.npy --v v.npy --score softcap:50 --output o.npy\n"
      "  saccade run --input tests/data/minilm_qkv.safetensors --q-name layer0.q --k-name layer0.k --v-name layer0.v "
      "\\\n"
      "    --table valid=tests/data/minilm_qkv.safetensors --mask padding:valid --verify\n\n" +
      rule_names_help());
}

void add_build(CLI::App& app, Options& options) {
  BuildOptions& b = options.build;
  CLI::App* const emit = app.add_subcommand("emit", "Print the source of the kernel for a problem");
  add_common(*emit, options);
  emit->add_option("-o,--output", b.output, "write the source to a file")->type_name("FILE");
  add_problem(*emit, options, true);
  add_engine(*emit, options, false);
  emit->footer(
      "Without --schedule the cost model chooses, for the sizes given.\n\nExamples:\n"
      "  saccade emit --arch sm_90a --dtype bf16 --head-dim 128 --mask causal-br\n"
      "  saccade emit --mask 'q_idx - kv_idx < window && kv_idx <= q_idx' --scalar window:i32 -o kernel.cpp\n\n" +
      rule_names_help());
  CLI::App* const compile = app.add_subcommand(
      "compile", "Compile the kernel for a problem; print registers, spills, shared memory and time");
  add_common(*compile, options);
  compile->add_flag("--all-archs", b.all_archs, "for every CUDA architecture, without a GPU");
  compile->add_option("-o,--output", b.binary_output, "write the cubin or object to a file")->type_name("FILE");
  add_problem(*compile, options, true);
  add_engine(*compile, options, false);
  compile->footer(
      "Examples:\n"
      "  saccade compile --arch sm_90a --dtype bf16 --head-dim 128 --mask causal-br\n"
      "  saccade compile --all-archs --dtype f16 --score softcap:30 --json\n\n" +
      rule_names_help());
}

void add_tune(CLI::App& app, Options& options) {
  CLI::App* const command =
      app.add_subcommand("tune", "Measure schedules for a problem and keep the fastest in the cache");
  add_common(*command, options);
  add_problem(*command, options, true);
  add_engine(*command, options, true);
  command->footer(
      "The default policy is normal. Ctrl-C stops the race; the best so far is kept.\n\nExamples:\n"
      "  saccade tune --dtype bf16 --head-dim 128 --heads 32 --heads-kv 8 --seqlen 2048 --mask causal-br\n"
      "  saccade tune --device cuda --tuning exhaustive --dtype f16 --seqlen 8192\n\n" +
      rule_names_help());
}

void add_sweep(CLI::App& app, Options& options) {
  CLI::App* const command = app.add_subcommand(
      "sweep", "Measure schedules for all problems of a profile; what is measured already is left out");
  add_common(*command, options);
  SweepFlags& s = options.sweep;
  command->add_option("profiles", s.profiles, "JSON profiles, captures, or names of profiles that come with Saccade")
      ->type_name("FILE")
      ->required();
  command->add_flag("--dry-run", s.dry_run, "say what would be measured and for how long, and measure nothing");
  command->add_flag("--again", s.again, "also measure what the cache has a winner for");
  command
      ->add_option("--budget", s.budget,
                   "seconds; a problem whose race they cut short is measured again next time (default: none)")
      ->check(number(0.0, 1e9));
  command
      ->add_option("--shard", s.shard,
                   "part I of N, from 0; \"auto\" takes both from Slurm, Open MPI or MPICH (PMI) variables")
      ->type_name("I/N");
  command->add_option("--log", s.log, "append each race to this file, for `saccade report`")->type_name("FILE");
  add_machine(*command, options.engine, "cpu (default), cuda, cuda:N, several between commas, or cuda:all");
  command->add_option("--tuning", options.engine.tuning, "quick (2 s a problem), normal (15 s, default) or exhaustive")
      ->group(kMachine);
  add_cache(*command, options);
  command->footer(
      "Each winner is kept as soon as it is known: start a sweep that was interrupted again, and it goes on.\n\n"
      "Examples:\n"
      "  saccade sweep --dry-run llama-3 qwen\n"
      "  saccade sweep --device cuda --tuning exhaustive --budget 3600 captured.jsonl\n"
      "  sbatch --array=0-7 --wrap \"saccade sweep --device cuda --shard auto llama-3\"");
}

void add_report(CLI::App& app, Options& options) {
  CLI::App* const command =
      app.add_subcommand("report", "One HTML page of a sweep: winners, gains, noise, where the time went");
  add_common(*command, options);
  command->add_option("logs", options.report.logs, "logs of `saccade sweep --log`, of one kind of device")
      ->type_name("FILE")
      ->required();
  command->add_option("--output", options.report.output, "the page to write")->type_name("FILE")->required();
  command->footer("The page needs no network.\n\nExample:\n  saccade report sweep.log --output sweep.html");
}

void add_bench(CLI::App& app, Options& options) {
  CLI::App* const command =
      app.add_subcommand("bench", "Time the chosen schedule, and the cost model's, on random inputs");
  add_common(*command, options);
  command->add_option("--seconds", options.bench.seconds, "time to measure each (default 1)")
      ->check(number(0.0, 600.0));
  command->add_option("--seed", options.seed, "of the random inputs (default 1)")
      ->check(number(std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()));
  add_problem(*command, options, true);
  add_engine(*command, options, true);
  command->footer(
      "GFLOP/s count 2 (head_dim_qk + head_dim_v) for each pair that the mask keeps.\n\nExamples:\n"
      "  saccade bench --dtype f32 --head-dim 64 --heads 12 --seqlen 1024 --mask causal --tuning quick\n"
      "  saccade bench --dtype bf16 --seqlen-q 1 --seqlen-kv 8192 --heads 32 --heads-kv 8 --head-dim 128\n\n" +
      rule_names_help());
}

void add_explain(CLI::App& app, Options& options) {
  CLI::App* const command =
      app.add_subcommand("explain", "Why this kernel: families, ranked schedules with their costs, what the cache has");
  add_common(*command, options);
  add_problem(*command, options, true);
  add_engine(*command, options, true);
  command->footer(
      "Compiles and measures nothing.\n\nExamples:\n"
      "  saccade explain --dtype bf16 --head-dim 128 --mask causal-br --seqlen 4096\n"
      "  saccade explain --arch sm_90a --dtype bf16 --head-dim 256 --score softcap:50 --heads 16 --heads-kv 8\n\n" +
      rule_names_help());
}

void add_pack_commands(CLI::App& command, Options& options) {
  CacheOptions& c = options.cache;
  const auto add = [&](const char* name, const char* help, const char* files_help, const char* example) {
    CLI::App* const action = command.add_subcommand(name, help);
    add_common(*action, options);
    action->footer(std::string("Example:\n  saccade cache ") + example);
    action->callback([&options, name] { options.cache.action = name; });
    return std::pair(action, action->add_option("files", c.files, files_help)->type_name("FILE")->required());
  };
  const auto with_output = [&](CLI::App* action) {
    action->add_option("--output", c.output, "the file to write")->type_name("FILE")->required();
  };
  with_output(add("merge", "One file of rows from several: of each key the one measured last", "of export",
                  "merge old.jsonl new.jsonl --output h200.jsonl")
                  .first);
  add("diff", "What changes from one file of rows to another", "of export: before, after", "diff old.jsonl new.jsonl")
      .second->expected(2);
  CLI::App* const pack = add("pack", "Make a read-only pack from files of rows", "of export",
                             "pack h200.jsonl --output h200.pack --binaries")
                             .first;
  with_output(pack);
  pack->add_flag("--binaries", c.binaries, "with the kernels of CUDA rows, compiled by this machine's NVRTC");
  add_cache(*pack, options);
  add("keygen", "Make a pair of keys, NAME.key and NAME.pub", "what to call them", "keygen fleet")
      .second->type_name("NAME")
      ->expected(1);
  CLI::App* const sign =
      add("sign", "Sign packs: each gets a FILE.sig beside it", "packs", "sign h200.pack --key fleet.key").first;
  sign->add_option("--key", c.key, "file of the secret key")->type_name("FILE")->required();
}

void add_cache_commands(CLI::App& app, Options& options) {
  CLI::App* const command = app.add_subcommand("cache", "Look at, check and shrink the cache");
  command->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, const char* example) {
    CLI::App* const action = command->add_subcommand(name, help);
    add_common(*action, options);
    action->footer(std::string("Example:\n  saccade cache ") + example);
    action->add_option("--cache-dir", options.engine.cache_dir, "folder of the user database")->type_name("FOLDER");
    add_list(*action, "--pack", options.cache.packs, "a read-only database below the user's", "FILE");
    action->callback([&options, name] { options.cache.action = name; });
    return action;
  };
  add("stat", "Paths, sizes and counts of each layer", "stat");
  add("ls", "Every entry", "ls");
  add("verify", "Read every row and check it; exit code 4 when one is damaged, or a pack is refused",
      "verify --pack h200.pack");
  CLI::App* const trim = add("trim", "Evict the least recently used binaries", "trim --max-size 200M");
  trim->add_option("--max-size", options.cache.max_size, "what may stay, such as 200M (units K, M, G)")
      ->type_name("SIZE")
      ->required();
  CLI::App* const export_rows = add(
      "export", "Write the tuned schedules as text: JSON lines, sorted, for git and other hosts", "export h200.jsonl");
  export_rows->add_option("file", options.cache.files, "the file to write")->type_name("FILE")->required()->expected(1);
  CLI::App* const import_rows =
      add("import", "Put tuned schedules of such files into the user's cache", "import h200.jsonl");
  import_rows->add_option("files", options.cache.files, "files that export wrote")->type_name("FILE")->required();
  import_rows->add_flag("--replace", options.cache.replace, "also where the user's cache has another winner");
  add_pack_commands(*command, options);
  command->footer(
      "Examples:\n  saccade cache stat\n  saccade cache trim --max-size 200M\n"
      "  saccade cache export h200.jsonl\n  saccade cache import h200.jsonl\n"
      "  saccade cache merge old.jsonl new.jsonl --output h200.jsonl\n"
      "  saccade cache pack h200.jsonl --output h200.pack --binaries\n"
      "  saccade cache keygen fleet && saccade cache sign h200.pack --key fleet.key");
}

/// Every flag alike: an empty value is a mistake (of a script's unset variable, mostly), and so is a value of a switch.
void refuse_empty_values(CLI::App& app) {
  const CLI::Validator filled([](const std::string& text) { return text.empty() ? "its value is empty" : ""; }, "");
  for (CLI::Option* const option : app.get_options()) {
    if (option->get_items_expected_max() == 0) {
      option->disable_flag_override();
    } else {
      option->check(filled);
    }
  }
  for (CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; }))
    refuse_empty_values(*command);
}

void parse(CLI::App& app, int argc, char** argv) {
  for (const std::string argument : std::span(argv, static_cast<std::size_t>(argc)).subspan(argc > 0 ? 1 : 0)) {
    // CLI11 would take the next argument as the value.
    if (argument.starts_with('-') && argument.find('=') == argument.size() - 1)
      throw CLI::ValidationError(argument, "its value is empty");
  }
  app.parse(argc, argv);
}

}  // namespace

Expected<bool> parse_arguments(int argc, char** argv, Options& options) {
  CLI::App app("Fused attention kernels, generated, tuned and cached at run time", "saccade");
  app.set_version_flag("--version", fmt::format("saccade {}", kGeneratorVersion));
  app.require_subcommand(1);
  app.footer(std::string("Examples:\n"
                         "  saccade doctor\n"
                         "  saccade run --input qkv.safetensors --mask causal --output o.safetensors --verify\n"
                         "  saccade compile --arch sm_90a --dtype bf16 --head-dim 128 --mask causal-br\n\n"
                         "saccade COMMAND --help has the flags and examples of a command.\n\n") +
             kExitCodes);
  add_doctor(app, options);
  add_demo(app, options);
  add_run(app, options);
  add_build(app, options);
  add_tune(app, options);
  add_sweep(app, options);
  add_report(app, options);
  add_bench(app, options);
  add_explain(app, options);
  add_cache_commands(app, options);
  refuse_empty_values(app);
  try {
    parse(app, argc, argv);
  } catch (const CLI::Success& success) {
    app.exit(success);
    return false;
  } catch (const CLI::ParseError& error) {
    // What was parsed until then may lack it.
    options.json = std::any_of(argv, argv + argc, [](std::string_view argument) { return argument == "--json"; });
    const auto commands = app.get_subcommands();
    return Status::invalid_argument(fmt::format("{}\nsaccade {}--help says more", error.what(),
                                                commands.empty() ? "" : commands.front()->get_name() + " "));
  }
  options.command = app.get_subcommands().front()->get_name();
  return true;
}

}  // namespace saccade::cli
