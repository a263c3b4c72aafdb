// What keeps an aggressor going beside its victims for exactly as long as they need.
#pragma once

#include "fabricbench/plan.hpp"
#include "fabricbench/transports/transport.hpp"
#include "fabricbench/world.hpp"

namespace fabricbench {

// The aggressors repeat their pattern. Once it is under way, which is after its first repetition, their first rank
// tells the first victim, and once that has told it that all victims are done, all aggressors end after the same
// repetition. What is said goes by MPI messages without content.
class Contention {
 public:
  // Collective over all ranks of the world.
  Contention(const World& world, NodeShared& shared, const Measurement& measurement);
  ~Contention();
  Contention(const Contention&) = delete;
  Contention& operator=(const Contention&) = delete;

  bool is_victim() const { return victims_ != MPI_COMM_NULL; }
  bool is_aggressor() const { return aggressors_ != MPI_COMM_NULL; }

  // Of a victim: before its clock starts, and after it has stopped. `beside`: whether the aggressors are there.
  void begin(bool beside);
  void end(bool beside);
  // Of an aggressor: repeats `work` until the victims are done.
  void attack(Work& work);

 private:
  const World& world_;
  NodeShared& shared_;
  MPI_Comm victims_ = MPI_COMM_NULL;
  MPI_Comm aggressors_ = MPI_COMM_NULL;
  int first_victim_;
  int first_aggressor_;
  std::vector<int> wait_for_;
  std::vector<int> notify_;
};

}  // namespace fabricbench
