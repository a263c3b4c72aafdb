// The sycl backend: USM memory, in-order queues, and the kernels of sycl_kernels.hpp. A device is a tile of a GPU,
// whether Level Zero shows tiles as devices (ZE_FLAT_DEVICE_HIERARCHY=FLAT) or as parts of one (COMPOSITE).
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "fabricbench/device/device.hpp"
#include "fabricbench/device/level_zero.hpp"
#include "fabricbench/device/sycl_devices.hpp"
#include "fabricbench/device/sycl_launch.hpp"
#include "fabricbench/environment.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench::device {
namespace {

struct Tile {
  sycl::device device;
  std::string bus_id;
  int number;  // among this process's devices at the same PCI address
};

struct Devices {
  std::vector<Tile> tiles;
  bool composite = false;
  std::optional<sycl::context> context;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string bus_id_of(const sycl::device& device) {
  if (!device.has(sycl::aspect::ext_intel_pci_address)) return "none";
  return lower(device.get_info<sycl::ext::intel::info::device::pci_address>());
}

std::vector<sycl::device> tiles_of(const sycl::device& device) {
  const auto domains = device.get_info<sycl::info::device::partition_affinity_domains>();
  constexpr auto kDomain = sycl::info::partition_affinity_domain::next_partitionable;
  if (!device.is_gpu() || device.get_info<sycl::info::device::partition_max_sub_devices>() < 2 ||
      std::find(domains.begin(), domains.end(), kDomain) == domains.end())
    return {device};
  return device.create_sub_devices<sycl::info::partition_property::partition_by_affinity_domain>(kDomain);
}

// GPUs through Level Zero. A processor only where the user asked for it: nobody shall take its memory for a GPU's.
std::vector<sycl::device> chosen_devices() {
  std::vector<sycl::device> gpus;
  std::vector<sycl::device> processors;
  for (const sycl::device& device : sycl::device::get_devices()) {
    if (device.is_gpu() && device.get_backend() == sycl::backend::ext_oneapi_level_zero) gpus.push_back(device);
    if (device.is_cpu()) processors.push_back(device);
  }
  const bool asked = lower(variable("ONEAPI_DEVICE_SELECTOR")).find("cpu") != std::string::npos;
  return gpus.empty() && asked ? processors : gpus;
}

Devices find_devices() {
  const std::vector<sycl::device> roots = chosen_devices();
  Devices devices;
  if (roots.empty()) return devices;
  devices.context.emplace(roots);
  for (const sycl::device& root : roots) {
    const std::vector<sycl::device> tiles = tiles_of(root);
    devices.composite |= tiles.size() > 1;
    for (const sycl::device& tile : tiles) {
      const std::string bus_id = bus_id_of(root);
      const auto on_card = std::count_if(devices.tiles.begin(), devices.tiles.end(),
                                         [&](const Tile& other) { return other.bus_id == bus_id; });
      devices.tiles.push_back({tile, bus_id, static_cast<int>(on_card)});
    }
  }
  return devices;
}

// Never destroyed: SYCL's own objects may be gone before those of this program.
Devices& devices() {
  static Devices& kept = *new Devices(guarded("the search for devices", find_devices));
  return kept;
}

std::size_t selected = 0;
bool yields = false;

const Tile& tile(int index) { return devices().tiles.at(static_cast<std::size_t>(index)); }

// Xe cores of a tile, each of several vector engines; threads of a processor.
std::size_t multiprocessors() {
  const sycl::device& device = current_device();
  const std::size_t units = device.get_info<sycl::info::device::max_compute_units>();
  if (!device.has(sycl::aspect::ext_intel_gpu_eu_count_per_subslice)) return units;
  const std::size_t in_a_core = device.get_info<sycl::ext::intel::info::device::gpu_eu_count_per_subslice>();
  return std::max<std::size_t>(1, units / std::max<std::size_t>(1, in_a_core));
}

std::size_t groups_for(std::size_t items) {
  return std::clamp<std::size_t>((items + kernels::kThreads - 1) / kernels::kThreads, 1, 8 * multiprocessors());
}

constexpr std::size_t kMostGroups = std::size_t{1} << 20;

std::size_t groups_for_tiles(std::size_t quads, unsigned unrolled, std::size_t most) {
  const std::size_t in_a_group = std::size_t{kernels::kThreads} * unrolled;
  return std::min((quads + in_a_group - 1) / in_a_group, most);
}

std::string with_dashes(const std::string& digits) {
  return digits.substr(0, 8) + "-" + digits.substr(8, 4) + "-" + digits.substr(12, 4) + "-" + digits.substr(16, 4) +
         "-" + digits.substr(20);
}

std::string uuid_of(const Tile& tile, int index) {
  if (!tile.device.has(sycl::aspect::ext_intel_device_info_uuid) || !tile.device.is_gpu())
    return "CPU-" + std::to_string(index);
  std::string digits;
  for (const unsigned char byte : tile.device.get_info<sycl::ext::intel::info::device::uuid>()) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", byte);
    digits += text;
  }
  return "GPU-" + with_dashes(digits);
}

}  // namespace

