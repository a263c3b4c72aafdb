// The cuda and hip ports: one source, under the names of api.hpp.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "fabricbench/device/api.hpp"
#include "fabricbench/device/device.hpp"
#include "fabricbench/device/pattern.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench::device {
namespace {

void check(gpuError_t result, const char* call) {
  if (result == gpuSuccess) return;
  (void)gpuGetLastError();
  throw RunError("library", std::string(call) + " failed: " + gpuGetErrorString(result));
}

// What must not throw, because it runs in a destructor, says what went wrong instead.
void report(gpuError_t result, const char* call) {
  if (result != gpuSuccess) std::fprintf(stderr, "fabricbench: %s failed: %s\n", call, gpuGetErrorString(result));
}

gpuStream_t native_stream(const Stream& stream) { return static_cast<gpuStream_t>(stream.native()); }

constexpr unsigned kThreads = 512;

unsigned blocks_for(std::size_t items) {
  static const int limit = [] {
    int device_index = 0;
    int multiprocessors = 0;
    check(GPU_NAME(GetDevice)(&device_index), "GetDevice");
    check(gpuDeviceGetAttribute(&multiprocessors, gpuMultiprocessors, device_index), "DeviceGetAttribute");
    return 8 * multiprocessors;
  }();
  const std::size_t needed = (items + kThreads - 1) / kThreads;
  return static_cast<unsigned>(std::clamp<std::size_t>(needed, 1, static_cast<std::size_t>(limit)));
}

__device__ std::uint64_t thread_index() { return blockIdx.x * static_cast<std::uint64_t>(blockDim.x) + threadIdx.x; }
__device__ std::uint64_t thread_count() { return gridDim.x * static_cast<std::uint64_t>(blockDim.x); }

__global__ void fill_words(std::uint64_t* out, std::uint64_t words, std::uint64_t first, std::uint64_t seed,
                           std::uint64_t flip) {
  for (std::uint64_t i = thread_index(); i < words; i += thread_count())
    out[i] = pattern::bytes_of_word(seed, first + i) ^ flip;
}

__global__ void fill_bytes(std::uint8_t* out, std::uint64_t bytes, std::uint64_t position, std::uint64_t seed,
                           std::uint8_t flip) {
  for (std::uint64_t i = thread_index(); i < bytes; i += thread_count()) {
    out[i] = static_cast<std::uint8_t>(pattern::byte_at(seed, position + i) ^ flip);
  }
}

__global__ void fill_floats(std::uint32_t* out, std::uint64_t count, std::uint64_t first, std::uint64_t seed,
                            std::uint32_t flip) {
  for (std::uint64_t i = thread_index(); i < count; i += thread_count()) {
    out[i] = pattern::bits_of(pattern::float_at(seed, first + i)) ^ flip;
  }
}

__device__ void add_up(unsigned long long* total, int wrong) {
  if (wrong != 0) atomicAdd(total, static_cast<unsigned long long>(wrong));
}

__global__ void compare_words(const std::uint64_t* in, std::uint64_t words, std::uint64_t first, std::uint64_t seed,
                              unsigned long long* total) {
  int wrong = 0;
  for (std::uint64_t i = thread_index(); i < words; i += thread_count()) {
    wrong += pattern::differing_bytes(in[i], pattern::bytes_of_word(seed, first + i));
  }
  add_up(total, wrong);
}

__global__ void compare_bytes(const std::uint8_t* in, std::uint64_t bytes, std::uint64_t position, std::uint64_t seed,
                              unsigned long long* total) {
  int wrong = 0;
  for (std::uint64_t i = thread_index(); i < bytes; i += thread_count())
    wrong += in[i] != pattern::byte_at(seed, position + i) ? 1 : 0;
  add_up(total, wrong);
}

__global__ void compare_sums(const std::uint32_t* in, std::uint64_t count, std::uint64_t first,
                             const std::uint64_t* seeds, int ranks, unsigned long long* total) {
  int wrong = 0;
  for (std::uint64_t i = thread_index(); i < count; i += thread_count()) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += pattern::float_at(seeds[rank], first + i);
    wrong += pattern::differing_bytes(in[i], pattern::bits_of(sum));
  }
  add_up(total, wrong);
}

constexpr int kMostInputs = 16;
struct Inputs {
  const float* of[kMostInputs];
};

