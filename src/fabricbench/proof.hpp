// What the libraries themselves, and the kernel's counters, say about the path that the data took.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fabricbench/ccl_modes.hpp"
#include "fabricbench/interfaces.hpp"
#include "fabricbench/pauses.hpp"
#include "fabricbench/world.hpp"

namespace fabricbench {

// Asks NCCL/RCCL (NCCL_DEBUG) or UCX (UCX_PROTO_INFO) to write down which paths they choose, into a private log of this
// process. What the user has set already stays, and there is no evidence where no log can be made. Call it before
// MPI_Init.
class Proof {
 public:
  // May restart the program under the same process id: UCX reads its variables while it is loaded.
  Proof(const std::string& transport, char** arguments);
  ~Proof();
  Proof(const Proof&) = delete;
  Proof& operator=(const Proof&) = delete;

  // The variables that this object has set: they are not the user's.
  const std::vector<std::string>& own_variables() const { return own_variables_; }

  // Another plan of the same process begins. *CCL tells of each communicator; what UCX told, which it does once, holds
  // for all plans.
  void begin_plan() const;

  // From here on the bytes that leave each node are counted, where there are several.
  void begin_counting(const World& world);

  // JSON of the footer's `proof`, whole on rank 0; `known`: paths that the transport tells of by itself; `modes`: what
  // this rank knows of them; `pauses`: those of this rank. Collective.
  std::string collect(const World& world, const std::map<std::string, long>& known, const CclProof& modes,
                      const Pauses& pauses) const;

 private:
  std::string evidence_;
  std::string path_;
  std::vector<std::string> own_variables_;
  SentBytes sent_before_;
};

}  // namespace fabricbench