const sycl::device& current_device() { return devices().tiles.at(selected).device; }
const sycl::context& shared_context() { return devices().context.value(); }
bool on_level_zero() { return current_device().get_backend() == sycl::backend::ext_oneapi_level_zero; }

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  try {
    sycl::free(memory, shared_context());
  } catch (const sycl::exception& error) {
    std::fprintf(stderr, "fabricbench: sycl::free failed: %s\n", error.what());
  }
}

const char* backend() { return "sycl"; }
const char* platform() { return on_level_zero() ? "intel" : "cpu"; }
bool present() { return true; }
void wait_by_yielding() { yields = true; }
const char* what_to_check() {
  return "check Level Zero's driver, ZE_AFFINITY_MASK and ONEAPI_DEVICE_SELECTOR (opencl:cpu: the processor takes a "
         "GPU's place)";
}

Versions versions() {
  const std::string version = std::to_string(__LIBSYCL_MAJOR_VERSION) + "." + std::to_string(__LIBSYCL_MINOR_VERSION) +
                              "." + std::to_string(__LIBSYCL_PATCH_VERSION);
  Versions result{on_level_zero() ? "SYCL on Level Zero" : "SYCL on OpenCL", version,
                  current_device().get_info<sycl::info::device::driver_version>(), ""};
  if (on_level_zero()) {
    const std::string asked = lower(variable("ZE_FLAT_DEVICE_HIERARCHY"));
    result.hierarchy = devices().composite ? "composite" : asked == "combined" ? "combined" : "flat";
  }
  return result;
}

int count() { return static_cast<int>(devices().tiles.size()); }
void select(int index) { selected = static_cast<std::size_t>(index); }

Info info(int index) {
  const Tile& chosen = tile(index);
  return guarded("the description of a device", [&] {
    Info result{};
    result.index = index;
    result.name = chosen.device.get_info<sycl::info::device::name>();
    result.bus_id = chosen.bus_id;
    result.uuid = uuid_of(chosen, index);
    result.tile = chosen.device.is_gpu() ? chosen.number : -1;
    result.memory_bytes = chosen.device.get_info<sycl::info::device::global_mem_size>();
    std::string node;
    std::getline(std::ifstream("/sys/bus/pci/devices/" + chosen.bus_id + "/numa_node"), node);
    result.numa_node = node.empty() ? -1 : std::atoi(node.c_str());
    return result;
  });
}

Memory::Memory(std::size_t bytes) {
  if (bytes == 0) return;
  void* memory = guarded("the allocation of device memory", [&] {
    return sycl::aligned_alloc_device(kAlignment, bytes, current_device(), shared_context());
  });
  if (memory == nullptr) {
    throw RunError("memory", "the device has no " + format_size(bytes) +
                                 " free: choose smaller --sizes, or end other programs on it");
  }
  data_ = static_cast<std::byte*>(memory);
  release_ = [](std::byte* data) { release(data); };
}

std::string why_no_peers(Handles handles) {
  return handles == Handles::ipc ? level_zero::unsupported() : "only CUDA has such handles of memory";
}
Memory exportable(std::size_t bytes, Handles) { return Memory(bytes); }
IpcHandle export_memory(const Memory& memory, Handles) { return level_zero::export_memory(memory.data()); }
Memory open_peer(const IpcHandle& handle, Handles) { return Memory(level_zero::open(handle), level_zero::close); }

Stream::Stream() {
#if defined(FABRICBENCH_RUN_TIME_KERNELS)
  guarded("the compilation of the kernels", compile_kernels);
#endif
  native_ = guarded("the creation of a queue", [] {
    return new sycl::queue(shared_context(), current_device(), sycl::property_list{sycl::property::queue::in_order()});
  });
}
Stream::~Stream() { delete static_cast<sycl::queue*>(native_); }
Stream::Stream(Stream&& other) noexcept : native_(std::exchange(other.native_, nullptr)) {}

void Stream::copy(void* destination, const void* source, std::size_t bytes) {
  guarded("a copy", [&] { queue_of(*this).memcpy(destination, source, bytes); });
}

bool kernel_reads_pass_caches() { return false; }

