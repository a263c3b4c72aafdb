// Memory that the ranks of a node share: the barrier before each iteration, the flags of peer copies, and what each
// rank is doing, for the watchdog.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "fabricbench/world.hpp"

namespace fabricbench {

class NodeShared {
 public:
  explicit NodeShared(const World& world);
  ~NodeShared();
  NodeShared(const NodeShared&) = delete;
  NodeShared& operator=(const NodeShared&) = delete;

  // All ranks of the world. A rank that begins a transfer waits until its partners have left the barrier (`wait_for`;
  // it is in the partners' `notify`), so that no clock measures who left first.
  void barrier(const std::vector<int>& wait_for = {}, const std::vector<int>& notify = {});

  // A message without content to another rank of the world: through this memory, or to another node by MPI.
  void signal(int destination);
  void await(int source);

  // Progress of this rank: counts upwards, a step for each thing begun or ended.
  void advance() { mine().progress.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t progress_of(int node_rank) const { return slots_[node_rank].progress.load(std::memory_order_relaxed); }

  // What this rank drives, for whoever has to say that it hangs; empty before it was said.
  void leave_device(const std::string& text);
  std::string device_of(int node_rank) const;

  // One line about what failed on a rank of this node, and its kind (of the result file's errors), for the rank that
  // writes the result file.
  void leave_message(const char* kind, const char* text);
  bool message_of(int node_rank, char* text, std::size_t length) const;
  std::string kind_of_message(int node_rank) const { return slots_[node_rank].kind; }

  // That this rank ends because it was told to, so that it is not the one that was lost.
  void leave_told() { mine().told.store(1, std::memory_order_release); }
  // The first rank of this node whose process is gone without a word; -1 for none. May be called by a signal handler.
  int lost_rank() const;
  // Whether somebody stopped the process of a rank of this node (SIGSTOP), as the kernel has it.
  bool is_stopped(int node_rank) const;

 private:
  static constexpr std::size_t kLine = 128;  // two cache lines: neighbours are fetched in pairs
  struct alignas(kLine) Counter {
    std::atomic<std::uint64_t> value;
  };
  struct alignas(kLine) Slot {
    alignas(kLine) std::atomic<std::uint64_t> arrived;
    alignas(kLine) std::atomic<std::uint64_t> left;
    alignas(kLine) std::atomic<std::uint64_t> released;
    alignas(kLine) std::atomic<std::uint64_t> progress;
    std::atomic<int> has_device;
    char device[64];
    std::atomic<int> has_message;
    char kind[16];
    char message[512];
    std::atomic<int> told;
    std::atomic<int> process;
    std::atomic<std::uint64_t> process_space;  // in which that number holds
  };

  void map(const char* name, int flags);
  // The number of the process of a rank of this node, or 0 where it means nothing here.
  int process_of(int node_rank) const;
  Slot& mine() { return slots_[world_.node_rank]; }
  Counter& flag(int source, int destination) { return flags_[source * world_.node_size + destination]; }
  void send_to(int rank, int tag) const;
  void receive_from(int rank, int tag) const;
  template <typename Condition>
  void spin_until(Condition&& done) const;

  const World& world_;
  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  Slot* slots_ = nullptr;
  Counter* flags_ = nullptr;
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> received_;
  std::uint64_t generation_ = 0;
  bool yields_ = false;
};

}  // namespace fabricbench
