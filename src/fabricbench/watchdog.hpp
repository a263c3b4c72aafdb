// Ends a run that hangs, and says who did not arrive.
#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fabricbench/node_shared.hpp"
#include "fabricbench/pauses.hpp"
#include "fabricbench/results.hpp"
#include "fabricbench/world.hpp"

namespace fabricbench {

// How long MPI may take to start and its ranks to meet, and each part of the set-up; with thousands of ranks a minute
// more for each thousand.
inline double start_limit_s(double timeout_s, int ranks) { return timeout_s * (1 + ranks / 1000.0); }

// Seconds: `still`, that a rank may make no progress; `whole`, that the plan may take, or 0.
struct TimeLimits {
  double still_s;
  double whole_s;
};

// A thread that makes no MPI call: it looks at what the ranks of its node count in shared memory. Where this rank's own
// count stands still for too long, or for even longer in the set-up, it writes the error record (rank 0), prints which
// ranks are behind, and ends the process; so it does where the plan takes longer than it may. It also records what a
// rank of the node left as its last message.
// `ras_library`: whose RAS (ras.hpp) rank 0 then asks for what it knows: "NCCL", "RCCL", or empty for none.
class Watchdog {
 public:
  Watchdog(const World& world, NodeShared& shared, ResultFile* results, TimeLimits limits, std::string ras_library);
  ~Watchdog();

  // What is prepared from now on, for messages; a text that stays.
  void prepares(const char* what) { preparing_.store(what); }
  // The preparation is over: from here on pauses count.
  void measures();
  // Of this rank since then.
  Pauses pauses();

 private:
  double limit_s() const {
    return preparing_ != nullptr ? start_limit_s(limits_.still_s, world_.size) : limits_.still_s;
  }
  void watch();
  [[noreturn]] void expire_still();
  [[noreturn]] void expire(const std::string& message, const std::vector<int>& behind);
  void ask_library(const std::string& warned, double limit_s);
  std::vector<int> ranks_behind() const;
  std::string place_of(const std::vector<int>& ranks) const;
  bool speaks_for_node(const std::vector<int>& behind) const;

  const World& world_;
  NodeShared& shared_;
  ResultFile* results_;
  TimeLimits limits_;
  std::atomic<const char*> preparing_{nullptr};
  std::string ras_library_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  Pauses pauses_;
  std::int64_t throttled_before_ns_ = 0;
  std::chrono::steady_clock::time_point measures_since_{};
  std::thread thread_;
};

// While this lives a fatal signal leaves an error record and a line on stderr.
class SignalHandlers {
 public:
  SignalHandlers(const World& world, NodeShared& shared, ResultFile* results);
  ~SignalHandlers();
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace fabricbench
