// A NIC and nothing above it but libfabric: what a node's NICs, the links behind them and the way from them to memory
// give, whatever MPI and *CCL make of it. MPI only hands round the addresses. The source writes into the memory of the
// destination, or the destination reads that of the source, or both take part in a message. A rank has its own memory
// moved too: out by its NIC, and in again.
#include <algorithm>
#include <utility>

#include "fabricbench/environment.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/json.hpp"
#include "fabricbench/transports/fabric_steps.hpp"
#include "fabricbench/transports/transport.hpp"

namespace fabricbench {
namespace {

class Fabric final : public Transport {
 public:
  Fabric(std::string nic, bool on_device) : wanted_(std::move(nic)), on_device_(on_device) {}

  bool has_library(Operation) const override { return false; }
  bool reaches(const Transfer&) const override { return true; }
  void set_up(const Context& context) override;
  void let_go() override { endpoints_.clear(); }
  std::unique_ptr<Work> prepare(const Measurement&, const Group& group) override {
    return std::make_unique<FabricTransfers>(group, context_->world.rank, context_->access, endpoints_, most_,
                                             context_->world.shares_cores);
  }
  std::map<std::string, std::string> library() const override { return {{"libfabric", version_}}; }
  std::map<std::string, long> paths() const override;
  std::string nics_json() const override;

 private:
  std::string open(const Context& context);

  std::string wanted_;
  bool on_device_;
  const Context* context_ = nullptr;
  std::string version_;
  std::vector<Nic> nics_;
  FabricEndpoints endpoints_;
  std::uint64_t most_ = 0;
};

// Opens this rank's NICs; why it cannot, as one line.
std::string Fabric::open(const Context& context) {
  const FabricOffer offer = fabric_offer(on_device_);
  version_ = offer.version;
  if (!offer.why_not.empty()) return offer.why_not;
  const World& world = context.world;
  const bool has_device = context.device_index >= 0;
  const device::Info info = has_device ? device::info(context.device_index) : device::Info{};
  const Seat seat{has_device ? info.bus_id : "", has_device ? info.numa_node : numa_node_of_cpu(allowed_cpus().front()),
                  world.node_rank};
  const std::vector<BufferMemory> buffers = {
      {context.send.data(), on_device_ || !has_device ? context.bytes : 0, on_device_},
      {context.receive.data(), on_device_ || !has_device ? context.bytes : 0, on_device_},
      {context.host_send.data(), context.host_bytes.send, false},
      {context.host_receive.data(), context.host_bytes.receive, false}};
  try {
    for (const std::size_t place : chosen_nics(offer.nics, wanted_, seat)) {
      nics_.push_back(offer.nics[place]);
      endpoints_.push_back(offer.open(offer, place, buffers, context.device_index));
    }
  } catch (const InputError& error) {
    return error.what();
  } catch (const RunError& error) {
    return nics_.back().name + " (" + nics_.back().provider + "): " + error.what();
  }
  return {};
}

void Fabric::set_up(const Context& context) {
  context_ = &context;
  const World& world = context.world;
  const std::string reason = open(context);
  const auto unless_all = [&](const std::string& mine) {
    const std::string first = world.first_said(mine.empty() ? mine : host_name() + ": " + mine);
    if (first.empty()) return;
    let_go();
    throw UnsupportedError(first);
  };
  unless_all(reason);
  const std::string mine = std::to_string(nics_.size()) + " by " + nics_.front().provider;
  const std::string other = world.from_first(mine);
  unless_all(mine == other ? "" : "rank " + std::to_string(world.rank) + " has NICs: " + mine + "; rank 0: " + other);
  most_ = endpoints_.front()->most_bytes();
  for (const auto& endpoint : endpoints_) {
    endpoint->meet(World::gather_strings(endpoint->card(), world.all));
    most_ = std::min(most_, endpoint->most_bytes());
  }
  mpi_check(MPI_Allreduce(MPI_IN_PLACE, &most_, 1, MPI_UINT64_T, MPI_MIN, world.all), "MPI_Allreduce");
}

std::map<std::string, long> Fabric::paths() const {
  std::map<std::string, long> paths;
  for (std::size_t i = 0; i < nics_.size(); ++i) {
    const std::string memory = endpoints_[i]->device_memory();
    ++paths["OFI provider " + nics_[i].provider + (memory.empty() ? "" : " " + memory)];
  }
  return paths;
}

std::string Fabric::nics_json() const {
  Json json;
  json.begin_array();
  for (std::size_t i = 0; i < nics_.size(); ++i) {
    const Nic& nic = nics_[i];
    json.begin_object().field("name", nic.name).field("provider", nic.provider);
    if (!nic.bus_id.empty()) json.field("bus_id", nic.bus_id);
    if (nic.gbps > 0) json.field("gbps", nic.gbps);
    if (const std::string memory = endpoints_[i]->device_memory(); !memory.empty()) json.field("device_memory", memory);
    json.end_object();
  }
  return json.end_array().text();
}

}  // namespace

std::unique_ptr<Transport> make_fabric(const std::string& nic, bool on_device) {
  return std::make_unique<Fabric>(nic, on_device);
}

}  // namespace fabricbench
