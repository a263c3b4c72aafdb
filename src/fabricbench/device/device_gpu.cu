// The cuda and hip backends: one source, under the names of api.hpp. Devices, their memory, and streams.
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "fabricbench/device/gpu_call.hpp"
#include "fabricbench/device/virtual_memory.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench::device {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool yields = false;

std::string dotted(int major, int minor) { return std::to_string(major) + "." + std::to_string(minor); }

std::string hexadecimal(const void* data, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<const unsigned char*>(data)[i]));
    text += digits;
  }
  return text;
}

}  // namespace

#if defined(FABRICBENCH_CUDA)
const char* backend() { return "cuda"; }
#else
const char* backend() { return "hip"; }
#endif
#if defined(FABRICBENCH_AMD)
const char* platform() { return "amd"; }
#else
const char* platform() { return "nvidia"; }
#endif
bool present() { return true; }
void wait_by_yielding() { yields = true; }
const char* what_to_check() { return "check the driver and CUDA_VISIBLE_DEVICES, or use the host backend"; }

Versions versions() {
  int runtime = 0;
  check(gpuRuntimeGetVersion(&runtime), "RuntimeGetVersion");
#if defined(FABRICBENCH_AMD)
  // 50221153 is HIP 5.2.21153; the kernel module gives its version in a file.
  return {"HIP", dotted(runtime / 10000000, runtime / 100000 % 100), first_line("/sys/module/amdgpu/version"), ""};
#elif defined(FABRICBENCH_HIP)
  return {"HIP on CUDA", dotted(runtime / 1000, runtime % 1000 / 10), first_line("/sys/module/nvidia/version"), ""};
#else
  return {"CUDA", dotted(runtime / 1000, runtime % 1000 / 10), first_line("/sys/module/nvidia/version"), ""};
#endif
}

int count() {
  int devices = 0;
  const gpuError_t result = gpuGetDeviceCount(&devices);
  if (result != gpuSuccess) {
    (void)gpuGetLastError();
    throw RunError("library", std::string("no GPU can be used: ") + gpuGetErrorString(result));
  }
  return devices;
}

void select(int index) { check(gpuSetDevice(index), "SetDevice"); }

Info info(int index) {
  Info result{};
  result.index = index;
  char bus_id[32] = "";
  check(gpuDeviceGetPCIBusId(bus_id, sizeof bus_id, index), "DeviceGetPCIBusId");
  result.bus_id = bus_id;
  std::transform(result.bus_id.begin(), result.bus_id.end(), result.bus_id.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
#if defined(FABRICBENCH_AMD)
  gpuDeviceProp properties;
  check(gpuGetDeviceProperties(&properties, index), "GetDeviceProperties");
  hipUUID uuid;
  check(hipDeviceGetUuid(&uuid, index), "DeviceGetUuid");
  result.uuid = "GPU-" + hexadecimal(&uuid, sizeof uuid);
#else
  // Also for HIP on NVIDIA devices, whose own structure has no UUID.
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess)
    throw RunError("library", "GetDeviceProperties failed");
  const std::string digits = hexadecimal(&properties.uuid, sizeof properties.uuid);
  result.uuid = "GPU-" + digits.substr(0, 8) + "-" + digits.substr(8, 4) + "-" + digits.substr(12, 4) + "-" +
                digits.substr(16, 4) + "-" + digits.substr(20);
#endif
  result.name = properties.name;
  result.memory_bytes = properties.totalGlobalMem;
  const std::string numa = first_line("/sys/bus/pci/devices/" + result.bus_id + "/numa_node");
  result.numa_node = numa.empty() ? -1 : std::atoi(numa.c_str());
  return result;
}

Memory::Memory(std::size_t bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  const gpuError_t result = gpuMalloc(&memory, bytes);
  if (result == gpuErrorMemoryAllocation) {
    (void)gpuGetLastError();
    throw RunError("memory", "the device has no " + format_size(bytes) +
                                 " free: choose smaller --sizes, or end other programs on it");
  }
  check(result, "Malloc");
  data_ = static_cast<std::byte*>(memory);
  release_ = [](std::byte* data) { report(gpuFree(data), "Free"); };
}

std::string why_no_peers(Handles handles) {
  if (handles != Handles::ipc) return virtual_memory::why_none(handles);
  const Memory memory(1);
  gpuIpcMemHandle_t native;
  const gpuError_t result = gpuIpcGetMemHandle(&native, memory.data());
  if (result == gpuSuccess) return "";
  (void)gpuGetLastError();
  return std::string("the GPU has no handles of its memory for other processes: ") + gpuGetErrorString(result);
}

