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

std::size_t multiprocessors() {
  static const int number = [] {
    int device_index = 0;
    int value = 0;
    check(gpuGetDevice(&device_index), "GetDevice");
    check(gpuDeviceGetAttribute(&value, gpuMultiprocessors, device_index), "DeviceGetAttribute");
    return value;
  }();
  return static_cast<std::size_t>(number);
}

unsigned blocks_for(std::size_t items) {
  const std::size_t needed = (items + kThreads - 1) / kThreads;
  return static_cast<unsigned>(std::clamp<std::size_t>(needed, 1, 8 * multiprocessors()));
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

// 16 bytes a load, and several loads under way in each thread, which the compiler must not spread among the stores (so
// no __restrict__). A tile is what a block copies between two looks at where it is.
template <unsigned unrolled>
__global__ void __launch_bounds__(kThreads) copy_quads(uint4* out, const uint4* in, std::uint64_t quads) {
  constexpr std::uint64_t tile = static_cast<std::uint64_t>(kThreads) * unrolled;
  for (std::uint64_t first = blockIdx.x * tile; first < quads; first += gridDim.x * tile) {
    if (first + tile <= quads) {
      uint4 held[unrolled];
#pragma unroll
      for (unsigned k = 0; k < unrolled; ++k) held[k] = in[first + k * kThreads + threadIdx.x];
#pragma unroll
      for (unsigned k = 0; k < unrolled; ++k) out[first + k * kThreads + threadIdx.x] = held[k];
    } else {
      for (std::uint64_t i = first + threadIdx.x; i < quads; i += kThreads) out[i] = in[i];
    }
  }
}

__global__ void copy_single_bytes(std::uint8_t* out, const std::uint8_t* in, std::uint64_t bytes) {
  for (std::uint64_t i = thread_index(); i < bytes; i += thread_count()) out[i] = in[i];
}

// Over a link, one block a multiprocessor holds all that can be under way and leaves room for a kernel that copies at
// the same time; inside the device's memory there is a block for each tile, and the scheduler keeps all of them full.
constexpr unsigned kUnrolledOverLink = 8;
constexpr unsigned kUnrolledInside = 2;
constexpr std::size_t kMostBlocks = std::size_t{1} << 20;  // HIP counts the threads of a grid in 32 bits

unsigned tiles_of(std::size_t quads, unsigned unrolled, std::size_t most) {
  const std::size_t tile = std::size_t{kThreads} * unrolled;
  return static_cast<unsigned>(std::min((quads + tile - 1) / tile, most));
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

std::string lack_of(HostKind kind, bool by_kernel) {
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
      return "CUDA has no page-locked memory of its own that is not coherent";
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

void Stream::copy_by_kernel(void* destination, const void* source, std::size_t bytes, bool link) {
  const std::uint64_t addresses =
      reinterpret_cast<std::uint64_t>(destination) | reinterpret_cast<std::uint64_t>(source);
  const std::size_t quads = addresses % sizeof(uint4) == 0 ? bytes / sizeof(uint4) : 0;
  auto* out = static_cast<std::uint8_t*>(destination);
  const auto* in = static_cast<const std::uint8_t*>(source);
  if (quads > 0 && link) {
    copy_quads<kUnrolledOverLink>
        <<<tiles_of(quads, kUnrolledOverLink, multiprocessors()), kThreads, 0, native_stream(*this)>>>(
            static_cast<uint4*>(destination), static_cast<const uint4*>(source), quads);
  } else if (quads > 0) {
    copy_quads<kUnrolledInside><<<tiles_of(quads, kUnrolledInside, kMostBlocks), kThreads, 0, native_stream(*this)>>>(
        static_cast<uint4*>(destination), static_cast<const uint4*>(source), quads);
  }
  const std::size_t done = quads * sizeof(uint4);
  if (bytes > done) {
    copy_single_bytes<<<blocks_for(bytes - done), kThreads, 0, native_stream(*this)>>>(out + done, in + done,
                                                                                       bytes - done);
  }
  check(gpuGetLastError(), "copying by a kernel");
}

void Stream::migrate(void* managed, std::size_t bytes, bool to_host) {
  int device_index = gpuCpuDeviceId;
  if (!to_host) check(gpuGetDevice(&device_index), "GetDevice");
  check(mem_prefetch(managed, bytes, device_index, native_stream(*this)), "MemPrefetch");
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
