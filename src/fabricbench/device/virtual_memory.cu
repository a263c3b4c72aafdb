#include "fabricbench/device/virtual_memory.hpp"

#include "fabricbench/errors.hpp"

#if defined(FABRICBENCH_CUDA)
#include <cuda.h>
#endif

// CUDA 12.3 is the first with handles of a fabric.
#if defined(FABRICBENCH_CUDA) && CUDA_VERSION >= 12030
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "fabricbench/descriptors.hpp"
#include "fabricbench/shared_library.hpp"

namespace fabricbench::device::virtual_memory {
namespace {

struct Driver {
  decltype(&cuGetErrorString) error_text = nullptr;
  decltype(&cuCtxGetDevice) device = nullptr;
  decltype(&cuDeviceGetAttribute) attribute = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemRetainAllocationHandle) retain = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) give_back = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemGetAddressRange) range = nullptr;
  decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
  decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
  std::string missing;
};

const Driver& driver() {
  static const Driver loaded = [] {
    Driver result;
    SharedLibrary library("libcuda.so.1");
    library.find(result.error_text, "cuGetErrorString");
    library.find(result.device, "cuCtxGetDevice");
    library.find(result.attribute, "cuDeviceGetAttribute");
    library.find(result.granularity, "cuMemGetAllocationGranularity");
    library.find(result.create, "cuMemCreate");
    library.find(result.release, "cuMemRelease");
    library.find(result.retain, "cuMemRetainAllocationHandle");
    library.find(result.reserve, "cuMemAddressReserve");
    library.find(result.give_back, "cuMemAddressFree");
    library.find(result.map, "cuMemMap");
    library.find(result.unmap, "cuMemUnmap");
    library.find(result.set_access, "cuMemSetAccess");
    library.find(result.range, "cuMemGetAddressRange_v2");
    library.find(result.export_handle, "cuMemExportToShareableHandle");
    library.find(result.import_handle, "cuMemImportFromShareableHandle");
    result.missing = library.missing();
    return result;
  }();
  return loaded;
}

std::string text_of(CUresult result, const char* call) {
  const char* text = nullptr;
  (void)driver().error_text(result, &text);
  return std::string(call) + " failed: " + (text == nullptr ? std::to_string(result) : text);
}

void check(CUresult result, const char* call) {
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    throw RunError("memory", "the device has no memory free: choose smaller --sizes, or end what else runs on it");
  if (result != CUDA_SUCCESS) throw RunError("library", text_of(result, call));
}

void report(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) std::fprintf(stderr, "fabricbench: %s\n", text_of(result, call).c_str());
}

CUmemAllocationHandleType type_of(Handles handles) {
  return handles == Handles::fabric ? CU_MEM_HANDLE_TYPE_FABRIC : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

CUmemLocation here() {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  check(driver().device(&location.id), "cuCtxGetDevice");
  return location;
}

CUmemAllocationProp properties(Handles handles) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = here();
  wanted.requestedHandleTypes = type_of(handles);
  return wanted;
}

