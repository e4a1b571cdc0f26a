#include "cache/pack_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cache/key.h"

namespace saccade::cache {
namespace {

constexpr std::chrono::milliseconds kPatience{5000};

}  // namespace

Expected<std::unique_ptr<PackWriter>> PackWriter::create(const std::string& path) {
  std::unique_ptr<PackWriter> writer(new PackWriter(path));
  writer->remove_temporary();
  Outcome outcome = Database::create(writer->temporary_, /*use_wal=*/false, deadline_in(kPatience));
  if (outcome == Outcome::ok)
    outcome = Database::open(writer->temporary_, Access::write, deadline_in(kPatience), &writer->database_);
  if (outcome == Outcome::ok) outcome = writer->database_->begin();
  if (outcome != Outcome::ok) return writer->failed(outcome);
  return writer;
}

PackWriter::~PackWriter() {
  if (database_ == nullptr) return;
  database_.reset();
  remove_temporary();
}

Status PackWriter::failed(Outcome outcome) const {
  return Status::io_error(fmt::format("{} {}", temporary_, describe(outcome)));
}

void PackWriter::remove_temporary() const {
  std::remove(temporary_.c_str());
  std::remove((temporary_ + "-journal").c_str());
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
  const auto broken = [&] {
    const int error = errno;
    remove_temporary();
    return Status::io_error(fmt::format("{} cannot be written ({})", path_, std::strerror(error)));
  };
  const int descriptor = open(temporary_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return broken();
  const bool synced = fsync(descriptor) == 0;
  close(descriptor);
  // Readable by all, writable by the owner alone: what check_pack_file() asks for.
  if (!synced || chmod(temporary_.c_str(), 0644) != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0)
    return broken();
  return {};
}

}  // namespace saccade::cache
