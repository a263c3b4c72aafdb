// Ends a run that hangs, and says who did not arrive.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "fabricbench/node_shared.hpp"
#include "fabricbench/results.hpp"
#include "fabricbench/world.hpp"

namespace fabricbench {

// How long a part of the set-up may take in seconds, where an iteration may take `timeout_s`: large jobs need minutes.
inline double setup_limit_s(double timeout_s, int ranks) { return 5 * timeout_s * (1 + ranks / 1000.0); }

// A thread that makes no MPI call: it looks at what the ranks of its node count in shared memory. Where this rank's own
// count stands still for `timeout_s`, or for longer in the set-up, it writes the error record (rank 0), prints which
// ranks are behind, and ends the process. It also records what a rank of the node left as its last message.
// `ras_library`: whose RAS (ras.hpp) rank 0 then asks for what it knows: "NCCL", "RCCL", or empty for none.
class Watchdog {
 public:
  Watchdog(const World& world, NodeShared& shared, ResultFile* results, double timeout_s, std::string ras_library);
  ~Watchdog();

  // What is prepared from now on, for messages; a text that stays.
  void prepares(const char* what) { preparing_.store(what); }
  // The preparation is over.
  void measures() { preparing_.store(nullptr); }

 private:
  double limit_s() const { return preparing_ != nullptr ? setup_limit_s(timeout_s_, world_.size) : timeout_s_; }
  void watch();
  [[noreturn]] void expire();
  void ask_library(const std::string& warned, double limit_s);
  std::vector<int> ranks_behind() const;
  std::string place_of(const std::vector<int>& ranks) const;
  bool speaks_for_node(const std::vector<int>& behind) const;

  const World& world_;
  NodeShared& shared_;
  ResultFile* results_;
  double timeout_s_;
  std::atomic<const char*> preparing_{nullptr};
  std::string ras_library_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

// From here on a fatal signal leaves an error record and a line on stderr.
void install_signal_handlers(const World& world, NodeShared& shared, ResultFile* results);

}  // namespace fabricbench
