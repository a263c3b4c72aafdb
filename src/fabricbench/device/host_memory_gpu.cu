// Host memory of the cuda and hip backends: pageable, page-locked and managed.
#include <utility>

#include "fabricbench/device/gpu_call.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench::device {
namespace {

gpuError_t allocate_host(void** memory, std::size_t bytes, HostKind kind) {
  if (kind == HostKind::managed || kind == HostKind::migrated) return gpuManagedAllocate(memory, bytes);
#if defined(FABRICBENCH_AMD)
  if (kind == HostKind::noncoherent) return hipHostMalloc(memory, bytes, hipHostMallocNonCoherent);
#endif
  return gpuHostAllocate(memory, bytes);
}

// Devices use managed memory where it lies instead of drawing its pages to them.
void keep_on_host(void* memory, std::size_t bytes) {
  int device_index = 0;
  int concurrent = 0;
  check(gpuGetDevice(&device_index), "GetDevice");
  check(gpuDeviceGetAttribute(&concurrent, gpuConcurrentManagedAccess, device_index), "DeviceGetAttribute");
  if (concurrent == 0) return;  // an AMD device that does not retry page faults never draws pages to it
  check(mem_advise(memory, bytes, gpuMemAdviseSetPreferredLocation, gpuCpuDeviceId), "MemAdvise");
  check(mem_advise(memory, bytes, gpuMemAdviseSetAccessedBy, device_index), "MemAdvise");
}

}  // namespace

std::string why_unsupported(HostKind kind, bool by_kernel) {
  const auto has = [](auto attribute) {
    int device_index = 0;
    int value = 0;
    check(gpuGetDevice(&device_index), "GetDevice");
    check(gpuDeviceGetAttribute(&value, attribute, device_index), "DeviceGetAttribute");
    return value != 0;
  };
  switch (kind) {
    case HostKind::pinned:
      return "";
    case HostKind::pageable:
      if (by_kernel && !has(gpuPageableMemoryAccess)) return "kernels of this device cannot use pageable host memory";
      return "";
    case HostKind::noncoherent:
#if defined(FABRICBENCH_AMD)
      return "";
#else
      return "CUDA has no page-locked memory that is not coherent";
#endif
    case HostKind::managed:
#if !defined(FABRICBENCH_AMD)
      if (!has(gpuConcurrentManagedAccess))
        return "this device and its host cannot use managed memory at the same time";
#endif
      return "";
    case HostKind::migrated:
      if (!has(gpuConcurrentManagedAccess))
        return "this device and its host cannot use managed memory at the same time";
#if defined(FABRICBENCH_AMD)
      if (!has(gpuPageableMemoryAccess)) return "the device does not retry page faults: set HSA_XNACK=1";
#endif
      return "";
  }
  return "";
}

HostMemory::HostMemory(std::size_t bytes, HostKind kind, int numa_node) : kind_(kind) {
  if (bytes == 0) return;
  if (kind == HostKind::pageable || numa_node != kAnyNode) pages_ = Pages(bytes, numa_node);
  data_ = pages_.data();
  if (kind == HostKind::pageable) {
    on_device_ = data_;
    return;
  }
  void* memory = data_;
  if (data_ != nullptr) {
    check(gpuHostRegister(memory, bytes, gpuHostRegisterMapped), "HostRegister");
  } else {
    const gpuError_t result = allocate_host(&memory, bytes, kind);
    if (result == gpuErrorMemoryAllocation) {
      (void)gpuGetLastError();
      throw RunError("memory",
                     "no " + format_size(bytes) + " of such host memory: choose smaller --sizes or fewer ranks a node");
    }
    check(result, "the allocation of host memory");
    data_ = static_cast<std::byte*>(memory);
  }
  if (kind == HostKind::managed) keep_on_host(memory, bytes);
  void* seen_by_device = memory;
  if (kind == HostKind::pinned || kind == HostKind::noncoherent)
    check(gpuHostGetDevicePointer(&seen_by_device, memory, 0), "HostGetDevicePointer");
  on_device_ = static_cast<std::byte*>(seen_by_device);
}
HostMemory::~HostMemory() {
  if (data_ == nullptr || kind_ == HostKind::pageable) return;
  if (pages_.data() != nullptr) {
    report(gpuHostUnregister(data_), "HostUnregister");
  } else if (kind_ == HostKind::managed || kind_ == HostKind::migrated) {
    report(gpuFree(data_), "Free");
  } else {
    report(gpuHostRelease(data_), "FreeHost");
  }
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
#if defined(FABRICBENCH_AMD)
  hipPointerAttribute_t attributes;
  if (hipPointerGetAttributes(&attributes, data_) != hipSuccess) {
    (void)hipGetLastError();
    return "pageable";
  }
#if HIP_VERSION_MAJOR >= 6
  const bool on_host = attributes.type == hipMemoryTypeHost;
  const bool known = attributes.type != hipMemoryTypeUnregistered;
#else
  const bool on_host = attributes.memoryType == hipMemoryTypeHost;
  const bool known = true;
#endif
  if (attributes.isManaged != 0) return "managed";
  if (!known) return "pageable";
  if (!on_host) return "device";
  return (attributes.allocationFlags & hipHostMallocNonCoherent) != 0 ? "noncoherent" : "pinned";
#else
  // Also for HIP on NVIDIA devices.
  cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, data_) != cudaSuccess)
    throw RunError("library", "PointerGetAttributes failed");
  return attributes.type == cudaMemoryTypeUnregistered ? "pageable"
         : attributes.type == cudaMemoryTypeManaged    ? "managed"
         : attributes.type == cudaMemoryTypeHost       ? "pinned"
                                                       : "device";
#endif
}

}  // namespace fabricbench::device
