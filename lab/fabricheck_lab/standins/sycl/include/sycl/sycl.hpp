// SYCL as a library, whose devices are the tiles of an emulated node: what the sycl backend of fabricbench uses, and no
// more, so that a program that wants more does not compile. Kernels are compiled at run time there, by name; here the
// processor does what those of that name do (core/kernels.cpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#define __LIBSYCL_MAJOR_VERSION 8
#define __LIBSYCL_MINOR_VERSION 0
#define __LIBSYCL_PATCH_VERSION 0

namespace sycl {

struct exception : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Devices --------------------------------------------------------------------------------------------------------

enum class backend { ext_oneapi_level_zero };
enum class aspect {
  ext_intel_device_info_uuid,
  ext_intel_gpu_eu_count_per_subslice,
  ext_intel_pci_address,
  usm_shared_allocations,
  usm_system_allocations
};

namespace info {
enum class partition_affinity_domain { next_partitionable };
enum class partition_property { partition_by_affinity_domain };
namespace device {
template <typename Type>
struct Returns {
  using return_type = Type;
};
struct driver_version : Returns<std::string> {};
struct global_mem_size : Returns<std::uint64_t> {};
struct max_compute_units : Returns<std::uint32_t> {};
struct name : Returns<std::string> {};
struct partition_affinity_domains : Returns<std::vector<partition_affinity_domain>> {};
struct partition_max_sub_devices : Returns<std::uint32_t> {};
}  // namespace device
}  // namespace info
namespace ext::intel::info::device {
struct gpu_eu_count_per_subslice : sycl::info::device::Returns<std::uint32_t> {};
struct pci_address : sycl::info::device::Returns<std::string> {};
struct uuid : sycl::info::device::Returns<std::array<unsigned char, 16>> {};
}  // namespace ext::intel::info::device
namespace ext::oneapi::experimental {
enum class source_language { sycl };
}

// A tile, or where Level Zero shows cards (ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE) all tiles of one.
class device {
 public:
  explicit device(std::vector<int> tiles) : tiles_(std::move(tiles)) {}
  static std::vector<device> get_devices();
  bool is_gpu() const { return true; }
  bool is_cpu() const { return false; }
  backend get_backend() const { return backend::ext_oneapi_level_zero; }
  bool has(aspect which) const { return which != aspect::usm_system_allocations; }
  template <typename Fact>
  typename Fact::return_type get_info() const;
  template <info::partition_property by>
  std::vector<device> create_sub_devices(info::partition_affinity_domain) const {
    std::vector<device> result;
    for (const int tile : tiles_) result.emplace_back(std::vector<int>{tile});
    return result;
  }
  bool ext_oneapi_can_compile(ext::oneapi::experimental::source_language) const { return true; }

  // Its tile, by the vertex of the node's graph: what runs on a card as a whole runs on its first.
  int tile() const { return tiles_.front(); }

 private:
  std::vector<int> tiles_;
};

// All memory of a process is in one context.
class context {
 public:
  explicit context(const std::vector<device>&) {}
};

// Memory ---------------------------------------------------------------------------------------------------------

namespace usm {
enum class alloc { host, device, shared, unknown };
}
usm::alloc get_pointer_type(const void* memory, const context&);
void* aligned_alloc_device(std::size_t alignment, std::size_t bytes, const device&, const context&);
void* aligned_alloc_host(std::size_t alignment, std::size_t bytes, const context&);
void* aligned_alloc_shared(std::size_t alignment, std::size_t bytes, const device&, const context&);
void free(void* memory, const context&);

// Kernels --------------------------------------------------------------------------------------------------------

enum class memory_order { relaxed };
enum class memory_scope { device };
namespace access {
enum class address_space { global_space };
}
template <typename Value, memory_order, memory_scope, access::address_space>
class atomic_ref {
 public:
  explicit atomic_ref(Value& value) : value_(value) {}
  void operator+=(Value more) { value_ += more; }
  void fetch_min(Value other) { value_ = std::min(value_, other); }

 private:
  Value& value_;
};

struct alignas(16) uint4 {
  std::uint32_t of[4];
};
struct alignas(16) float4 {
  explicit float4(float value) : of{value, value, value, value} {}
  float4& operator+=(const float4& other) {
    for (int i = 0; i < 4; ++i) of[i] += other.of[i];
    return *this;
  }
  float of[4];
};

template <int>
struct nd_range {
  nd_range(std::size_t, std::size_t) {}
};
template <int>
struct nd_item {
  std::size_t get_global_linear_id() const { return 0; }
  std::size_t get_global_range(int) const { return 1; }
  std::size_t get_local_id(int) const { return 0; }
  std::size_t get_group(int) const { return 0; }
  std::size_t get_group_range(int) const { return 1; }
};
namespace ext::oneapi::this_work_item {
// Ends the run: the text of a kernel is not what is executed here.
[[noreturn]] void end_in_kernel();
template <int dimensions>
nd_item<dimensions> get_nd_item() {
  end_in_kernel();
}
}  // namespace ext::oneapi::this_work_item

struct kernel {
  std::string name;
};
enum class bundle_state { executable };
template <bundle_state>
struct kernel_bundle {
  kernel ext_oneapi_get_kernel(const std::string& name) const { return {name}; }
};
namespace ext::oneapi::experimental {
struct source_bundle {};
struct include_files {
  void add(const std::string&, const std::string&) {}
};
struct build_options {
  explicit build_options(const std::vector<std::string>&) {}
};
struct properties {
  template <typename Property>
  explicit properties(const Property&) {}
};
inline source_bundle create_kernel_bundle_from_source(const context&, source_language, const std::string&,
                                                      const properties&) {
  return {};
}
inline kernel_bundle<bundle_state::executable> build(const source_bundle&, const std::vector<device>&,
                                                     const properties&) {
  return {};
}
}  // namespace ext::oneapi::experimental

// Queues ---------------------------------------------------------------------------------------------------------

namespace property::queue {
struct in_order {};
}  // namespace property::queue
struct property_list {
  explicit property_list(property::queue::in_order) {}
};

class handler {
 public:
  template <typename... Arguments>
  void set_args(const Arguments&... arguments) {
    static_assert((std::is_trivially_copyable_v<Arguments> && ...), "arguments of kernels are plain data");
    (arguments_.emplace_back(reinterpret_cast<const std::byte*>(&arguments),
                             reinterpret_cast<const std::byte*>(&arguments) + sizeof arguments),
     ...);
  }
  template <int dimensions>
  void parallel_for(const nd_range<dimensions>&, const kernel& chosen) {
    kernel_ = chosen.name;
  }

 private:
  friend class queue;
  std::string kernel_;
  std::vector<std::vector<std::byte>> arguments_;
};

class queue {
 public:
  queue(const context&, const device& device, const property_list&);
  void memcpy(void* destination, const void* source, std::size_t bytes);
  void memset(void* memory, int value, std::size_t bytes);
  void prefetch(const void* shared, std::size_t bytes);
  void wait_and_throw();
  // It is when this returns, lest who asks until it is takes the cores meanwhile.
  bool ext_oneapi_empty() const;
  template <typename Work>
  void submit(const Work& work) {
    handler asked;
    work(asked);
    launch(asked);
  }

  // The stream of the emulation that it is.
  void* stream() const { return stream_.get(); }

 private:
  void launch(handler& asked);
  std::shared_ptr<void> stream_;
};

}  // namespace sycl
