// What keeps an aggressor going beside its victims without a pause for as long as they need.
#pragma once

#include "fabricbench/plan.hpp"
#include "fabricbench/transports/transport.hpp"
#include "fabricbench/world.hpp"

namespace fabricbench {

// The aggressors repeat their pattern in windows of several repetitions, all of whose messages are under way at a time.
// After the first window their first rank tells the first victim, and once that has told it that all victims are done
// with as many iterations as they have in a turn, all aggressors end after the same window. What is said goes by MPI
// messages without content.
class Contention {
 public:
  // Collective over all ranks of the world.
  Contention(const World& world, NodeShared& shared, const Measurement& measurement);
  ~Contention();
  Contention(const Contention&) = delete;
  Contention& operator=(const Contention&) = delete;

  bool is_victim() const { return victims_ != MPI_COMM_NULL; }
  bool is_aggressor() const { return aggressors_ != MPI_COMM_NULL; }

  // Of a victim: until the aggressors are under way, and once its turn beside them is over.
  void await_attack();
  void end_attack();
  // Of a victim: before its stamps are new, as others may still be reading what it sent, and before its clock starts.
  void meet();
  void begin();
  // Of an aggressor: repeats `work` until the victims are done. Nanoseconds of all of it.
  std::int64_t attack(Work& work);
  // On all ranks: the nanoseconds of a repetition in each attack so far.
  std::vector<std::int64_t> repetition_times();
  void forget_attacks() { repetition_ns_.clear(); }

 private:
  const World& world_;
  NodeShared& shared_;
  MPI_Comm victims_ = MPI_COMM_NULL;
  MPI_Comm aggressors_ = MPI_COMM_NULL;
  int first_victim_;
  int first_aggressor_;
  std::vector<int> wait_for_;
  std::vector<int> notify_;
  std::int64_t window_;
  std::vector<std::int64_t> repetition_ns_;  // on the first aggressor
};

}  // namespace fabricbench