void Stream::copy_by_kernel(void* destination, const void* source, std::size_t bytes, bool link,
                            const pattern::Ring& ring) {
  const std::uintptr_t addresses =
      reinterpret_cast<std::uintptr_t>(destination) | reinterpret_cast<std::uintptr_t>(source);
  const std::size_t quads = addresses % sizeof(sycl::uint4) == 0 ? bytes / sizeof(sycl::uint4) : 0;
  const std::size_t done = quads * sizeof(sycl::uint4);
  guarded("copying by a kernel", [&] {
    sycl::queue& queue = queue_of(*this);
    auto* out = static_cast<sycl::uint4*>(destination);
    const auto* in = static_cast<const sycl::uint4*>(source);
    if (quads > 0 && link) {
      const std::size_t groups = groups_for_tiles(quads, kernels::kUnrolledOverLink, multiprocessors());
      FABRICBENCH_LAUNCH(copy_over_link, queue, groups, out, in, quads, ring);
    } else if (quads > 0) {
      const std::size_t groups = groups_for_tiles(quads, kernels::kUnrolledInside, kMostGroups);
      FABRICBENCH_LAUNCH(copy_inside, queue, groups, out, in, quads, ring);
    }
    if (bytes > done) {
      FABRICBENCH_LAUNCH(copy_single_bytes, queue, groups_for(bytes - done),
                         static_cast<std::uint8_t*>(destination) + done,
                         static_cast<const std::uint8_t*>(source) + done, bytes - done, ring);
    }
  });
}

void Stream::migrate(void* managed, std::size_t bytes, bool to_host) {
  guarded("moving pages", [&] {
    if (!to_host) {
      queue_of(*this).prefetch(managed, bytes);
      return;
    }
    // Pages go to the host when it writes to them.
    queue_of(*this).wait_and_throw();
    constexpr std::size_t kPage = 4096;
    auto* pages = static_cast<volatile unsigned char*>(managed);
    for (std::size_t i = 0; i < bytes; i += kPage) pages[i] = pages[i];
  });
}

void Stream::fill(const pattern::Stretch& stretch, const pattern::Pattern& pattern, Content content, bool inverted,
                  bool stamps_only) {
  const pattern::Words words = words_of(stretch, pattern.stride, stamps_only);
  const std::size_t groups = groups_for(words.count());
  guarded("filling a buffer", [&] {
    if (content == Content::numbers) {
      FABRICBENCH_LAUNCH(fill_numbers, queue_of(*this), groups, stretch, pattern, words);
    } else {
      FABRICBENCH_LAUNCH(fill_bytes, queue_of(*this), groups, stretch, pattern, words,
                         inverted ? ~std::uint64_t{0} : std::uint64_t{0});
    }
  });
}

void Stream::set_byte(void* destination, std::size_t bytes, int value) {
  if (bytes == 0) return;
  guarded("setting memory", [&] { queue_of(*this).memset(destination, value, bytes); });
}

void Stream::sum(float* out, const std::vector<const float*>& inputs, std::size_t elements) {
  guarded("adding buffers", [&] {
    std::uintptr_t addresses = reinterpret_cast<std::uintptr_t>(out);
    for (const float* input : inputs) addresses |= reinterpret_cast<std::uintptr_t>(input);
    const std::size_t quads = addresses % sizeof(sycl::float4) == 0 ? elements / 4 : 0;
    for (std::size_t first = 0; first < inputs.size(); first += kernels::kMostInputs) {
      kernels::Inputs some{};
      const std::size_t number = std::min<std::size_t>(kernels::kMostInputs, inputs.size() - first);
      std::copy_n(inputs.begin() + static_cast<std::ptrdiff_t>(first), number, some.of);
      FABRICBENCH_LAUNCH(add_inputs, queue_of(*this), groups_for(elements / 4 + 1), out, some, static_cast<int>(number),
                         first > 0 ? 1 : 0, quads, elements);
    }
  });
}

void Stream::synchronize() {
  while (yields && !queue_of(*this).ext_oneapi_empty()) sched_yield();
  guarded("the end of work on the device", [&] { queue_of(*this).wait_and_throw(); });
}

Mark::Mark() = default;
Mark::~Mark() = default;
Mark::Mark(Mark&&) noexcept = default;
void Mark::record(Stream& stream) {
  stream.synchronize();
  at_ns_ = now_ns();
}
bool Mark::passed() const { return true; }
std::int64_t Mark::ns_since(const Mark& earlier) const { return at_ns_ - earlier.at_ns_; }

std::string why_no_trains() { return "the sycl backend times no trains of copies"; }
TrainClock::TrainClock() = default;
TrainClock::~TrainClock() = default;
TrainClock::TrainClock(TrainClock&&) noexcept {}
void TrainClock::start(Stream&) {}
void TrainClock::stop(Stream&) {}
void TrainClock::release() {}
std::int64_t TrainClock::ns() const { return 0; }

void Stream::count_wrong(const pattern::Check& check, std::size_t words, std::uint64_t* total) {
  guarded("the check of the data",
          [&] { FABRICBENCH_LAUNCH(compare, queue_of(*this), groups_for(words), check, total); });
}

}  // namespace fabricbench::device
