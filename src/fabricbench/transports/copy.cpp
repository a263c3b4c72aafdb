// Device-device copy (De Sensi et al., SC24, section III-A): the processes of a node, or of an NVLink domain, share
// handles of their buffers and copy straight into each other's device memory, or out of it. The other side learns of it
// through a flag in shared host memory, or between nodes by MPI. In the same way data move between a rank's own
// memories. The `copy` transport leaves the moving to the runtime's copies, the `kernel` transport to loads and stores
// (Schieffer et al., sections IV and V-B).
#include <algorithm>
#include <optional>
#include <string>

#include "fabricbench/errors.hpp"
#include "fabricbench/transports/transport.hpp"

namespace fabricbench {
namespace {

// The buffers of a rank, as this process sees them.
struct Peer {
  std::byte* send;
  std::byte* receive;
};

class Copy final : public Transport {
 public:
  Copy(bool by_kernel, bool for_a_step, std::optional<device::Handles> wanted)
      : by_kernel_(by_kernel), for_a_step_(for_a_step), wanted_(wanted) {}
  bool has_library(Operation) const override { return false; }
  bool others_read(Operation operation) const override { return is_reduction(operation); }
  bool has_transfers(Operation operation) const override {
    return operation != Operation::sparse_alltoallv && !is_training(operation) &&
           !(by_kernel_ && is_reduction(operation));
  }
  bool reaches(const Transfer& transfer) const override {
    const int on_host =
        (transfer.source_place == Place::host ? 1 : 0) + (transfer.destination_place == Place::host ? 1 : 0);
    // A runtime copies from host to host with the processor.
    return on_host == 0 || (transfer.source == transfer.destination && (on_host == 1 || by_kernel_));
  }
  device::Memory allocate(const World& world, std::size_t bytes) override;
  void set_up(const Context& context) override;
  std::unique_ptr<Work> prepare(const Measurement& measurement, const Group& group) override;
  device::Handles handles() const override { return handles_; }

  const Context& context() const { return *context_; }
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  bool by_kernel() const { return by_kernel_; }

 private:
  // Whether this process opens the memory of the rank.
  bool opens(int rank) const { return handles_ == device::Handles::fabric || context_->world.on_this_node(rank); }

  bool by_kernel_;
  bool for_a_step_;
  std::optional<device::Handles> wanted_;
  device::Handles handles_ = device::Handles::ipc;
  const Context* context_ = nullptr;
  std::vector<device::Memory> opened_;
  std::vector<Peer> peers_;
};

class CopiedTransfers final : public Work {
 public:
  CopiedTransfers(const Group& group, Copy& copy)
      : copy_(copy),
        context_(copy.context()),
        rank_(context_.world.rank),
        reads_(context_.access == Access::read),
        migrates_(context_.host_kind == device::HostKind::migrated) {
    for (const Step& step : group.steps) {
      steps_.push_back(own_transfers(step, rank_));
      while (streams_.size() < moved(steps_.back()).size()) streams_.emplace_back();
    }
  }

  void run(std::uint64_t shift) override {
    for (const OwnTransfers& own : steps_) run(own, shift);
  }

  std::int64_t run_train(const pattern::Ring& ring) override {
    const OwnTransfers& own = steps_.front();
    const Step& mine = moved(own);
    while (clocks_.size() < mine.size()) clocks_.emplace_back();
    begin(own);
    for (std::size_t i = 0; i < mine.size(); ++i) clocks_[i].start(streams_[i]);
    for (std::size_t i = 0; i < mine.size(); ++i) move(mine[i], streams_[i], ring);
    for (std::size_t i = 0; i < mine.size(); ++i) clocks_[i].stop(streams_[i]);
    for (device::TrainClock& clock : clocks_) clock.release();
    end(own);
    std::int64_t longest = 0;
    for (std::size_t i = 0; i < mine.size(); ++i) longest = std::max(longest, clocks_[i].ns());
    return longest;
  }

  void rewind() override {
    if (!migrates_) return;
    for (const OwnTransfers& own : steps_) {
      for (const Transfer& transfer : moved(own)) {
        if (transfer.source_place == Place::host) context_.stream.migrate(source(transfer), transfer.bytes, true);
        if (transfer.destination_place != Place::host) continue;
        // What the host will draw to it lies on the device.
        context_.stream.migrate(destination(transfer), transfer.bytes, false);
        context_.stream.copy_by_kernel(destination(transfer), source(transfer), transfer.bytes, false, {});
      }
    }
    context_.stream.synchronize();
  }

