// The result file (docs/formats.md) and the table on stdout.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fabricbench/clock_faults.hpp"
#include "fabricbench/plan.hpp"
#include "fabricbench/progress.hpp"

namespace fabricbench {

// What went on beside a victim: of each attack the time of a repetition.
struct Aggressor {
  std::vector<int> ranks;
  std::uint64_t bytes = 0;  // --aggressor-size
  std::vector<std::int64_t> times_ns;
};

// One samples record.
struct Record {
  Operation operation;
  Implementation implementation;
  Schedule schedule;
  int round;
  std::vector<int> ranks;
  std::uint64_t bytes;
  std::int64_t warmup;
  const char* stopped;
  std::int64_t wrong_bytes;
  std::vector<std::int64_t> times_ns;
  Shape shape;
  std::size_t kept_of = 0;  // where times_ns are order statistics: of how many iterations
  double rank_error = 0;    // of these
  std::optional<Aggressor> aggressor;
  std::vector<std::int64_t> cold_ns = {};  // of the same iterations; of ping-pongs that are timed warm
  std::uint64_t verified_after = 0;        // every byte had to arrive in one of so many iterations; 0: not verified
};

// The same with order statistics in place of its times.
Record reduced(Record record);

struct Totals {
  std::size_t records = 0;
  std::uint64_t samples = 0;
  std::int64_t wrong_bytes = 0;
  std::int64_t wall_ns = 0;
  std::int64_t timed_ns = 0;
  std::int64_t setup_ns = 0;
  std::int64_t verify_ns = 0;
  std::int64_t recording_ns = 0;
  std::int64_t windows = 0;       // of a burn-in
  std::int64_t wrong_words = 0;   // of its products
  std::int64_t wrong_beside = 0;  // bytes of its traffic
  std::vector<ClockFault> clock_faults;
};

// Only rank 0 has one. An empty path writes no file.
class ResultFile {
 public:
  // Refuses to write over an existing file.
  ResultFile(const std::string& path, std::string run_id);
  ~ResultFile();
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;

  const std::string& run_id() const { return run_id_; }
  void write_line(const std::string& line);
  void write(const Record& record, std::size_t index);
  void write_footer(const Totals& totals, const std::string& proof, const std::map<std::string, std::string>& settings);

  // An error record; only the first one of a run is written, and no footer after it. Callable from any thread.
  // Whether it was this one.
  bool write_error(const std::string& kind, const std::string& message, const std::vector<int>& missing_ranks = {});
  // Adds to the record of the last write_error, which was written, what the library says. It is in the file before
  // that, since whoever asks a library may be ended meanwhile.
  void add_to_error(const std::string& library);
  // What write_error and the signal handler say was being measured.
  void now_measuring(const Measurement& measurement);
  void now_measuring_nothing();
  // Only what a signal handler may do.
  // What a signal did: this rank's `own` fault, else it came from outside; `lost`: the rank that was gone before, or
  // -1.
  void write_crash(int signal, bool own, int lost) noexcept;

 private:
  void put(const char* text, std::size_t length) noexcept;
  void begin(Progress progress);

  std::string path_;
  std::string run_id_;
  int file_ = -1;
  std::atomic<bool> closed_{false};
  CurrentProgress current_;
  // Two of each, so that one is whole while the other is being written: a signal handler can take no lock.
  struct CrashLines {
    char own[512];
    char outside[512];
    char lost[512];
  };
  CrashLines crash_lines_[2] = {};
  std::atomic<int> crash_line_{0};
};

// First the run and its MPI library, by which a check knows its own result file (fabricheck.results.guards).
void print_table_head(const std::string& run_id, const std::string& mpi_library);
void print_table_row(const Record& record);

}  // namespace fabricbench
