// libcuda.so.1, as far as fabricbench passes memory on by it: memory that the driver maps, and its handles. An address
// range is reserved, and given its place, when memory is mapped; handles of a fabric are those of a node, as the nodes
// of an NVLink domain are emulated as one with the GPUs of all.
#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "core/memory.hpp"
#include "core/runtime.hpp"

using namespace emulation;

namespace {

constexpr std::size_t kGranularity = 2 << 20;

// A handle of this process: of its own memory, which goes with it unless it is mapped, or of that of another one.
struct Native {
  Handle handle;
  bool goes;
};

Native* native(CUmemGenericAllocationHandle handle) { return reinterpret_cast<Native*>(handle); }

CUmemGenericAllocationHandle known(const Handle& handle, bool goes) {
  return reinterpret_cast<CUmemGenericAllocationHandle>(new Native{handle, goes});
}

bool says(const char* name) { return current_gpu().facts[name].truth(false); }

CUresult answer(Result result) {
  switch (result) {
    case Result::success:
      return CUDA_SUCCESS;
    case Result::out_of_memory:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case Result::no_peer_access:
      return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    case Result::unknown_pointer:
    case Result::invalid:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_ERROR_UNKNOWN;
}

}  // namespace

extern "C" {

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY             ? "out of memory"
          : error == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED ? "peer access is not supported between these two devices"
          : error == CUDA_ERROR_NOT_PERMITTED           ? "operation not permitted"
                                                        : "invalid argument";
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  *device = current_ordinal();
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  *value = which == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED ||
           (which == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED && says("fabric"));
  return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationGranularity(size_t* step, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *step = kGranularity;
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* wanted,
                     unsigned long long) {
  if (wanted->requestedHandleTypes == CU_MEM_HANDLE_TYPE_FABRIC && !says("imex")) return CUDA_ERROR_NOT_PERMITTED;
  Handle made{};
  const Result result = create_device(made, bytes, current_gpu().vertex);
  if (result == Result::success) *handle = known(made, true);
  return answer(result);
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (native(handle)->goes) destroy_device(native(handle)->handle);
  delete native(handle);
  return CUDA_SUCCESS;
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  Handle found{};
  const Result result = handle_of(address, found);
  if (result == Result::success) *handle = known(found, false);
  return answer(result);
}
CUresult cuMemAddressReserve(CUdeviceptr* place, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  const std::size_t whole = contents_bytes() + bytes;
  void* found = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *place = reinterpret_cast<CUdeviceptr>(found) + contents_bytes();
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr place, size_t, size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
  void* pointer = reinterpret_cast<void*>(place);
  native(handle)->goes = false;
  if (native(handle)->handle.pid == getpid()) return answer(map_device(&pointer, native(handle)->handle, pointer));
  return answer(open_handle(&pointer, native(handle)->handle, current_gpu().vertex, pointer));
}
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }
CUresult cuMemGetAddressRange_v2(CUdeviceptr* begin, size_t* bytes, CUdeviceptr place) {
  const auto region = region_of(reinterpret_cast<void*>(place));
  if (!region) return CUDA_ERROR_INVALID_VALUE;
  if (begin != nullptr) *begin = region->begin;
  *bytes = region->bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr place, size_t) {
  void* pointer = reinterpret_cast<void*>(place);
  const auto region = region_of(pointer);
  return answer(region && region->kind == Kind::opened ? close_handle(pointer) : release(pointer));
}
CUresult cuMemAddressFree(CUdeviceptr, size_t) { return CUDA_SUCCESS; }
CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                      unsigned long long) {
  const Handle& own = native(handle)->handle;
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
    std::memcpy(out, &own, sizeof own);
    return CUDA_SUCCESS;
  }
  const int file = memfd_create("emulated-memory", MFD_CLOEXEC);
  if (file < 0 || pwrite(file, &own, sizeof own, 0) != static_cast<ssize_t>(sizeof own)) return CUDA_ERROR_UNKNOWN;
  *static_cast<int*>(out) = file;
  return CUDA_SUCCESS;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* in,
                                        CUmemAllocationHandleType type) {
  Handle theirs{};
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
    std::memcpy(&theirs, in, sizeof theirs);
  } else {
    const int file = static_cast<int>(reinterpret_cast<std::intptr_t>(in));
    if (pread(file, &theirs, sizeof theirs, 0) != static_cast<ssize_t>(sizeof theirs)) return CUDA_ERROR_INVALID_VALUE;
  }
  *handle = known(theirs, false);
  return CUDA_SUCCESS;
}

}  // extern "C"