 private:
  // What this rank moves of a step: all that it sends, or all that it receives.
  const Step& moved(const OwnTransfers& own) const { return reads_ ? own.received : own.sent; }

  void run(const OwnTransfers& own, std::uint64_t shift) {
    const Step& mine = moved(own);
    begin(own);
    for (std::size_t i = 0; i < mine.size(); ++i) move(mine[i], streams_[i], {}, shift);
    if (migrates_) touch(mine);
    end(own);
  }

  void begin(const OwnTransfers& own) {
    if (!reads_) return;
    // Nobody reads what an earlier step is still bringing.
    signal(own.sent, &Transfer::destination);
    await(own.received, &Transfer::source);
  }
  void end(const OwnTransfers& own) {
    const Step& mine = moved(own);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      streams_[i].synchronize();
      const int other = reads_ ? mine[i].source : mine[i].destination;
      if (other != rank_) context_.shared.signal(other);
    }
    if (reads_) {
      await(own.sent, &Transfer::destination);
    } else {
      await(own.received, &Transfer::source);
    }
  }

  void signal(const Step& step, int Transfer::* other) {
    for (const Transfer& transfer : step) {
      if (transfer.*other != rank_) context_.shared.signal(transfer.*other);
    }
  }
  void await(const Step& step, int Transfer::* other) {
    for (const Transfer& transfer : step) {
      if (transfer.*other != rank_) context_.shared.await(transfer.*other);
    }
  }

  // A kernel that moves data over a link does all operations once it has started, as nvbandwidth's does, unless a cache
  // could have what it reads a second time. Inside the device's memory one could: there it is started anew.
  void move(const Transfer& transfer, device::Stream& stream, const pattern::Ring& ring, std::uint64_t shift = 0) {
    if (migrates_ && transfer.destination_place == Place::host) return;
    std::byte* to = destination(transfer) + shift;
    const std::byte* from = source(transfer) + shift;
    const bool link = transfer.source != transfer.destination || transfer.source_place == Place::host ||
                      transfer.destination_place == Place::host;
    const bool writes = transfer.source == rank_ && transfer.source_place == Place::device;
    if (copy_.by_kernel() && link && (writes || ring.slots >= ring.operations || device::kernel_reads_pass_caches()))
      return stream.copy_by_kernel(to, from, transfer.bytes, link, ring);
    for (std::uint64_t i = 0; i < ring.operations; ++i) {
      const std::uint64_t at = ring.shift_of(i);
      if (copy_.by_kernel()) {
        stream.copy_by_kernel(to + at, from + at, transfer.bytes, link, {});
      } else {
        stream.copy(to + at, from + at, transfer.bytes);
      }
    }
  }

  // The host draws the pages of managed memory to it by using them.
  void touch(const Step& step) {
    constexpr std::uint64_t kPage = 4096;
    for (const Transfer& transfer : step) {
      if (transfer.destination_place != Place::host) continue;
      const volatile std::byte* pages = destination_of(transfer, context_);
      for (std::uint64_t i = 0; i < transfer.bytes; i += kPage) (void)pages[i];
    }
  }

  // As what moves the data addresses it.
  std::byte* source(const Transfer& transfer) const {
    if (transfer.source != rank_) {
      const Peer& peer = copy_.peer(transfer.source);
      return (transfer.relayed ? peer.receive : peer.send) + transfer.source_offset;
    }
    if (transfer.source_place == Place::host && copy_.by_kernel())
      return context_.host_send.on_device() + transfer.source_offset;
    return source_of(transfer, context_);
  }
  std::byte* destination(const Transfer& transfer) const {
    if (transfer.destination != rank_) return copy_.peer(transfer.destination).receive + transfer.destination_offset;
    if (transfer.destination_place == Place::host && copy_.by_kernel())
      return context_.host_receive.on_device() + transfer.destination_offset;
    return destination_of(transfer, context_);
  }