__global__ void add_inputs(float* out, Inputs inputs, int inputs_count, bool onto, std::uint64_t count) {
  // Four floats a thread and step where everything is aligned: peers are read in 16-byte words.
  std::uint64_t addresses = reinterpret_cast<std::uint64_t>(out);
  for (int k = 0; k < inputs_count; ++k) addresses |= reinterpret_cast<std::uint64_t>(inputs.of[k]);
  const std::uint64_t quads = addresses % sizeof(float4) == 0 ? count / 4 : 0;
  for (std::uint64_t i = thread_index(); i < quads; i += thread_count()) {
    float4 sum = onto ? reinterpret_cast<float4*>(out)[i] : float4{0, 0, 0, 0};
    for (int k = 0; k < inputs_count; ++k) {
      const float4 value = reinterpret_cast<const float4*>(inputs.of[k])[i];
      sum.x += value.x;
      sum.y += value.y;
      sum.z += value.z;
      sum.w += value.w;
    }
    reinterpret_cast<float4*>(out)[i] = sum;
  }
  for (std::uint64_t i = 4 * quads + thread_index(); i < count; i += thread_count()) {
    float sum = onto ? out[i] : 0;
    for (int k = 0; k < inputs_count; ++k) sum += inputs.of[k][i];
    out[i] = sum;
  }
}

bool aligned(const void* data, std::uint64_t position) {
  return reinterpret_cast<std::uint64_t>(data) % 8 == 0 && position % 8 == 0;
}

// A counter on the device, read back.
class Counter {
 public:
  explicit Counter(Stream& stream) : stream_(stream), memory_(sizeof(unsigned long long)) {
    stream.set_byte(memory_.data(), sizeof(unsigned long long), 0);
  }
  unsigned long long* on_device() { return reinterpret_cast<unsigned long long*>(memory_.data()); }
  std::uint64_t read() {
    check(gpuGetLastError(), "the check of the data");
    unsigned long long value = 0;
    stream_.copy(&value, memory_.data(), sizeof value);
    stream_.synchronize();
    return value;
  }

 private:
  Stream& stream_;
  Memory memory_;
};

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

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
const char* port() { return "cuda"; }
#else
const char* port() { return "hip"; }
#endif
#if defined(FABRICBENCH_AMD)
const char* platform() { return "amd"; }
#else
const char* platform() { return "nvidia"; }
#endif
bool present() { return true; }

Versions versions() {
  int runtime = 0;
  check(gpuRuntimeGetVersion(&runtime), "RuntimeGetVersion");
#if defined(FABRICBENCH_AMD)
  // 50221153 is HIP 5.2.21153; the kernel module gives its version in a file.
  return {"HIP", dotted(runtime / 10000000, runtime / 100000 % 100), first_line("/sys/module/amdgpu/version")};
#elif defined(FABRICBENCH_HIP)
  return {"HIP on CUDA", dotted(runtime / 1000, runtime % 1000 / 10), first_line("/sys/module/nvidia/version")};
#else
  return {"CUDA", dotted(runtime / 1000, runtime % 1000 / 10), first_line("/sys/module/nvidia/version")};
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
                                 " free: choose smaller --sizes, or end what else runs on it");
  }
  check(result, "Malloc");
  data_ = static_cast<std::byte*>(memory);
}
Memory::~Memory() {
  if (data_ != nullptr) report(gpuFree(data_), "Free");
}
Memory::Memory(Memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

PinnedMemory::PinnedMemory(std::size_t bytes) {
  void* memory = nullptr;
  const gpuError_t result = gpuHostAllocate(&memory, bytes);
  if (result == gpuErrorMemoryAllocation) {
    (void)gpuGetLastError();
    throw RunError("memory", "no " + format_size(bytes) +
                                 " of page-locked host memory: choose smaller --sizes or fewer ranks a node");
  }
  check(result, "HostAlloc");
  data_ = static_cast<std::byte*>(memory);
}
PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) report(gpuHostRelease(data_), "FreeHost");
}

IpcHandle export_memory(const Memory& memory) {
  gpuIpcMemHandle_t native;
  check(gpuIpcGetMemHandle(&native, memory.data()), "IpcGetMemHandle");
  IpcHandle handle{};
  static_assert(sizeof native <= sizeof handle, "an IPC handle is larger than expected");
  std::memcpy(handle.data(), &native, sizeof native);
  return handle;
}

