#include "fabricbench/results.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "fabricbench/errors.hpp"
#include "fabricbench/json.hpp"
#include "fabricbench/loaded.hpp"
#include "fabricbench/statistics.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

constexpr char kNumberPlace[] = "##";
constexpr std::size_t kFewRanks = 8;

double one_way(const Record& record, double ns) { return is_round_trip(record.operation) ? ns / 2 : ns; }

std::string who(const Record& record) {
  const std::vector<int>& ranks = record.ranks;
  if (record.shape.groups > 0) return to_string(record.shape);
  if (is_victim(record.operation)) return "victims " + std::to_string(ranks.size());
  if (is_memory_path(record.operation) && ranks.size() <= kFewRanks) return format_ranges(ranks);
  if (!is_pair_operation(record.operation)) return "all " + std::to_string(ranks.size());
  return std::to_string(ranks[0]) + (is_symmetric(record.operation) ? "<>" : "->") + std::to_string(ranks[1]);
}

void progress_json(Json& json, const Progress& progress) {
  if (progress.operation.empty()) {
    json.key("operation").null().key("bytes").null();
  } else {
    json.field("operation", progress.operation).field("bytes", progress.bytes);
  }
}

}  // namespace

ResultFile::ResultFile(const std::string& path, std::string run_id) : path_(path), run_id_(std::move(run_id)) {
  if (path.empty()) return;
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) {
    throw InputError(errno == EEXIST ? "--output " + path + " exists already: choose another name"
                                     : "--output " + path + " cannot be written: " + std::strerror(errno));
  }
  begin({});
}

ResultFile::~ResultFile() {
  if (file_ >= 0) close(file_);
}

void ResultFile::put(const char* text, std::size_t length) noexcept {
  while (file_ >= 0 && length > 0) {
    const ssize_t written = ::write(file_, text, length);
    if (written < 0) {
      if (errno == EINTR) continue;
      return;
    }
    text += written;
    length -= static_cast<std::size_t>(written);
  }
}

void ResultFile::write_line(const std::string& line) {
  if (file_ < 0 || closed_) return;
  const std::string whole = line + '\n';
  const char* rest = whole.data();
  std::size_t left = whole.size();
  while (left > 0) {
    const ssize_t written = ::write(file_, rest, left);
    if (written < 0) {
      if (errno == EINTR) continue;
      throw RunError("library", "--output " + path_ + " cannot be written: " + std::strerror(errno));
    }
    rest += written;
    left -= static_cast<std::size_t>(written);
  }
}

Record reduced(Record record) {
  std::vector<std::int64_t> kept = order_statistics(record.times_ns);
  if (kept.size() < record.times_ns.size()) {
    record.kept_of = record.times_ns.size();
    record.rank_error = rank_error(record.times_ns);
    record.times_ns = std::move(kept);
    record.cold_ns = order_statistics(record.cold_ns);
  }
  return record;
}

void ResultFile::write(const Record& record, std::size_t index) {
  Json json;
  json.begin_object()
      .field("record", "samples")
      .field("index", index)
      .field("operation", to_string(record.operation))
      .field("implementation", to_string(record.implementation))
      .field("schedule", to_string(record.schedule))
      .field("round", record.round)
      .field("ranks", record.ranks);
  if (record.shape.groups > 0) json.field("groups", numbers(record.shape));
  json.field("bytes", record.bytes)
      .field("warmup", record.warmup)
      .field("stopped", record.stopped)
      .field("wrong_bytes", record.wrong_bytes);
  if (record.verified_after > 0) json.field("verified_after", record.verified_after);
  if (record.kept_of > 0) json.field("iterations", record.kept_of).field("rank_error", record.rank_error);
  if (record.aggressor) {
    json.key("aggressor")
        .begin_object()
        .field("ranks", record.aggressor->ranks)
        .field("bytes", record.aggressor->bytes)
        .field("times_ns", record.aggressor->times_ns)
        .end_object();
  }
  if (!record.cold_ns.empty()) json.field("cold_times_ns", record.cold_ns);
  json.field("times_ns", record.times_ns).end_object();
  write_line(json.text());
}

void ResultFile::write_footer(const Totals& totals, const std::string& proof,
                              const std::map<std::string, std::string>& settings) {
  Json json;
  json.begin_object()
      .field("record", "footer")
      .field("run_id", run_id_)
      .field("status", "complete")
      .field("records", totals.records)
      .field("samples", totals.samples)
      .field("wrong_bytes", totals.wrong_bytes)
      .field("wall_ns", totals.wall_ns)
      .field("timed_ns", totals.timed_ns)
      .field("setup_ns", totals.setup_ns)
      .field("verify_ns", totals.verify_ns)
      .field("recording_ns", totals.recording_ns);
  if (totals.windows > 0) json.field("windows", totals.windows).field("wrong_words", totals.wrong_words);
  json.key("proof").literal(proof).key("loaded").begin_array();
  for (const LoadedLibrary& library : loaded_libraries()) {
    json.begin_object().field("path", library.path);
    if (!library.build_id.empty()) json.field("build_id", library.build_id);
    json.end_object();
  }
  json.end_array();
  if (!totals.clock_faults.empty()) json.key("clocks").begin_array();
  for (const ClockFault& fault : totals.clock_faults) {
    json.begin_object()
        .field("rank", fault.rank)
        .field("clock", fault.clock)
        .field("against", fault.against)
        .field("ratio", fault.ratio)
        .end_object();
  }
  if (!totals.clock_faults.empty()) json.end_array();
  if (!settings.empty()) {
    json.key("settings").begin_object();
    for (const auto& [name, value] : settings) json.field(name, value);
    json.end_object();
  }
  json.end_object();
  write_line(json.text());
  if (!closed_.exchange(true) && file_ >= 0 && fsync(file_) != 0 && errno != EINVAL && errno != EROFS) {
    throw RunError("library", "--output " + path_ + " could not be written to disk: " + std::strerror(errno));
  }
}