std::size_t granularity(const CUmemAllocationProp& wanted) {
  std::size_t step = 0;
  check(driver().granularity(&step, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "cuMemGetAllocationGranularity");
  return step;
}

CUdeviceptr address_of(const std::byte* data) { return reinterpret_cast<CUdeviceptr>(data); }

void unmap(std::byte* data) {
  std::size_t bytes = 0;
  report(driver().range(nullptr, &bytes, address_of(data)), "cuMemGetAddressRange");
  report(driver().unmap(address_of(data), bytes), "cuMemUnmap");
  report(driver().give_back(address_of(data), bytes), "cuMemAddressFree");
}

// The memory lasts as long as it is mapped.
Memory map(CUmemGenericAllocationHandle memory, std::size_t bytes) {
  CUdeviceptr place = 0;
  check(driver().reserve(&place, bytes, 0, 0, 0), "cuMemAddressReserve");
  check(driver().map(place, bytes, 0, memory, 0), "cuMemMap");
  check(driver().release(memory), "cuMemRelease");
  const CUmemAccessDesc access{here(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  check(driver().set_access(place, bytes, &access, 1), "cuMemSetAccess (is peer access between the GPUs allowed?)");
  return Memory(reinterpret_cast<std::byte*>(place), unmap);
}

// What goes from process to process.
struct Exported {
  std::uint64_t bytes;
  std::int32_t pid;
  std::int32_t descriptor;  // of that process
  CUmemFabricHandle fabric;
};
static_assert(sizeof(Exported) <= sizeof(IpcHandle), "an IPC handle is larger than expected");

}  // namespace

std::string why_none(Handles handles) {
  if (!driver().missing.empty()) return driver().missing + ": is the driver one of CUDA 12.3 or newer?";
  const bool fabric = handles == Handles::fabric;
  int able = 0;
  const CUresult asked = driver().attribute(&able,
                                            fabric ? CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED
                                                   : CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                            here().id);
  const std::string what = fabric ? "the GPU has no handles of its memory for the fabric of an NVLink domain"
                                  : "the GPU has no descriptors of its memory";
  if (asked != CUDA_SUCCESS || able == 0) return what;
  const CUmemAllocationProp wanted = properties(handles);
  CUmemGenericAllocationHandle memory = 0;
  // An attribute does not know whether there is an IMEX channel.
  const CUresult result = driver().create(&memory, granularity(wanted), &wanted, 0);
  if (result == CUDA_SUCCESS) return report(driver().release(memory), "cuMemRelease"), "";
  return what + (fabric ? " (do nvidia-imex and /dev/nvidia-caps-imex-channels/channel0 exist?): " : ": ") +
         text_of(result, "cuMemCreate");
}

Memory allocate(std::size_t bytes, Handles handles) {
  const CUmemAllocationProp wanted = properties(handles);
  const std::size_t step = granularity(wanted);
  const std::size_t whole = (bytes + step - 1) / step * step;
  CUmemGenericAllocationHandle memory = 0;
  check(driver().create(&memory, whole, &wanted, 0), "cuMemCreate");
  return map(memory, whole);
}

IpcHandle export_handle(const Memory& memory, Handles handles) {
  Exported exported{};
  exported.pid = getpid();
  std::size_t bytes = 0;
  check(driver().range(nullptr, &bytes, address_of(memory.data())), "cuMemGetAddressRange");
  exported.bytes = bytes;
  CUmemGenericAllocationHandle native = 0;
  check(driver().retain(&native, memory.data()), "cuMemRetainAllocationHandle");
  // A descriptor stays open until this process ends: nobody says when all others have fetched it.
  void* handle = handles == Handles::fabric ? static_cast<void*>(&exported.fabric) : &exported.descriptor;
  check(driver().export_handle(handle, native, type_of(handles), 0), "cuMemExportToShareableHandle");
  check(driver().release(native), "cuMemRelease");
  if (handles == Handles::vmm) let_descriptors_be_fetched();
  IpcHandle result{};
  std::memcpy(result.data(), &exported, sizeof exported);
  return result;
}

Memory open(const IpcHandle& handle, Handles handles) {
  Exported exported;
  std::memcpy(&exported, handle.data(), sizeof exported);
  CUmemGenericAllocationHandle native = 0;
  if (handles == Handles::fabric) {
    check(
        driver().import_handle(&native, &exported.fabric, CU_MEM_HANDLE_TYPE_FABRIC),
        "cuMemImportFromShareableHandle (are both GPUs in one NVLink domain, and does nvidia-imex run on both nodes?)");
  } else {
    const int mine = fetch_descriptor(exported.pid, exported.descriptor);
    const CUresult result = driver().import_handle(&native, reinterpret_cast<void*>(static_cast<std::intptr_t>(mine)),
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ::close(mine);
    check(result, "cuMemImportFromShareableHandle");
  }
  return map(native, exported.bytes);
}

}  // namespace fabricbench::device::virtual_memory

#else

namespace fabricbench::device::virtual_memory {

std::string why_none(Handles) {
  return "only memory of CUDA has such handles, and this fabricbench was built without CUDA 12.3 or newer";
}
Memory allocate(std::size_t, Handles handles) { throw RunError("library", why_none(handles)); }
IpcHandle export_handle(const Memory&, Handles handles) { throw RunError("library", why_none(handles)); }
Memory open(const IpcHandle&, Handles handles) { throw RunError("library", why_none(handles)); }

}  // namespace fabricbench::device::virtual_memory

#endif
