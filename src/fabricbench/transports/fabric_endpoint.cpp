// libfabric is loaded while the program runs: one program serves nodes with and without it, and takes the one that the
// site's module, or the MPI library, has.
#include "fabricbench/transports/fabric_endpoint.hpp"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "fabricbench/device/device.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/shared_library.hpp"

namespace fabricbench {
namespace {

static_assert(sizeof(fi_context2) <= sizeof(Flight::Operation::of_library));
static_assert(offsetof(Flight::Operation, of_library) == 0);

// The first whose endpoints can be told how to treat device memory (FI_OPT_FI_HMEM_P2P).
constexpr std::uint32_t kOldest = (1u << 16) | 14u;
constexpr std::uint32_t kOfHeaders = (std::uint32_t{FI_MAJOR_VERSION} << 16) | std::uint32_t{FI_MINOR_VERSION};
static_assert(kOfHeaders >= kOldest, "libfabric's headers are older than 1.14");

struct Library {
  decltype(&fi_getinfo) getinfo = nullptr;
  decltype(&fi_freeinfo) freeinfo = nullptr;
  decltype(&fi_dupinfo) dupinfo = nullptr;
  decltype(&fi_fabric) fabric = nullptr;
  decltype(&fi_version) version = nullptr;
  decltype(&fi_strerror) strerror = nullptr;
  std::string why_not;
};

Library load() {
  Library calls;
  SharedLibrary library("libfabric.so.1");
  if (!library.missing().empty()) {
    calls.why_not = "libfabric is not there: install it, or load the site's module (" + library.missing() + ")";
    return calls;
  }
  library.find(calls.getinfo, "fi_getinfo");
  library.find(calls.freeinfo, "fi_freeinfo");
  library.find(calls.dupinfo, "fi_dupinfo");
  library.find(calls.fabric, "fi_fabric");
  library.find(calls.version, "fi_version");
  library.find(calls.strerror, "fi_strerror");
  const bool is_new = library.missing().empty() && calls.version() >= kOldest;
  if (!is_new) calls.why_not = "libfabric is older than 1.14: install a newer one";
  return calls;
}

const Library& library() {
  static const Library calls = load();
  return calls;
}

void check(ssize_t result, const char* call) {
  if (result >= 0) return;
  throw RunError("library", std::string(call) + " failed: " + library().strerror(static_cast<int>(-result)));
}

template <typename Object>
struct Close {
  void operator()(Object* object) const { (void)fi_close(&object->fid); }
};
template <typename Object>
using Owned = std::unique_ptr<Object, Close<Object>>;

struct FreeInfo {
  void operator()(fi_info* info) const { library().freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

fi_hmem_iface memory_interface() {
  const std::string platform = device::platform();
  return platform == "nvidia"  ? FI_HMEM_CUDA
         : platform == "amd"   ? FI_HMEM_ROCR
         : platform == "intel" ? FI_HMEM_ZE
                               : FI_HMEM_SYSTEM;
}

// What the transport needs: reads and writes whose end means that the data are there, and messages with tags.
Info hints(bool on_device) {
  Info wanted(library().dupinfo(nullptr));
  if (wanted == nullptr) throw RunError("memory", "fi_allocinfo failed");
  wanted->caps = FI_RMA | FI_TAGGED;
  wanted->mode = FI_CONTEXT | FI_CONTEXT2;
  wanted->ep_attr->type = FI_EP_RDM;
  wanted->domain_attr->threading = FI_THREAD_DOMAIN;
  wanted->domain_attr->resource_mgmt = FI_RM_ENABLED;
  wanted->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  wanted->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
  if (on_device) {
    wanted->caps |= FI_HMEM;
    wanted->domain_attr->mr_mode |= FI_MR_HMEM;
  }
  return wanted;
}

// Null where there is nothing.
Info get_info(const fi_info* wanted) {
  fi_info* list = nullptr;
  const std::uint32_t version = std::min(library().version(), kOfHeaders);
  const int result = library().getinfo(version, nullptr, nullptr, 0, wanted, &list);
  if (result == -FI_ENODATA) return nullptr;
  check(result, "fi_getinfo");
  return Info(list);
}

Nic nic_of(const fi_info& info) {
  const char* domain = info.domain_attr->name;
  const fid_nic* known = info.nic;
  const bool named = known != nullptr && known->device_attr != nullptr && known->device_attr->name != nullptr;
  Nic nic = interface_of(named ? known->device_attr->name : domain);
  nic.provider = info.fabric_attr->prov_name;
  if (known == nullptr) return nic;
  if (known->bus_attr != nullptr && known->bus_attr->bus_type == FI_BUS_PCI) {
    const fi_pci_attr& pci = known->bus_attr->attr.pci;
    char text[32];
    std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", pci.domain_id, pci.bus_id, pci.device_id, pci.function_id);
    nic.bus_id = text;
  }
  if (const fi_link_attr* link = known->link_attr; link != nullptr) {
    if (link->speed > 0) nic.gbps = static_cast<double>(link->speed) / 1e9;
    if (link->state != FI_LINK_UNKNOWN) nic.up = link->state == FI_LINK_UP;
  }
  return nic;
}

constexpr char kWithoutGpus[] = " (FI_HMEM): was it built with their runtime? For host memory: --buffers host-host";

// Why there is no provider for this, by asking for less.
std::string why_nothing(bool on_device) {
  Info wanted = hints(false);
  if (on_device && get_info(wanted.get()) != nullptr)
    return std::string("no provider of libfabric takes memory of these GPUs") + kWithoutGpus;
  wanted->tx_attr->op_flags = 0;
  if (get_info(wanted.get()) != nullptr)
    return "no provider of libfabric tells when written data have arrived (FI_DELIVERY_COMPLETE)";
  const char* provider = std::getenv("FI_PROVIDER");
  return "libfabric has no provider with remote memory access and tagged messages here" +
         (provider == nullptr ? ": is a NIC up? fi_info lists what there is"
                              : std::string(": FI_PROVIDER is ") + provider + ", fi_info lists what there is");
}

constexpr std::size_t kNote = 1;  // bytes of a message that says no more than that it came

class Endpoint final : public FabricEndpoint {
 public:
  Endpoint(const fi_info& offered, const std::vector<BufferMemory>& buffers, int device)
      : info_(library().dupinfo(&offered)), by_address_((offered.domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0) {
    // Each operation says by itself when it has ended.
    info_->tx_attr->op_flags = 0;
    fid_fabric* fabric = nullptr;
    check(library().fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
    fabric_.reset(fabric);
    fid_domain* domain = nullptr;
    check(fi_domain(fabric, info_.get(), &domain, nullptr), "fi_domain");
    domain_.reset(domain);
    fi_av_attr of_addresses{};
    of_addresses.type = info_->domain_attr->av_type;
    fid_av* addresses = nullptr;
    check(fi_av_open(domain, &of_addresses, &addresses, nullptr), "fi_av_open");
    addresses_.reset(addresses);
    fi_cq_attr of_queue{};
    of_queue.size = info_->tx_attr->size + info_->rx_attr->size;
    of_queue.format = FI_CQ_FORMAT_CONTEXT;
    of_queue.wait_obj = FI_WAIT_NONE;
    fid_cq* queue = nullptr;
    check(fi_cq_open(domain, &of_queue, &queue, nullptr), "fi_cq_open");
    queue_.reset(queue);
    fid_ep* endpoint = nullptr;
    check(fi_endpoint(domain, info_.get(), &endpoint, nullptr), "fi_endpoint");
    endpoint_.reset(endpoint);
    check(fi_ep_bind(endpoint, &addresses->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    const bool on_device =
        std::any_of(buffers.begin(), buffers.end(), [](const BufferMemory& buffer) { return buffer.on_device; });
    if (on_device) device_memory_ = asked_for_peer_access(nic_of(offered));
    leave_shared_memory_alone();
    check(fi_enable(endpoint), "fi_enable");
    for (std::size_t i = 0; i < kBuffers; ++i) regions_.push_back(region(buffers[i], device, i + 1));
    note_region_ = region({note_, sizeof note_, false}, device, kBuffers + 1);
  }

  std::string card() const override {
    std::string text;
    for (const Region& own : regions_) append(text, own.window);
    char address[kMostAddress];
    std::size_t length = sizeof address;
    check(fi_getname(&endpoint_->fid, address, &length), "fi_getname");
    return text.append(address, length);
  }

  void meet(const std::vector<std::string>& cards) override {
    std::string addresses;
    for (const std::string& card : cards) {
      peers_.emplace_back();
      for (std::size_t i = 0; i < kBuffers; ++i)
        std::memcpy(&peers_.back().windows[i], card.data() + i * sizeof(Window), sizeof(Window));
      addresses += card.substr(kBuffers * sizeof(Window));
    }
    std::vector<fi_addr_t> numbers(cards.size(), FI_ADDR_NOTAVAIL);
    const int known = fi_av_insert(addresses_.get(), addresses.data(), cards.size(), numbers.data(), 0, nullptr);
    check(known, "fi_av_insert");
    if (static_cast<std::size_t>(known) != cards.size())
      throw RunError("library", "fi_av_insert took " + std::to_string(known) + " of " + std::to_string(cards.size()) +
                                    " addresses");
    for (std::size_t i = 0; i < peers_.size(); ++i) peers_[i].address = numbers[i];
  }

  std::string device_memory() const override { return device_memory_; }
  std::uint64_t most_bytes() const override { return info_->ep_attr->max_msg_size; }

  void write(Flight& flight, int rank, const Part& part, Buffer there, std::uint64_t offset) override {
    move(flight, rank, part, there, offset, [this](const fi_msg_rma& message) {
      return fi_writemsg(endpoint_.get(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    });
  }
  void read(Flight& flight, int rank, const Part& part, Buffer there, std::uint64_t offset) override {
    move(flight, rank, part, there, offset,
         [this](const fi_msg_rma& message) { return fi_readmsg(endpoint_.get(), &message, FI_COMPLETION); });
  }
  void send(Flight& flight, int rank, std::uint64_t tag, const Part& part) override {
    send(flight, rank, tag, iovec{data_of(part), part.bytes}, of(part.buffer));
  }
  void receive(Flight& flight, std::uint64_t tag, const Part& part) override {
    receive(flight, tag, iovec{data_of(part), part.bytes}, of(part.buffer));
  }
  void send_note(Flight& flight, int rank, std::uint64_t tag) override {
    send(flight, rank, tag, iovec{note_, kNote}, note_region_);
  }
  void receive_note(Flight& flight, std::uint64_t tag) override {
    receive(flight, tag, iovec{note_ + kNote, kNote}, note_region_);
  }

  void poll() override {
    constexpr std::size_t kAtOnce = 32;
    fi_cq_entry ended[kAtOnce];
    const ssize_t count = fi_cq_read(queue_.get(), ended, kAtOnce);
    if (count == -FI_EAGAIN) return;
    if (count == -FI_EAVAIL) fail();
    check(count, "fi_cq_read");
    for (ssize_t i = 0; i < count; ++i) --*static_cast<Flight::Operation*>(ended[i].op_context)->left;
  }

 private:
  // A buffer as other ranks address it.
  struct Window {
    std::uint64_t address = 0;
    std::uint64_t key = 0;
  };
  struct Region {
    BufferMemory memory;
    Window window;
    Owned<fid_mr> registered;
    void* description() const { return registered == nullptr ? nullptr : fi_mr_desc(registered.get()); }
  };
  struct Peer {
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    Window windows[kBuffers];
  };
  static constexpr std::size_t kMostAddress = 512;

  static void append(std::string& text, const Window& window) {
    char bytes[sizeof window];
    std::memcpy(bytes, &window, sizeof window);
    text.append(bytes, sizeof bytes);
  }

  // What stays on a node goes over the NIC too, and not by EFA's own way around it.
  void leave_shared_memory_alone() {
    // FI_OPT_SHARED_MEMORY_PERMITTED, from 1.21 on; other providers do not know it.
    constexpr int kSharedMemoryPermitted = 11;
    bool permitted = false;
    const int result =
        fi_setopt(&endpoint_->fid, FI_OPT_ENDPOINT, kSharedMemoryPermitted, &permitted, sizeof permitted);
    const char* by_variable = std::getenv("FI_EFA_ENABLE_SHM_TRANSFER");
    const bool is_off = result == 0 || (by_variable != nullptr && std::strcmp(by_variable, "0") == 0);
    if (!is_off && std::strncmp(info_->fabric_attr->prov_name, "efa", 3) == 0)
      throw RunError("library",
                     "libfabric before 1.21 keeps data off the NIC inside a node: set FI_EFA_ENABLE_SHM_TRANSFER=0");
  }

  // Asks that the NIC itself reaches device memory. Providers that do not know the question either register such memory
  // with the NIC or fail (verbs: ibv_reg_mr or dmabuf; cxi: cxil_map), or have no NIC that could (sockets).
  std::string asked_for_peer_access(const Nic& nic) {
    int required = FI_HMEM_P2P_REQUIRED;
    const int result = fi_setopt(&endpoint_->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &required, sizeof required);
    if (result == 0) return "registered";
    const auto is_of = [&](const char* provider) { return nic.provider.rfind(provider, 0) == 0; };
    if (result == -FI_EOPNOTSUPP || is_of("tcp") || is_of("net") || is_of("sockets") || is_of("udp")) return "staged";
    return is_of("verbs") || is_of("cxi") ? "registered" : "unproven";
  }

  Region region(const BufferMemory& memory, int device, std::uint64_t key) {
    Region made{memory, {}, nullptr};
    if (memory.bytes == 0) return made;
    const iovec all{memory.data, memory.bytes};
    fi_mr_attr attributes{};
    attributes.mr_iov = &all;
    attributes.iov_count = 1;
    attributes.access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    attributes.requested_key = key;
    if (memory.on_device) {
      attributes.iface = memory_interface();
      if (attributes.iface == FI_HMEM_CUDA) attributes.device.cuda = device;
      if (attributes.iface == FI_HMEM_ZE) attributes.device.ze = device;
    }
    fid_mr* registered = nullptr;
    const int result = fi_mr_regattr(domain_.get(), &attributes, 0, &registered);
    if (result == -FI_ENOSYS && memory.on_device)  // shm offers FI_HMEM whatever it was built with
      throw RunError("library", "libfabric cannot register memory of these GPUs" + std::string(kWithoutGpus));
    check(result,
          memory.on_device ? "the registration of the GPU's memory with the NIC (fi_mr_regattr)" : "fi_mr_regattr");
    made.registered.reset(registered);
    if ((info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
      check(fi_mr_bind(registered, &endpoint_->fid, 0), "fi_mr_bind");
      check(fi_mr_enable(registered), "fi_mr_enable");
    }
    made.window = {by_address_ ? reinterpret_cast<std::uintptr_t>(memory.data) : 0, fi_mr_key(registered)};
    return made;
  }

  Region& of(Buffer buffer) { return regions_[static_cast<std::size_t>(buffer)]; }
  std::byte* data_of(const Part& part) { return of(part.buffer).memory.data + part.offset; }

  // Until the queue has room for it.
  template <typename Begin>
  void begin(const Begin& operation, const char* call) {
    for (;;) {
      const ssize_t result = operation();
      if (result != -FI_EAGAIN) return check(result, call);
      poll();
    }
  }

  template <typename Begin>
  void move(Flight& flight, int rank, const Part& part, Buffer there, std::uint64_t offset, const Begin& operation) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    const Window& window = peer.windows[static_cast<std::size_t>(there)];
    const iovec own{data_of(part), part.bytes};
    const fi_rma_iov other{window.address + offset, part.bytes, window.key};
    void* description = of(part.buffer).description();
    fi_msg_rma message{};
    message.msg_iov = &own;
    message.desc = &description;
    message.iov_count = 1;
    message.addr = peer.address;
    message.rma_iov = &other;
    message.rma_iov_count = 1;
    message.context = &flight.begin();
    begin([&] { return operation(message); }, "an access to the memory of another rank");
  }

  void send(Flight& flight, int rank, std::uint64_t tag, const iovec& own, const Region& region) {
    void* description = region.description();
    fi_msg_tagged message{};
    message.msg_iov = &own;
    message.desc = &description;
    message.iov_count = 1;
    message.addr = peers_[static_cast<std::size_t>(rank)].address;
    message.tag = tag;
    message.context = &flight.begin();
    // Not FI_TRANSMIT_COMPLETE: over TCP its acknowledgement doubles the time of 8 bytes, which nobody else pays.
    begin([&] { return fi_tsendmsg(endpoint_.get(), &message, FI_COMPLETION); }, "fi_tsendmsg");
  }

  void receive(Flight& flight, std::uint64_t tag, const iovec& own, const Region& region) {
    void* description = region.description();
    fi_msg_tagged message{};
    message.msg_iov = &own;
    message.desc = &description;
    message.iov_count = 1;
    message.addr = FI_ADDR_UNSPEC;
    message.tag = tag;
    message.context = &flight.begin();
    begin([&] { return fi_trecvmsg(endpoint_.get(), &message, FI_COMPLETION); }, "fi_trecvmsg");
  }

  [[noreturn]] void fail() {
    fi_cq_err_entry error{};
    check(fi_cq_readerr(queue_.get(), &error, 0), "fi_cq_readerr");
    char words[256] = "";
    const char* of_provider = fi_cq_strerror(queue_.get(), error.prov_errno, error.err_data, words, sizeof words);
    throw RunError("library", std::string("libfabric did not move the data: ") + library().strerror(error.err) +
                                  (of_provider == nullptr ? "" : std::string(" (") + of_provider + ")"));
  }

  // Each is closed before those that it was opened on.
  Info info_;
  bool by_address_;
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Owned<fid_av> addresses_;
  Owned<fid_cq> queue_;
  Owned<fid_ep> endpoint_;
  std::byte note_[2 * kNote] = {};  // sent, received
  std::vector<Region> regions_;
  Region note_region_;
  std::vector<Peer> peers_;
  std::string device_memory_;
};

// An interface is there once for each of its addresses: the first is taken.
bool is_of(const fi_info& info, const Nic& wanted) {
  const Nic nic = nic_of(info);
  return nic.name == wanted.name && nic.provider == wanted.provider;
}

std::unique_ptr<FabricEndpoint> open_endpoint(const FabricOffer& offer, std::size_t nic,
                                              const std::vector<BufferMemory>& buffers, int device) {
  const auto* info = static_cast<const fi_info*>(offer.list.get());
  while (!is_of(*info, offer.nics[nic])) info = info->next;
  return std::make_unique<Endpoint>(*info, buffers, device);
}

}  // namespace

FabricOffer fabric_offer(bool on_device) {
  FabricOffer offer;
  offer.why_not = library().why_not;
  if (!offer.why_not.empty()) return offer;
  const std::uint32_t version = library().version();
  offer.version = std::to_string(version >> 16) + '.' + std::to_string(version & 0xffff);
  const std::shared_ptr<const fi_info> list = get_info(hints(on_device).get());
  // The first provider is libfabric's choice. Shared memory and the loopback are no NICs, but where a user names them.
  for (const bool any : {false, true}) {
    for (const fi_info* info = list.get(); info != nullptr && (!any || offer.nics.empty()); info = info->next) {
      const Nic nic = nic_of(*info);
      if (!any && (nic.name == "lo" || nic.provider == "shm")) continue;
      const bool known =
          std::any_of(offer.nics.begin(), offer.nics.end(), [&](const Nic& other) { return is_of(*info, other); });
      if (!known && (offer.nics.empty() || offer.nics.front().provider == nic.provider)) offer.nics.push_back(nic);
    }
  }
  if (offer.nics.empty()) offer.why_not = why_nothing(on_device);
  sort_by_name(offer.nics);
  offer.list = list;
  offer.open = open_endpoint;
  return offer;
}

}  // namespace fabricbench
