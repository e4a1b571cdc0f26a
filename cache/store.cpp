// The store: memory over the user database over the packs.
#include "cache/store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <map>
#include <utility>

#include "base/log.h"
#include "cache/compile_lock.h"
#include "cache/directory.h"
#include "cache/fork.h"
#include "cache/hooks.h"
#include "cache/inspection.h"
#include "cache/memory_layer.h"
#include "cache/pack_layer.h"
#include "cache/pack_path.h"
#include "cache/user_layer.h"
#include "cache/writer.h"

namespace saccade::cache {
namespace {

constexpr std::int64_t kMaximumMemoryBytes = std::int64_t{256} << 20;  // when there is a database below
constexpr std::size_t kMaximumLabelBytes = 200;
constexpr const char* kMemory = "memory";

std::int64_t hour_of(std::int64_t seconds) { return seconds - seconds % 3600; }

class LayeredStore final : public Store, public ForkParticipant {
 public:
  LayeredStore(const Options& options, Hooks hooks);
  ~LayeredStore() override;

  std::optional<Binary> find_binary(const std::string& key, std::string* layer) override;
  void put_binary(const std::string& key, Binary binary, std::string_view label) override;
  std::optional<Tuned> find_tuned(const std::string& key, std::string* layer) override;
  void put_tuned(const std::string& key, Tuned tuned, std::string_view label) override;
  std::optional<Rejected> find_rejected(const std::string& key) override;
  void put_rejected(const std::string& key, Rejected rejected, std::string_view label) override;
  std::unique_ptr<CompileLock> lock(const std::string& key, int timeout_ms) override;
  void flush() override;
  std::vector<LayerStatistics> statistics() override;
  std::vector<Entry> list() override;
  Expected<std::vector<TunedRow>> tuned_rows(Unreadable unreadable, std::size_t most) override;
  std::vector<std::string> verify() override;
  Expected<std::int64_t> trim(std::int64_t max_bytes) override;
  std::string user_path() const override { return user_is_there_ ? user_->path() : std::string(); }

  void before_fork() override;
  void after_fork_in_parent() override;
  void after_fork_in_child() override;

 private:
  void make_user_layer(const Options& options);
  void open_layers(const Options& options);
  void leave_out(std::string reason);
  /// False in a child that was made behind our back (clone, _Fork): a mutex may be locked for ever there.
  bool is_usable() const { return getpid() == process_; }

  std::shared_ptr<const Row> find(Table table, const std::string& key, std::string* layer);
  std::shared_ptr<const Row> find_in_user(Table table, const std::string& key, const KeyHash& hash, Deadline deadline);
  std::shared_ptr<const Row> find_in_pack(PackLayer& pack, Table table, const std::string& key, const KeyHash& hash,
                                          Deadline deadline, std::int64_t* created);
  std::shared_ptr<const Row> accept(Table table, const std::string& key, StoredRow stored, const std::string& path);
  void put(Table table, const std::string& key, Row row, std::string_view label);
  void enqueue(WriteTask task);
  void touch(Table table, std::shared_ptr<const std::string> key, std::int64_t hour);
  std::shared_ptr<Writer> make_writer();
  std::list<MemoryLayer::Entry> memory_only_entries();
  /// Runs `work` on every layer that has a file.
  void inspect_layers(const std::function<Outcome(Database&, const std::string& path, bool writable)>& work,
                      const std::function<void(const std::string& path, Outcome)>& failed);

