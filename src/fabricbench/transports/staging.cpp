// Trivial staging (De Sensi et al., SC24, section III-A): device to host, host to host by MPI, host to device;
// page-locked buffers, store and forward, not pipelined.
#include <optional>

#include "fabricbench/errors.hpp"
#include "fabricbench/transports/mpi_steps.hpp"

namespace fabricbench {
namespace {

struct HostBuffers {
  explicit HostBuffers(std::size_t bytes)
      : send(bytes, device::HostKind::pinned), receive(bytes, device::HostKind::pinned) {}
  device::HostMemory send;
  device::HostMemory receive;
};

// `Exchange` is what happens between the hosts: MpiStep or MpiAlltoallv.
template <typename Exchange>
class StagedTransfers final : public Work {
 public:
  StagedTransfers(const Group& group, const Context& context, HostBuffers& host) : context_(context), host_(host) {
    for (const Step& step : group.steps) {
      steps_.push_back(
          {own_transfers(step, context.world.rank), Exchange(step, context, host.send.data(), host.receive.data())});
    }
  }
  void run(std::uint64_t shift) override {
    for (auto& [own, exchange] : steps_) {
      for (const Transfer& sent : own.sent) {
        std::byte* host = (sent.relayed ? host_.receive : host_.send).data() + sent.source_offset + shift;
        context_.stream.copy(host, source_of(sent, context_) + shift, sent.bytes);
      }
      if (!own.sent.empty()) context_.stream.synchronize();
      exchange.run(shift);
      for (const Transfer& received : own.received) {
        const std::uint64_t at = received.destination_offset + shift;
        context_.stream.copy(context_.receive.data() + at, host_.receive.data() + at, received.bytes);
      }
      if (!own.received.empty()) context_.stream.synchronize();
    }
  }

 private:
  struct StagedStep {
    OwnTransfers own;
    Exchange exchange;
  };
  const Context& context_;
  HostBuffers& host_;
  std::vector<StagedStep> steps_;
};

class StagedCollective final : public Work {
 public:
  StagedCollective(const Measurement& measurement, const Group& group, const Context& context, HostBuffers& host)
      : operation_(measurement.operation), bytes_(measurement.bytes), context_(context), host_(host) {
    const std::uint64_t share = bytes_ / group.ranks.size();
    const bool is_root = context.members.rank == 0;
    sent_ = operation_ == Operation::allgather ? share : operation_ == Operation::broadcast && !is_root ? 0 : bytes_;
    received_ = operation_ == Operation::reduce_scatter         ? share
                : operation_ == Operation::broadcast && is_root ? 0
                : operation_ == Operation::reduce && !is_root   ? 0
                                                                : bytes_;
  }
  void run(std::uint64_t) override {
    if (sent_ > 0) {
      context_.stream.copy(host_.send.data(), context_.send.data(), sent_);
      context_.stream.synchronize();
    }
    run_mpi_collective(operation_, context_.members, bytes_, host_.send.data(), host_.receive.data());
    if (received_ > 0) {
      context_.stream.copy(context_.receive.data(), host_.receive.data(), received_);
      context_.stream.synchronize();
    }
  }

 private:
  Operation operation_;
  std::uint64_t bytes_;
  std::uint64_t sent_;
  std::uint64_t received_;
  const Context& context_;
  HostBuffers& host_;
};

class Staging final : public Transport {
 public:
  bool has_library(Operation operation) const override {
    return is_collective(operation) || operation == Operation::sparse_alltoallv;
  }
  std::uint64_t most_bytes() const override { return kMostMpiBytes; }
  void set_up(const Context& context) override {
    context_ = &context;
    host_.emplace(context.bytes);
  }
  std::unique_ptr<Work> prepare(const Measurement& measurement, const Group& group) override {
    if (measurement.operation == Operation::sparse_alltoallv)
      return std::make_unique<StagedTransfers<MpiAlltoallv>>(group, *context_, *host_);
    if (measurement.implementation == Implementation::library)
      return std::make_unique<StagedCollective>(measurement, group, *context_, *host_);
    return std::make_unique<StagedTransfers<MpiStep>>(group, *context_, *host_);
  }

 private:
  const Context* context_ = nullptr;
  std::optional<HostBuffers> host_;
};

}  // namespace

std::unique_ptr<Transport> make_staging() { return std::make_unique<Staging>(); }

}  // namespace fabricbench