  Copy& copy_;
  const Context& context_;
  int rank_;
  bool reads_;
  bool migrates_;
  std::vector<OwnTransfers> steps_;
  // One for each transfer of a step, so that all of them go at the same time. New for each measurement, so that none
  // depends on those before it: with streams that all measurements shared, an allgather of 512 MiB on four H200 gave
  // 4,100 Gb/s after an alltoall and 2,500 after ping-pongs, as if streams first used one by one kept one copy engine.
  std::vector<device::Stream> streams_;
  std::vector<device::TrainClock> clocks_;  // of trains
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
      for (std::size_t i = 1; i < ranks_.size(); ++i) streams_.emplace_back();
    }
    for (const int rank : ranks_) inputs_.push_back(reinterpret_cast<const float*>(copy.peer(rank).send + offset));
  }
  void run(std::uint64_t shift) override {
    const Context& context = copy_.context();
    const bool is_root = context.world.rank == ranks_[0];
    std::byte* sums = context.receive.data() + shift;
    if (operation_ == Operation::reduce_scatter || is_root) {
      std::vector<const float*> inputs = inputs_;
      for (const float*& input : inputs) input += shift / sizeof(float);
      context.stream.sum(reinterpret_cast<float*>(sums), inputs, elements_);
      context.stream.synchronize();
    }
    if (operation_ != Operation::allreduce) return;
    if (!is_root) return context.shared.await(ranks_[0]);
    for (std::size_t i = 1; i < ranks_.size(); ++i)
      streams_[i - 1].copy(copy_.peer(ranks_[i]).receive + shift, sums, bytes_);
    for (std::size_t i = 1; i < ranks_.size(); ++i) {
      streams_[i - 1].synchronize();
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
  std::vector<device::Stream> streams_;  // to each rank but the first
};

device::Memory Copy::allocate(const World& world, std::size_t bytes) {
  using device::Handles;
  const auto why_not = [&](Handles handles) { return world.first_said(device::why_no_peers(handles)); };
  const auto there = [&](Handles handles) { return why_not(handles).empty(); };
  if (const std::string reason = wanted_ ? why_not(*wanted_) : ""; !reason.empty()) throw UnsupportedError(reason);
  const Handles best = world.node_count > 1 ? Handles::fabric : there(Handles::ipc) ? Handles::ipc : Handles::vmm;
  // Memory that is not passed on needs no handle.
  handles_ = wanted_ ? *wanted_ : there(best) ? best : Handles::ipc;
  return device::exportable(bytes, handles_);
}

void Copy::set_up(const Context& context) {
  context_ = &context;
  const World& world = context.world;
  if (world.node_count > 1 && !for_a_step_ && handles_ != device::Handles::fabric) {
    throw InputError("this run is on " + std::to_string(world.node_count) +
                     " nodes, and without fabric handles the copy and kernel transports work inside one: start all "
                     "ranks on one node (" +
                     world.first_said(device::why_no_peers(device::Handles::fabric)) + ")");
  }
  struct Buffers {
    device::IpcHandle send;
    device::IpcHandle receive;
  };
  if (!context.between_ranks) {
    peers_.assign(static_cast<std::size_t>(world.size), {nullptr, nullptr});
    peers_[static_cast<std::size_t>(world.rank)] = {context.send.data(), context.receive.data()};
    return;
  }
  if (const std::string reason = device::why_no_peers(handles_); !reason.empty()) throw UnsupportedError(reason);
  const Buffers mine{device::export_memory(context.send, handles_), device::export_memory(context.receive, handles_)};
  std::vector<Buffers> all(static_cast<std::size_t>(world.size));
  mpi_check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, world.all), "MPI_Allgather");
  for (int rank = 0; rank < world.size; ++rank) {
    if (rank == world.rank) {
      peers_.push_back({context.send.data(), context.receive.data()});
      continue;
    }
    if (!opens(rank)) {
      peers_.push_back({nullptr, nullptr});
      continue;
    }
    const Buffers& handles = all[static_cast<std::size_t>(rank)];
    opened_.push_back(device::open_peer(handles.send, handles_));
    std::byte* send = opened_.back().data();
    opened_.push_back(device::open_peer(handles.receive, handles_));
    peers_.push_back({send, opened_.back().data()});
  }
}

std::unique_ptr<Work> Copy::prepare(const Measurement& measurement, const Group& group) {
  for (const Step& step : group.steps) {
    const OwnTransfers own = own_transfers(step, context_->world.rank);
    for (const Transfer& sent : own.sent) {
      if (!opens(sent.destination))
        throw RunError("input", "the copy and kernel transports work inside one node and " +
                                    to_string(measurement.operation) +
                                    " goes from node to node: choose another transport for this step");
    }
  }
  if (is_reduction(measurement.operation)) return std::make_unique<CopiedReduction>(measurement, group, *this);
  return std::make_unique<CopiedTransfers>(group, *this);
}

}  // namespace

std::unique_ptr<Transport> make_copy(bool by_kernel, bool for_a_step, std::optional<device::Handles> wanted) {
  return std::make_unique<Copy>(by_kernel, for_a_step, wanted);
}

}  // namespace fabricbench