  const Hooks hooks_;
  pid_t process_;
  MemoryLayer memory_;
  std::unique_ptr<UserLayer> user_;  // null when memory only
  bool user_is_there_ = false;
  std::vector<std::unique_ptr<PackLayer>> packs_;
  std::shared_ptr<Writer> writer_;
  std::vector<std::string> left_out_;  // why a layer is not there
};

LayeredStore::LayeredStore(const Options& options, Hooks hooks)
    : hooks_(std::move(hooks)), process_(getpid()), memory_(kMaximumMemoryBytes) {
  if (!options.memory_only) make_user_layer(options);
  for (const std::string& path : options.finds_packs ? pack_files(options.packs) : options.packs)
    packs_.push_back(std::make_unique<PackLayer>(path));
  writer_ = make_writer();
  // Whole before it is registered, and registered before SQLite is called: another thread may fork at any time.
  register_for_fork(this);
  open_layers(options);
}

LayeredStore::~LayeredStore() {
  if (!is_usable()) {
    // Only the parent's threads could bring these to rest; a leak in a child that is about to exec is the lesser evil.
    static_cast<void>(new auto(std::move(writer_)));
    static_cast<void>(user_.release());
    for (auto& pack : packs_) static_cast<void>(pack.release());
    return;
  }
  writer_->stop();
  if (user_ != nullptr) user_->close();
  for (const auto& pack : packs_) pack->close();
  unregister_for_fork(this);
}

void LayeredStore::leave_out(std::string reason) {
  log::warn_once(fmt::format("cache: {}", reason));
  left_out_.push_back(std::move(reason));
}

void LayeredStore::make_user_layer(const Options& options) {
  const std::string chosen = choose_directory(options.directory);
  if (chosen.empty())
    return leave_out(
        "there is no folder for it (HOME is not set, or this is a set-user-id program), so kernels stay in "
        "memory; set SACCADE_CACHE_DIR");
  if (options.read_only && access(chosen.c_str(), F_OK) != 0) return;  // nothing to read is no fault
  Expected<std::string> directory = prepare_directory(chosen, !options.read_only);
  if (!directory) return leave_out(fmt::format("{}; kernels stay in memory", directory.status().message()));
  UserLayer::Settings settings;
  settings.read_only = options.read_only;
  settings.use_wal = hooks_.is_local_file_system(*directory);
  settings.directory = *std::move(directory);
  settings.max_bytes = options.max_bytes;
  settings.hooks = hooks_;
  user_ = std::make_unique<UserLayer>(std::move(settings));
}

void LayeredStore::open_layers(const Options& options) {
  if (user_ != nullptr) {
    const Outcome outcome = user_->open();
    user_is_there_ = outcome == Outcome::ok;
    if (!user_is_there_ && !(options.read_only && outcome == Outcome::missing))
      leave_out(fmt::format("{} {}; kernels stay in memory", user_->path(), describe(outcome)));
  }
  if (packs_.empty()) return;
  Expected<TrustedKeys> trusted = trusted_keys(options.trusted_keys);
  if (!trusted.ok()) return leave_out(fmt::format("{}; no pack is opened", trusted.status().message()));
  trusted->require_signature = trusted->require_signature || options.require_signature;
  for (const auto& pack : packs_)
    if (const Status status = pack->open(*trusted); !status)
      leave_out(fmt::format("{}; it is left out", status.message()));
}

std::shared_ptr<Writer> LayeredStore::make_writer() {
  return std::make_shared<Writer>([this](const std::vector<WriteTask>& tasks) { user_->write(tasks); });
}

void LayeredStore::enqueue(WriteTask task) {
  if (user_ == nullptr || !user_->is_writable()) return;
  if (!writer_->enqueue(std::move(task)))
    log::warn_once("cache: entries come faster than they can be written; some are not kept");
}

void LayeredStore::touch(Table table, std::shared_ptr<const std::string> key, std::int64_t hour) {
  WriteTask task;
  task.kind = WriteTask::Kind::touch;
  task.table = table;
  task.key = std::move(key);
  task.last_used = hour;
  enqueue(std::move(task));
}

std::shared_ptr<const Row> LayeredStore::accept(Table table, const std::string& key, StoredRow stored,
                                                const std::string& path) {
  auto row = std::make_shared<Row>();
  switch (decode(table, key, std::move(stored), row.get())) {
    case Decoded::ok: return row;
    case Decoded::other_key:
      log::info(log::Topic::cache, fmt::format("{}: another key has the same hash", path));
      break;
    case Decoded::damaged: log::warn_once(fmt::format("cache: {} {}", path, describe(Outcome::bad_row))); break;
  }
  return nullptr;
}

std::shared_ptr<const Row> LayeredStore::find_in_user(Table table, const std::string& key, const KeyHash& hash,
                                                      Deadline deadline) {
  StoredRow stored;
  const Outcome outcome = user_->find(table, hash, deadline, &stored);
  if (outcome == Outcome::corrupt && user_->is_recoverable()) {
    WriteTask task;
    task.kind = WriteTask::Kind::recover;
    writer_->enqueue(std::move(task));  // warns when it is done
  } else if (outcome != Outcome::ok && outcome != Outcome::missing) {
    user_->warn(outcome);
  }
  if (outcome != Outcome::ok) return nullptr;
  const std::int64_t last_used = stored.last_used;
  std::shared_ptr<const Row> row = accept(table, key, std::move(stored), user_->path());
  const std::int64_t hour = hour_of(hooks_.now());
  if (row != nullptr && last_used != hour) touch(table, std::make_shared<const std::string>(key), hour);
  return row;
}

std::shared_ptr<const Row> LayeredStore::find_in_pack(PackLayer& pack, Table table, const std::string& key,
                                                      const KeyHash& hash, Deadline deadline, std::int64_t* created) {
  StoredRow stored;
  const Outcome outcome = pack.find(table, hash, deadline, &stored);
  if (outcome != Outcome::ok && outcome != Outcome::missing)
    log::warn_once(fmt::format("cache: {} {}", pack.path(), describe(outcome)));
  *created = stored.created;
  return outcome == Outcome::ok ? accept(table, key, std::move(stored), pack.path()) : nullptr;
}

std::shared_ptr<const Row> LayeredStore::find(Table table, const std::string& key, std::string* layer) {
  if (!is_usable()) return nullptr;
  const std::int64_t hour = hour_of(hooks_.now());
  MemoryLayer::Entry entry;
  if (memory_.find(table, key, hour, &entry)) {
    const bool is_in_user = user_is_there_ && (entry.layer == kMemory || entry.layer == user_->path());
    if (is_in_user && entry.last_used != hour) touch(table, entry.key, hour);
    if (layer != nullptr) *layer = entry.layer;
    return entry.row;
  }
  const KeyHash hash = hooks_.hash(key);
  const Deadline deadline = deadline_in(kReadTimeout);
  if (user_is_there_) {
    entry.row = find_in_user(table, key, hash, deadline);
    entry.layer = user_->path();
  }
  const bool is_of_user = entry.row != nullptr;
  std::int64_t newest = 0;
  for (const auto& pack : packs_) {
    // Binaries of a key are all the same; of winners the last one counts. What a pack rejects is not asked for: it could reject all.
    if (is_of_user || table == Table::rejected || (table != Table::tuned && entry.row != nullptr)) break;
    std::int64_t created = 0;
    std::shared_ptr<const Row> row = find_in_pack(*pack, table, key, hash, deadline, &created);
    if (row == nullptr || (entry.row != nullptr && created <= newest)) continue;
    entry.row = std::move(row);
    entry.layer = pack->path();
    newest = created;
  }
  if (entry.row == nullptr) return nullptr;
  if (layer != nullptr) *layer = entry.layer;
  entry.table = table;
  entry.key = std::make_shared<const std::string>(key);
  entry.last_used = hour;
  std::shared_ptr<const Row> row = entry.row;
  memory_.put(std::move(entry));
  return row;
}

void LayeredStore::put(Table table, const std::string& key, Row row, std::string_view label) {
  if (!is_usable()) return;
  row.label = label.substr(0, kMaximumLabelBytes);
  MemoryLayer::Entry entry;
  entry.table = table;
  entry.key = std::make_shared<const std::string>(key);
  entry.row = std::make_shared<const Row>(std::move(row));
  entry.layer = kMemory;
  const std::int64_t now = hooks_.now();
  entry.last_used = hour_of(now);

  WriteTask task;
  task.table = table;
  task.key = entry.key;
  task.row = entry.row;
  task.created = now;
  task.last_used = entry.last_used;
  const auto largest =
      static_cast<std::int64_t>(std::max({key.size(), entry.row->content.size(), entry.row->details.size()}));
  memory_.put(std::move(entry));
  if (largest <= most_bytes(table)) enqueue(std::move(task));
}

std::optional<Binary> LayeredStore::find_binary(const std::string& key, std::string* layer) {
  const auto row = find(Table::binary, key, layer);
  if (row == nullptr) return std::nullopt;
  return Binary{row->content, row->details};
}

std::optional<Tuned> LayeredStore::find_tuned(const std::string& key, std::string* layer) {
  const auto row = find(Table::tuned, key, layer);
  if (row == nullptr) return std::nullopt;
  return Tuned{row->content, row->details};
}

std::optional<Rejected> LayeredStore::find_rejected(const std::string& key) {
  const auto row = find(Table::rejected, key, nullptr);
  if (row == nullptr) return std::nullopt;
  return Rejected{row->content};
}

void LayeredStore::put_binary(const std::string& key, Binary binary, std::string_view label) {
  put(Table::binary, key, {std::move(binary.code), std::move(binary.metadata), {}}, label);
}

void LayeredStore::put_tuned(const std::string& key, Tuned tuned, std::string_view label) {
  put(Table::tuned, key, {std::move(tuned.schedule), std::move(tuned.provenance), {}}, label);
}

void LayeredStore::put_rejected(const std::string& key, Rejected rejected, std::string_view label) {
  put(Table::rejected, key, {std::move(rejected.reason), {}, {}}, label);
}

std::unique_ptr<CompileLock> LayeredStore::lock(const std::string& key, int timeout_ms) {
  if (!is_usable() || !user_is_there_ || !user_->is_writable()) return nullptr;
  const Deadline deadline = deadline_in(std::chrono::milliseconds{std::max(timeout_ms, 0)});
  return take_compile_lock(user_->directory(), hooks_.hash(key), deadline, writer_);
}

void LayeredStore::flush() {
  if (is_usable()) writer_->flush();
}

void LayeredStore::inspect_layers(const std::function<Outcome(Database&, const std::string& path, bool writable)>& work,
                                  const std::function<void(const std::string& path, Outcome)>& failed) {
  const auto report = [&](const std::string& path, Outcome outcome) {
    if (outcome != Outcome::ok) failed(path, outcome);
  };
  if (user_is_there_)
    report(user_->path(),
           user_->inspect([&](Database& database) { return work(database, user_->path(), user_->is_writable()); }));
  for (const auto& pack : packs_)
    if (pack->is_open())
      report(pack->path(), pack->inspect([&](Database& database) { return work(database, pack->path(), false); }));
}

std::list<MemoryLayer::Entry> LayeredStore::memory_only_entries() {
  return user_is_there_ ? std::list<MemoryLayer::Entry>() : memory_.snapshot();
}

std::vector<LayerStatistics> LayeredStore::statistics() {
  std::vector<LayerStatistics> layers;
  if (!is_usable()) return layers;
  flush();
  if (!user_is_there_) {
    LayerStatistics statistics;
    statistics.path = kMemory;
    statistics.writable = true;
    for (const MemoryLayer::Entry& entry : memory_only_entries()) {
      if (entry.layer != kMemory) continue;  // a pack's row, counted there
      statistics.binaries += entry.table == Table::binary;
      statistics.tuned += entry.table == Table::tuned;
      statistics.rejected += entry.table == Table::rejected;
      if (entry.table == Table::binary) statistics.binary_bytes += static_cast<std::int64_t>(entry.row->content.size());
    }
    layers.push_back(std::move(statistics));
  }
  inspect_layers(
      [&](Database& database, const std::string& path, bool writable) {
        LayerStatistics statistics;
        statistics.path = path;
        statistics.writable = writable;
        statistics.file_bytes = file_bytes(path);
        const Outcome outcome = count_rows(database, &statistics);
        layers.push_back(std::move(statistics));
        return outcome;
      },
      [](const std::string& path, Outcome outcome) {
        log::warn_once(fmt::format("cache: {} {}", path, describe(outcome)));
      });
  return layers;
}

std::vector<Entry> LayeredStore::list() {
  std::vector<Entry> entries;
  if (!is_usable()) return entries;
  flush();
  for (const MemoryLayer::Entry& entry : memory_only_entries())
    if (entry.layer == kMemory)
      entries.push_back({name_of(entry.table), kMemory, entry.row->label,
                         static_cast<std::int64_t>(entry.row->content.size()), entry.last_used});
  inspect_layers([&](Database& database, const std::string& path, bool) { return list_rows(database, path, &entries); },
                 [](const std::string& path, Outcome outcome) {
                   log::warn_once(fmt::format("cache: {} {}", path, describe(outcome)));
                 });
  return entries;
}

Expected<std::vector<TunedRow>> LayeredStore::tuned_rows(Unreadable unreadable, std::size_t most) {
  std::vector<TunedRow> rows;
  if (!is_usable()) return Status::io_error("the cache was opened by another process, and this one was not forked");
  flush();
  const bool fails = unreadable == Unreadable::fails;
  if (fails && !left_out_.empty()) return Status::io_error(fmt::format("{}", fmt::join(left_out_, "; ")));
  if (!user_is_there_ && packs_.empty() && memory_only_entries().empty())
    return Status::not_found("there is no database to read");
  for (const MemoryLayer::Entry& entry : memory_only_entries())
    if (entry.layer == kMemory && entry.table == Table::tuned)
      rows.push_back(
          {*entry.key, {entry.row->content, entry.row->details}, entry.row->label, kMemory, entry.last_used});
  std::string failure;
  inspect_layers(
      [&](Database& database, const std::string& path, bool) { return read_tuned_rows(database, path, most, &rows); },
      [&](const std::string& path, Outcome outcome) { failure = fmt::format("{} {}", path, describe(outcome)); });
  if (fails && !failure.empty()) return Status::io_error(failure);
  std::map<std::string_view, const TunedRow*> best;  // layers come in the order in which they are looked at
  for (const TunedRow& row : rows) {
    const auto [place, is_new] = best.try_emplace(row.key, &row);
    const bool is_of_pack = place->second->layer != kMemory && place->second->layer != user_path();
    if (!is_new && is_of_pack && row.created > place->second->created) place->second = &row;
  }
  std::vector<TunedRow> winners;
  winners.reserve(best.size());
  for (const auto& [key, row] : best) winners.push_back(*row);
  return winners;
}

std::vector<std::string> LayeredStore::verify() {
  if (!is_usable()) return {};
  flush();
  std::vector<std::string> faults = left_out_;
  inspect_layers([&](Database& database, const std::string& path,
                     bool) { return verify_rows(database, path, hooks_.hash, &faults); },
                 [&](const std::string& path, Outcome outcome) {
                   faults.push_back(fmt::format("{} {}", path, describe(outcome)));
                 });
  return faults;
}

Expected<std::int64_t> LayeredStore::trim(std::int64_t max_bytes) {
  if (!is_usable()) return Status::io_error("the cache was opened by another process, and this one was not forked");
  if (!user_is_there_) {
    return Status::not_found(left_out_.empty() ? "the cache is in memory only: there is no database to trim"
                                               : fmt::format("no database to trim: {}", fmt::join(left_out_, "; ")));
  }
  flush();
  return user_->trim(std::max<std::int64_t>(max_bytes, 0));
}

void LayeredStore::before_fork() {
  if (user_ != nullptr) user_->before_fork();
  for (const auto& pack : packs_) pack->before_fork();
  memory_.lock();
}

void LayeredStore::after_fork_in_parent() {
  memory_.unlock();
  for (const auto& pack : packs_) pack->after_fork();
  if (user_ != nullptr) user_->after_fork_in_parent();
}

void LayeredStore::after_fork_in_child() {
  memory_.unlock();
  for (const auto& pack : packs_) pack->after_fork();
  if (user_ != nullptr) user_->after_fork_in_child();
  // The writer's thread is not here, and its mutex and conditions are in no known state. The parent writes what is
  // queued.
  static auto* const abandoned = new std::vector<std::shared_ptr<Writer>>;
  abandoned->push_back(std::move(writer_));
  writer_ = make_writer();
  process_ = getpid();
}

}  // namespace

Hooks default_hooks() {
  return {&hash_key, [] { return static_cast<std::int64_t>(std::time(nullptr)); }, &is_on_local_file_system};
}

std::unique_ptr<Store> open_store(const Options& options, Hooks hooks) {
  return std::make_unique<LayeredStore>(options, std::move(hooks));
}

std::unique_ptr<Store> Store::open(const Options& options) { return open_store(options, default_hooks()); }

}  // namespace saccade::cache
