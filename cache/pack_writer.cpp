#include "cache/pack_writer.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "cache/key.h"

namespace saccade::cache {
namespace {

constexpr std::chrono::milliseconds kPatience{5000};

}  // namespace

Expected<std::unique_ptr<PackWriter>> PackWriter::create(const std::string& path) {
  SACCADE_ASSIGN(TemporaryFile file, TemporaryFile::create_beside(path));
  std::unique_ptr<PackWriter> writer(new PackWriter(std::move(file)));
  const std::string& name = writer->file_.name();
  Outcome outcome = Database::create(name, /*use_wal=*/false, deadline_in(kPatience));
  if (outcome == Outcome::ok) outcome = Database::open(name, Access::write, deadline_in(kPatience), &writer->database_);
  if (outcome == Outcome::ok) outcome = writer->database_->begin();
  if (outcome != Outcome::ok) return writer->failed(outcome);
  return writer;
}

Status PackWriter::failed(Outcome outcome) const {
  const bool is_full = outcome == Outcome::full;
  return Status::io_error(fmt::format("{} {}", file_.name(), is_full ? "does not fit on the disk" : describe(outcome)));
}

Status PackWriter::add(Table table, const std::string& key, const Row& row, std::int64_t created) {
  const Outcome outcome = database_->put(table, hash_key(key), encode(table, key, row, created, created));
  return outcome == Outcome::ok ? Status() : failed(outcome);
}

Status PackWriter::add_tuned(const TunedRow& row) {
  return add(Table::tuned, row.key, {row.tuned.schedule, row.tuned.provenance, row.label}, row.created);
}

Status PackWriter::add_binary(const std::string& key, const Binary& binary, std::string_view label) {
  return add(Table::binary, key, {binary.code, binary.metadata, std::string(label)}, 0);
}

Status PackWriter::finish() {
  if (const Outcome outcome = database_->commit(); outcome != Outcome::ok) return failed(outcome);
  database_.reset();
  return file_.keep();
}

}  // namespace saccade::cache
