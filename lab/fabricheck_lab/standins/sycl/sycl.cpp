// libsycl, as far as fabricbench's sycl backend uses it.
#include <sycl/sycl.hpp>

#include <cstdlib>
#include <map>

#include "core/ending.hpp"
#include "core/kernels.hpp"
#include "core/memory.hpp"
#include "core/runtime.hpp"

using namespace emulation;

namespace sycl {
namespace {

const Gpu& gpu_of(const device& device) { return description().gpus[static_cast<std::size_t>(device.tile())]; }

// The calls of the emulation are about the current device, which SYCL does not have.
void use(const device& device) { set_current(ordinal_of(device.tile())); }

constexpr std::uint32_t kEnginesOfACore = 8;

bool shows_cards() {
  const char* hierarchy = std::getenv("ZE_FLAT_DEVICE_HIERARCHY");
  return hierarchy != nullptr && std::string(hierarchy) == "COMPOSITE";
}

}  // namespace

std::vector<device> device::get_devices() {
  const char* mask = std::getenv("ZE_AFFINITY_MASK");
  if (mask != nullptr && shows_cards())
    end_run("the stand-in of Level Zero knows no ZE_AFFINITY_MASK with ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE");
  std::vector<device> result;
  std::map<std::string, std::vector<int>> cards;
  for (const int tile : visible_gpus({"ZE_AFFINITY_MASK"})) {
    if (shows_cards()) {
      cards[description().gpus[static_cast<std::size_t>(tile)].bus_id].push_back(tile);
    } else {
      result.emplace_back(std::vector<int>{tile});
    }
  }
  for (const auto& [bus_id, tiles] : cards) result.emplace_back(tiles);
  return result;
}

template <>
std::string device::get_info<info::device::name>() const {
  return device_name(gpu_of(*this));
}
template <>
std::string device::get_info<info::device::driver_version>() const {
  return version("driver").text();
}
template <>
std::uint64_t device::get_info<info::device::global_mem_size>() const {
  return gpu_of(*this).memory_bytes;
}
template <>
std::uint32_t device::get_info<info::device::max_compute_units>() const {
  return kEnginesOfACore * static_cast<std::uint32_t>(gpu_of(*this).facts["multiprocessors"].integer());
}
template <>
std::uint32_t device::get_info<ext::intel::info::device::gpu_eu_count_per_subslice>() const {
  return kEnginesOfACore;
}
template <>
std::uint32_t device::get_info<info::device::partition_max_sub_devices>() const {
  return static_cast<std::uint32_t>(tiles_.size());
}
template <>
std::vector<info::partition_affinity_domain> device::get_info<info::device::partition_affinity_domains>() const {
  if (tiles_.size() < 2) return {};
  return {info::partition_affinity_domain::next_partitionable};
}
template <>
std::string device::get_info<ext::intel::info::device::pci_address>() const {
  return gpu_of(*this).bus_id;
}
template <>
std::array<unsigned char, 16> device::get_info<ext::intel::info::device::uuid>() const {
  return gpu_of(*this).uuid;
}

usm::alloc get_pointer_type(const void* memory, const context&) {
  const auto region = region_of(memory);
  if (!region) return usm::alloc::unknown;
  switch (region->kind) {
    case Kind::device:
    case Kind::opened:
      return usm::alloc::device;
    case Kind::managed:
      return usm::alloc::shared;
    case Kind::pinned:
    case Kind::noncoherent:
      return usm::alloc::host;
    case Kind::registered:
      break;
  }
  return usm::alloc::unknown;
}

void* aligned_alloc_device(std::size_t, std::size_t bytes, const device& device, const context&) {
  void* memory = nullptr;
  return allocate_device(&memory, bytes, device.tile()) == Result::success ? memory : nullptr;
}
void* aligned_alloc_host(std::size_t, std::size_t bytes, const context&) {
  void* memory = nullptr;
  return allocate_host(&memory, bytes, Kind::pinned) == Result::success ? memory : nullptr;
}
void* aligned_alloc_shared(std::size_t, std::size_t bytes, const device&, const context&) {
  void* memory = nullptr;
  return allocate_host(&memory, bytes, Kind::managed) == Result::success ? memory : nullptr;
}
void free(void* memory, const context&) {
  if (release(memory) != Result::success) throw exception("sycl::free of what was not allocated");
}

void ext::oneapi::this_work_item::end_in_kernel() { end_for_missing_call("libsycl", "this_work_item::get_nd_item"); }

queue::queue(const context&, const device& device, const property_list&) {
  use(device);
  stream_ = std::shared_ptr<void>(make_stream(), destroy_stream);
}
void queue::memcpy(void* destination, const void* source, std::size_t bytes) {
  enqueue_copy(stream_of(stream()), destination, source, bytes, Mover::copy);
}
void queue::memset(void* memory, int value, std::size_t bytes) {
  enqueue_set(stream_of(stream()), memory, value, bytes);
}
void queue::prefetch(const void* shared, std::size_t bytes) {
  migrate(stream_of(stream()), shared, bytes, stream_of(stream()).gpu());
}
bool queue::ext_oneapi_empty() const {
  stream_of(stream()).synchronize();
  return true;
}
void queue::wait_and_throw() { stream_of(stream()).synchronize(); }

void queue::launch(handler& asked) {
  std::vector<void*> arguments;
  for (std::vector<std::byte>& each : asked.arguments_) arguments.push_back(each.data());
  // Here it is told how many groups of four floats there are, before how many floats.
  if (asked.kernel_ == "add_inputs") arguments.erase(arguments.begin() + 4);
  launch_kernel(asked.kernel_, arguments.data(), stream_of(stream()));
}

}  // namespace sycl