bool ResultFile::write_error(const std::string& kind, const std::string& message,
                             const std::vector<int>& missing_ranks) {
  if (closed_.exchange(true)) return false;
  Json json;
  json.begin_object().field("record", "error").field("run_id", run_id_).field("kind", kind).field("message", message);
  progress_json(json, current_.get());
  json.field("missing_ranks", missing_ranks).end_object();
  const std::string line = json.text() + '\n';
  put(line.data(), line.size());
  return true;
}

void ResultFile::add_to_error(const std::string& library) {
  Json json;
  json.begin_object().field("library", library).end_object();
  const std::string field = ',' + json.text().substr(1) + '\n';
  // In place of the record's "}\n". What cannot be sought, such as a pipe, stays as it is.
  const int flags = file_ < 0 ? -1 : fcntl(file_, F_GETFL);
  if (flags < 0 || lseek(file_, -2, SEEK_END) < 0 || fcntl(file_, F_SETFL, flags & ~O_APPEND) != 0) return;
  put(field.data(), field.size());
}

void ResultFile::now_measuring(const Measurement& measurement) {
  begin({to_string(measurement.operation), measurement.bytes});
}

void ResultFile::now_measuring_nothing() { begin({}); }

void ResultFile::begin(Progress progress) {
  const int next = 1 - crash_line_.load();
  const std::string during =
      progress.operation.empty() ? "" : " during " + progress.operation + " of " + format_size(progress.bytes);
  const std::string number(kNumberPlace);
  const auto prepare = [&](auto& line, const std::string& message, const std::string& missing_ranks) {
    Json json;
    json.begin_object().field("record", "error").field("run_id", run_id_).field("kind", "crash");
    json.field("message", message);
    progress_json(json, progress);
    json.key("missing_ranks").literal(missing_ranks).end_object();
    std::snprintf(line, sizeof line, "%s\n", json.text().c_str());
  };
  prepare(crash_lines_[next].own, "rank 0 was ended by signal " + number + during, "[]");
  prepare(crash_lines_[next].outside, "the run was ended from outside by signal " + number + during, "[]");
  prepare(crash_lines_[next].lost,
          "rank " + number + " was killed" + during + ": out of memory (dmesg), or ended by a user?",
          "[" + number + "]");
  crash_line_.store(next);
  current_.set(std::move(progress));
}

void ResultFile::write_crash(int signal, bool own, int lost) noexcept {
  if (closed_.exchange(true)) return;
  const CrashLines& lines = crash_lines_[crash_line_.load()];
  const char* line = own ? lines.own : lost >= 0 ? lines.lost : lines.outside;
  const Digits number(lost >= 0 && !own ? lost : signal);
  for (const char* place = nullptr; (place = std::strstr(line, kNumberPlace)) != nullptr;) {
    put(line, static_cast<std::size_t>(place - line));
    put(number.data(), number.size());
    line = place + std::strlen(kNumberPlace);
  }
  put(line, std::strlen(line));
}

void print_table_head(const std::string& run_id, const std::string& mpi_library) {
  std::printf("fabricbench: run %s with %s\n", run_id.c_str(), mpi_library.c_str());
  std::printf("%-25s %-12s %-9s %10s %6s %12s %12s %12s %6s %s\n", "operation", "schedule", "ranks", "size", "n",
              "median us", "median Gb/s", "Gb/s p5-p95", "+-%", "wrong");
  std::fflush(stdout);
}

void print_table_row(const Record& record) {
  std::vector<std::int64_t> sorted = record.times_ns;
  std::sort(sorted.begin(), sorted.end());
  const auto gbps = [&](double q) {
    return 8.0 * static_cast<double>(record.bytes) / one_way(record, quantile(sorted, q));
  };
  char range[32];
  std::snprintf(range, sizeof range, "%.4g-%.4g", gbps(0.95), gbps(0.05));
  char interval[16] = "-";
  const double half_width = 100 * median_interval(record.times_ns).relative_half_width();
  if (half_width < 1000) std::snprintf(interval, sizeof interval, "%.1f", half_width);
  char cold[48] = "";
  if (!record.cold_ns.empty()) {
    sorted = record.cold_ns;
    std::sort(sorted.begin(), sorted.end());
    std::snprintf(cold, sizeof cold, ", cold %.3f us", one_way(record, quantile(sorted, 0.5)) / 1000);
  }
  std::printf("%-25s %-12s %-9s %10s %6zu %12.3f %12.4g %12s %6s %lld%s\n", to_string(record.operation).c_str(),
              to_string(record.schedule).c_str(), who(record).c_str(), format_size(record.bytes).c_str(),
              record.times_ns.size(), one_way(record, quantile(sorted, 0.5)) / 1000, gbps(0.5), range, interval,
              static_cast<long long>(record.wrong_bytes), cold);
  std::fflush(stdout);
}

}  // namespace fabricbench