PeerMemory::PeerMemory(const IpcHandle& handle) {
  gpuIpcMemHandle_t native;
  std::memcpy(&native, handle.data(), sizeof native);
  void* memory = nullptr;
  check(gpuIpcOpenMemHandle(&memory, native, gpuIpcMemLazyEnablePeerAccess),
        "IpcOpenMemHandle (is peer access between the GPUs allowed?)");
  data_ = static_cast<std::byte*>(memory);
}
PeerMemory::~PeerMemory() {
  if (data_ != nullptr) report(gpuIpcCloseMemHandle(data_), "IpcCloseMemHandle");
}
PeerMemory::PeerMemory(PeerMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}

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

void Stream::fill(void* destination, std::size_t bytes, std::uint64_t position, std::uint64_t seed, Content content,
                  bool inverted) {
  const std::uint64_t flip = inverted ? ~std::uint64_t{0} : 0;
  if (content == Content::floats) {
    fill_floats<<<blocks_for(bytes / 4), kThreads, 0, native_stream(*this)>>>(
        static_cast<std::uint32_t*>(destination), bytes / 4, position / 4, seed, static_cast<std::uint32_t>(flip));
  } else {
    const std::size_t words = aligned(destination, position) ? bytes / 8 : 0;
    auto* out = static_cast<std::uint8_t*>(destination);
    if (words > 0)
      fill_words<<<blocks_for(words), kThreads, 0, native_stream(*this)>>>(static_cast<std::uint64_t*>(destination),
                                                                           words, position / 8, seed, flip);
    if (bytes > 8 * words) {
      fill_bytes<<<blocks_for(bytes - 8 * words), kThreads, 0, native_stream(*this)>>>(
          out + 8 * words, bytes - 8 * words, position + 8 * words, seed, static_cast<std::uint8_t>(flip));
    }
  }
  check(gpuGetLastError(), "filling a buffer");
}

void Stream::set_byte(void* destination, std::size_t bytes, int value) {
  check(gpuMemsetAsync(destination, value, bytes, native_stream(*this)), "MemsetAsync");
}

void Stream::sum(float* out, const std::vector<const float*>& inputs, std::size_t elements) {
  for (std::size_t first = 0; first < inputs.size(); first += kMostInputs) {
    Inputs some{};
    const std::size_t number = std::min<std::size_t>(kMostInputs, inputs.size() - first);
    std::copy_n(inputs.begin() + static_cast<std::ptrdiff_t>(first), number, some.of);
    add_inputs<<<blocks_for(elements / 4 + 1), kThreads, 0, native_stream(*this)>>>(out, some, static_cast<int>(number),
                                                                                    first > 0, elements);
  }
  check(gpuGetLastError(), "adding buffers");
}

void Stream::synchronize() { check(gpuStreamSynchronize(native_stream(*this)), "StreamSynchronize"); }

std::uint64_t count_wrong(Stream& stream, const void* data, std::size_t bytes, std::uint64_t position,
                          std::uint64_t seed, Content content) {
  if (content == Content::floats) return count_wrong_sums(stream, data, bytes, position, {seed});
  Counter counter(stream);
  const std::size_t words = aligned(data, position) ? bytes / 8 : 0;
  if (words > 0)
    compare_words<<<blocks_for(words), kThreads, 0, native_stream(stream)>>>(
        static_cast<const std::uint64_t*>(data), words, position / 8, seed, counter.on_device());
  if (bytes > 8 * words) {
    compare_bytes<<<blocks_for(bytes - 8 * words), kThreads, 0, native_stream(stream)>>>(
        static_cast<const std::uint8_t*>(data) + 8 * words, bytes - 8 * words, position + 8 * words, seed,
        counter.on_device());
  }
  return counter.read();
}

std::uint64_t count_wrong_sums(Stream& stream, const void* data, std::size_t bytes, std::uint64_t position,
                               const std::vector<std::uint64_t>& seeds) {
  Counter counter(stream);
  Memory on_device(seeds.size() * sizeof(std::uint64_t));
  stream.copy(on_device.data(), seeds.data(), seeds.size() * sizeof(std::uint64_t));
  compare_sums<<<blocks_for(bytes / 4), kThreads, 0, native_stream(stream)>>>(
      static_cast<const std::uint32_t*>(data), bytes / 4, position / 4,
      reinterpret_cast<const std::uint64_t*>(on_device.data()), static_cast<int>(seeds.size()), counter.on_device());
  return counter.read();
}

}  // namespace fabricbench::device
