// Device-device copy (De Sensi et al., SC24, section III-A): the processes of a node share handles of their buffers and
// copy straight into each other's device memory. The receiver learns of it through a flag in shared host memory.
#include <algorithm>
#include <map>
#include <string>

#include "fabricbench/errors.hpp"
#include "fabricbench/transports/transport.hpp"

namespace fabricbench {
namespace {

// The buffers of a rank of the node, as this process sees them.
struct Peer {
  std::byte* send;
  std::byte* receive;
};

class Copy final : public Transport {
 public:
  explicit Copy(bool for_a_step) : for_a_step_(for_a_step) {}
  bool has_library(Operation) const override { return false; }
  bool has_transfers(Operation operation) const override { return operation != Operation::sparse_alltoallv; }
  void set_up(const Context& context) override;
  std::unique_ptr<Work> prepare(const Measurement& measurement, const Group& group) override;

  const Context& context() const { return *context_; }
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }

 private:
  bool for_a_step_;
  const Context* context_ = nullptr;
  std::vector<device::PeerMemory> opened_;
  std::vector<Peer> peers_;
};

// A stream for each peer, so that copies to all of them go at the same time. New for each measurement, so that none
// depends on those before it: with streams that all measurements shared, an allgather of 512 MiB on four H200 gave
// 4,100 Gb/s after an alltoall and 2,500 after ping-pongs, as if streams first used one by one kept one copy engine.
class StreamsToPeers {
 public:
  void add(int rank) { streams_.try_emplace(rank); }
  device::Stream& to(int rank) { return streams_.at(rank); }

 private:
  std::map<int, device::Stream> streams_;
};

class CopiedTransfers final : public Work {
 public:
  CopiedTransfers(const Group& group, Copy& copy) : copy_(copy) {
    for (const Step& step : group.steps) {
      steps_.push_back(own_transfers(step, copy.context().world.rank));
      for (const Transfer& sent : steps_.back().sent) streams_.add(sent.destination);
    }
  }
  void run() override {
    for (const OwnTransfers& own : steps_) run(own);
  }

 private:
  void run(const OwnTransfers& own) {
    const Context& context = copy_.context();
    for (const Transfer& sent : own.sent) {
      streams_.to(sent.destination)
          .copy(copy_.peer(sent.destination).receive + sent.destination_offset, source_of(sent, context), sent.bytes);
    }
    for (const Transfer& sent : own.sent) {
      streams_.to(sent.destination).synchronize();
      if (sent.destination != context.world.rank) context.shared.signal(context.world.node_rank_of(sent.destination));
    }
    for (const Transfer& received : own.received) {
      if (received.source != context.world.rank) context.shared.await(context.world.node_rank_of(received.source));
    }
  }

  Copy& copy_;
  std::vector<OwnTransfers> steps_;
  StreamsToPeers streams_;
};

// Reductions: a kernel reads the contributions of all ranks straight from their memory and adds them. allreduce is the
// papers' reference: reduce on the first GPU, then copy the sums to all others.
class CopiedReduction final : public Work {
 public:
  CopiedReduction(const Measurement& measurement, const Group& group, Copy& copy)
      : operation_(measurement.operation), bytes_(measurement.bytes), ranks_(group.ranks), copy_(copy) {
    const Context& context = copy.context();
    const std::uint64_t share = bytes_ / ranks_.size();
    const auto place =
        static_cast<std::uint64_t>(std::find(ranks_.begin(), ranks_.end(), context.world.rank) - ranks_.begin());
    const std::uint64_t offset = operation_ == Operation::reduce_scatter ? place * share : 0;
    elements_ = (operation_ == Operation::reduce_scatter ? share : bytes_) / sizeof(float);
    if (operation_ == Operation::allreduce && context.world.rank == ranks_[0]) {
      for (std::size_t i = 1; i < ranks_.size(); ++i) streams_.add(ranks_[i]);
    }
    for (const int rank : ranks_) inputs_.push_back(reinterpret_cast<const float*>(copy.peer(rank).send + offset));
  }
  void run() override {
    const Context& context = copy_.context();
    const bool is_root = context.world.rank == ranks_[0];
    if (operation_ == Operation::reduce_scatter || is_root) {
      context.stream.sum(reinterpret_cast<float*>(context.receive.data()), inputs_, elements_);
      context.stream.synchronize();
    }
    if (operation_ != Operation::allreduce) return;
    if (!is_root) return context.shared.await(ranks_[0]);
    for (std::size_t i = 1; i < ranks_.size(); ++i)
      streams_.to(ranks_[i]).copy(copy_.peer(ranks_[i]).receive, context.receive.data(), bytes_);
    for (std::size_t i = 1; i < ranks_.size(); ++i) {
      streams_.to(ranks_[i]).synchronize();
      context.shared.signal(ranks_[i]);
    }
  }

 private:
  Operation operation_;
  std::uint64_t bytes_;
  std::vector<int> ranks_;
  Copy& copy_;
  std::vector<const float*> inputs_;
  std::size_t elements_ = 0;
  StreamsToPeers streams_;
};

void Copy::set_up(const Context& context) {
  context_ = &context;
  const World& world = context.world;
  if (world.node_count > 1 && !for_a_step_) {
    throw InputError("the copy transport works inside one node and this run has " + std::to_string(world.node_count) +
                     ": start all ranks on one node");
  }
  struct Handles {
    device::IpcHandle send;
    device::IpcHandle receive;
  };
  const Handles mine{device::export_memory(context.send), device::export_memory(context.receive)};
  std::vector<Handles> all(static_cast<std::size_t>(world.size));
  mpi_check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, world.all), "MPI_Allgather");
  for (int rank = 0; rank < world.size; ++rank) {
    if (rank == world.rank) {
      peers_.push_back({context.send.data(), context.receive.data()});
      continue;
    }
    if (!world.on_this_node(rank)) {
      peers_.push_back({nullptr, nullptr});
      continue;
    }
    const Handles& handles = all[static_cast<std::size_t>(rank)];
    opened_.emplace_back(handles.send);
    std::byte* send = opened_.back().data();
    opened_.emplace_back(handles.receive);
    peers_.push_back({send, opened_.back().data()});
  }
}

std::unique_ptr<Work> Copy::prepare(const Measurement& measurement, const Group& group) {
  for (const Step& step : group.steps) {
    const OwnTransfers own = own_transfers(step, context_->world.rank);
    for (const Transfer& sent : own.sent) {
      if (!context_->world.on_this_node(sent.destination))
        throw RunError("input", "the copy transport works inside one node and " + to_string(measurement.operation) +
                                    " goes from node to node: choose another transport for this step");
    }
  }
  if (is_reduction(measurement.operation)) return std::make_unique<CopiedReduction>(measurement, group, *this);
  return std::make_unique<CopiedTransfers>(group, *this);
}

}  // namespace

std::unique_ptr<Transport> make_copy(bool for_a_step) { return std::make_unique<Copy>(for_a_step); }

}  // namespace fabricbench
