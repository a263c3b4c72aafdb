// Host memory of the sycl backend: SYCL's host and shared allocations, and pages of this process.
#include <cstring>
#include <utility>

#include "fabricbench/device/device.hpp"
#include "fabricbench/device/sycl_devices.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench::device {

std::string why_unsupported(HostKind kind, bool by_kernel) {
  switch (kind) {
    case HostKind::pinned:
      return "";
    case HostKind::pageable:
      if (by_kernel && !current_device().has(sycl::aspect::usm_system_allocations))
        return "kernels of this device cannot use pageable host memory";
      return "";
    case HostKind::noncoherent:
      return "SYCL has no page-locked memory that is not coherent";
    case HostKind::managed:
      return "SYCL's shared memory migrates: use --host-memory migrated";
    case HostKind::migrated:
      if (!current_device().has(sycl::aspect::usm_shared_allocations)) return "the device has no shared memory";
      return "";
  }
  return "";
}

HostMemory::HostMemory(std::size_t bytes, HostKind kind, int numa_node) : kind_(kind) {
  if (bytes == 0) return;
  if (kind == HostKind::pageable) {
    pages_ = Pages(bytes, numa_node);
    data_ = on_device_ = pages_.data();
    return;
  }
  const MemoryPolicy policy(numa_node);
  void* memory = guarded("the allocation of host memory", [&] {
    return kind == HostKind::migrated
               ? sycl::aligned_alloc_shared(kAlignment, bytes, current_device(), shared_context())
               : sycl::aligned_alloc_host(kAlignment, bytes, shared_context());
  });
  if (memory == nullptr) {
    throw RunError("memory",
                   "no " + format_size(bytes) + " of such host memory: choose smaller --sizes or fewer ranks a node");
  }
  std::memset(memory, 0, bytes);
  data_ = on_device_ = static_cast<std::byte*>(memory);
}
HostMemory::~HostMemory() {
  if (pages_.data() == nullptr) release(data_);
}
HostMemory::HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(pages_, other.pages_);
  std::swap(data_, other.data_);
  std::swap(on_device_, other.on_device_);
  std::swap(kind_, other.kind_);
  return *this;
}
std::string HostMemory::allocation() const {
  switch (sycl::get_pointer_type(data_, shared_context())) {
    case sycl::usm::alloc::host:
      return "pinned";
    case sycl::usm::alloc::shared:
      return "managed";
    case sycl::usm::alloc::device:
      return "device";
    default:
      return "pageable";
  }
}

}  // namespace fabricbench::device
