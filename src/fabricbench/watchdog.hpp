// Ends a run that hangs, and says who did not arrive.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "fabricbench/node_shared.hpp"
#include "fabricbench/results.hpp"
#include "fabricbench/world.hpp"

namespace fabricbench {

// A thread that makes no MPI call: it looks at what the ranks of its node count in shared memory. Where this rank's own
// count stands still for `timeout_s`, it writes the error record (rank 0), prints which ranks are behind, and ends the
// process. It also records what a rank of the node left as its last message. `ras_library`: whose RAS (ras.hpp) rank 0
// then asks for what it knows: "NCCL", "RCCL", or empty for none.
class Watchdog {
 public:
  Watchdog(const World& world, NodeShared& shared, ResultFile* results, double timeout_s, std::string ras_library);
  ~Watchdog();

 private:
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
  std::string ras_library_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

// From here on a fatal signal leaves an error record and a line on stderr.
void install_signal_handlers(const World& world, NodeShared& shared, ResultFile* results);

}  // namespace fabricbench