Memory exportable(std::size_t bytes, Handles handles) {
  return handles == Handles::ipc || bytes == 0 ? Memory(bytes) : virtual_memory::allocate(bytes, handles);
}

IpcHandle export_memory(const Memory& memory, Handles handles) {
  if (handles != Handles::ipc) return virtual_memory::export_handle(memory, handles);
  gpuIpcMemHandle_t native;
  check(gpuIpcGetMemHandle(&native, memory.data()), "IpcGetMemHandle");
  IpcHandle handle{};
  static_assert(sizeof native <= sizeof handle, "an IPC handle is larger than expected");
  std::memcpy(handle.data(), &native, sizeof native);
  return handle;
}

Memory open_peer(const IpcHandle& handle, Handles handles) {
  if (handles != Handles::ipc) return virtual_memory::open(handle, handles);
  gpuIpcMemHandle_t native;
  std::memcpy(&native, handle.data(), sizeof native);
  void* memory = nullptr;
  check(gpuIpcOpenMemHandle(&memory, native, gpuIpcMemLazyEnablePeerAccess),
        "IpcOpenMemHandle (is peer access between the GPUs allowed?)");
  return Memory(static_cast<std::byte*>(memory),
                [](std::byte* data) { report(gpuIpcCloseMemHandle(data), "IpcCloseMemHandle"); });
}

Stream::Stream() {
  gpuStream_t stream = nullptr;
  check(gpuStreamCreateWithFlags(&stream, gpuStreamNonBlocking), "StreamCreate");
  native_ = stream;
}
Stream::~Stream() {
  if (native_ != nullptr) report(gpuStreamDestroy(static_cast<gpuStream_t>(native_)), "StreamDestroy");
}
Stream::Stream(Stream&& other) noexcept : native_(std::exchange(other.native_, nullptr)) {}

void Stream::copy(void* destination, const void* source, std::size_t bytes) {
  check(gpuMemcpyAsync(destination, source, bytes, gpuMemcpyDefault, native_stream(*this)), "MemcpyAsync");
}

void Stream::migrate(void* managed, std::size_t bytes, bool to_host) {
  int device_index = gpuCpuDeviceId;
  if (!to_host) check(gpuGetDevice(&device_index), "GetDevice");
  check(mem_prefetch(managed, bytes, device_index, native_stream(*this)), "MemPrefetch");
}

void Stream::set_byte(void* destination, std::size_t bytes, int value) {
  check(gpuMemsetAsync(destination, value, bytes, native_stream(*this)), "MemsetAsync");
}

Mark::Mark() {
  gpuEvent_t event = nullptr;
  check(gpuEventCreate(&event), "EventCreate");
  native_ = event;
}
Mark::~Mark() {
  if (native_ != nullptr) report(gpuEventDestroy(static_cast<gpuEvent_t>(native_)), "EventDestroy");
}
Mark::Mark(Mark&& other) noexcept : native_(std::exchange(other.native_, nullptr)) {}
void Mark::record(Stream& stream) {
  check(gpuEventRecord(static_cast<gpuEvent_t>(native_), native_stream(stream)), "EventRecord");
}
bool Mark::passed() const {
  const gpuError_t result = gpuEventQuery(static_cast<gpuEvent_t>(native_));
  if (result == gpuErrorNotReady) {
    (void)gpuGetLastError();  // not ready, in some versions
    return false;
  }
  check(result, "EventQuery");
  return true;
}
std::int64_t Mark::ns_since(const Mark& earlier) const {
  float milliseconds = 0;
  check(gpuEventElapsedTime(&milliseconds, static_cast<gpuEvent_t>(earlier.native_), static_cast<gpuEvent_t>(native_)),
        "EventElapsedTime");
  return static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6);
}

void Stream::synchronize() {
  if (!yields) return check(gpuStreamSynchronize(native_stream(*this)), "StreamSynchronize");
  gpuError_t result = gpuStreamQuery(native_stream(*this));
  if (result == gpuErrorNotReady) {
    do {
      sched_yield();
      result = gpuStreamQuery(native_stream(*this));
    } while (result == gpuErrorNotReady);
    (void)gpuGetLastError();  // not ready, in some versions
  }
  check(result, "StreamQuery");
}

}  // namespace fabricbench::device
