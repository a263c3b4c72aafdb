// The kernels of the cuda and hip backends: they copy, fill, add, and check data.
#include <algorithm>
#include <utility>

#include "fabricbench/device/gpu_call.hpp"
#include "fabricbench/device/pattern.hpp"

namespace fabricbench::device {
namespace {

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

__global__ void fill_bytes(pattern::Stretch out, pattern::Pattern pattern, pattern::Words words, std::uint64_t flip) {
  for (std::uint64_t word = words.first + thread_index() * words.step; word < words.end;
       word += thread_count() * words.step)
    write_bytes(out, word, pattern, flip);
}

__global__ void fill_numbers(pattern::Stretch out, pattern::Pattern pattern, pattern::Words words) {
  for (std::uint64_t word = words.first + thread_index() * words.step; word < words.end;
       word += thread_count() * words.step)
    write_numbers(out, word, pattern);
}

__global__ void compare(pattern::Check check, unsigned long long* total) {
  const std::uint64_t wrong = wrong_for_worker(check, thread_index(), thread_count());
  if (wrong != 0) atomicAdd(total, static_cast<unsigned long long>(wrong));
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

// AMD's compiler has no load of 16 bytes that passes its caches by.
#if defined(FABRICBENCH_HIP) && !defined(__HIP_PLATFORM_NVIDIA__)
constexpr bool kPassesCaches = false;
__device__ uint4 load_over_link(const uint4* from) { return *from; }
#else
constexpr bool kPassesCaches = true;
__device__ uint4 load_over_link(const uint4* from) { return __ldcv(from); }
#endif

// 16 bytes a load, and several loads under way in each thread, which the compiler must not spread among the stores (so
// no __restrict__). A tile is what a block copies between two looks at where it is.
template <unsigned threads, unsigned unrolled, bool link>
__global__ void __launch_bounds__(threads)
    copy_quads(uint4* to, const uint4* from, std::uint64_t quads, pattern::Ring ring) {
  constexpr std::uint64_t tile = static_cast<std::uint64_t>(threads) * unrolled;
  const auto load = [](const uint4* at) { return link ? load_over_link(at) : *at; };
  for (std::uint64_t operation = 0; operation < ring.operations; ++operation) {
    uint4* out = to + ring.shift_of(operation) / sizeof(uint4);
    const uint4* in = from + ring.shift_of(operation) / sizeof(uint4);
    for (std::uint64_t first = blockIdx.x * tile; first < quads; first += gridDim.x * tile) {
      if (first + tile <= quads) {
        uint4 held[unrolled];
#pragma unroll
        for (unsigned k = 0; k < unrolled; ++k) held[k] = load(in + first + k * threads + threadIdx.x);
#pragma unroll
        for (unsigned k = 0; k < unrolled; ++k) out[first + k * threads + threadIdx.x] = held[k];
      } else {
        for (std::uint64_t i = first + threadIdx.x; i < quads; i += threads) out[i] = load(in + i);
      }
    }
  }
}

__global__ void copy_single_bytes(std::uint8_t* out, const volatile std::uint8_t* in, std::uint64_t bytes,
                                  pattern::Ring ring) {
  for (std::uint64_t operation = 0; operation < ring.operations; ++operation) {
    const std::uint64_t shift = ring.shift_of(operation);
    for (std::uint64_t i = thread_index(); i < bytes; i += thread_count()) out[shift + i] = in[shift + i];
  }
}

// Over a link, one block a multiprocessor holds all that can be under way and leaves room for a kernel that copies at
// the same time; shorter tiles are for what is too small to give each multiprocessor a long one. Inside the device's
// memory there is a block for each tile of one load a thread, and the scheduler keeps all of them full.
constexpr unsigned kUnrolledOverLink = 8;
constexpr unsigned kUnrolledShort = 2;
constexpr unsigned kThreadsInside = 256;
constexpr std::size_t kMostBlocks = std::size_t{1} << 20;  // HIP counts the threads of a grid in 32 bits

unsigned tiles_of(std::size_t quads, std::size_t tile, std::size_t most) {
  return static_cast<unsigned>(std::min((quads + tile - 1) / tile, most));
}

// Keeps its stream waiting; for ten seconds or so at most, in case the processor never says more.
__global__ void hold(const volatile int* released) {
  for (int looked = 0; *released == 0 && looked < 10'000'000; ++looked) {
  }
}

}  // namespace

bool kernel_reads_pass_caches() { return kPassesCaches; }

void Stream::copy_by_kernel(void* destination, const void* source, std::size_t bytes, bool link,
                            const pattern::Ring& ring) {
  const std::uint64_t addresses =
      reinterpret_cast<std::uint64_t>(destination) | reinterpret_cast<std::uint64_t>(source);
  const std::size_t quads = addresses % sizeof(uint4) == 0 ? bytes / sizeof(uint4) : 0;
  auto* out = static_cast<std::uint8_t*>(destination);
  const auto* in = static_cast<const std::uint8_t*>(source);
  const auto start = [&](auto kernel, unsigned threads, unsigned unrolled, std::size_t most) {
    kernel<<<tiles_of(quads, std::size_t{threads} * unrolled, most), threads, 0, native_stream(*this)>>>(
        static_cast<uint4*>(destination), static_cast<const uint4*>(source), quads, ring);
  };
  const bool fills_device = quads >= std::size_t{kThreads} * kUnrolledOverLink * multiprocessors();
  if (quads > 0 && !link) {
    start(copy_quads<kThreadsInside, 1, false>, kThreadsInside, 1, kMostBlocks);
  } else if (quads > 0 && fills_device) {
    start(copy_quads<kThreads, kUnrolledOverLink, true>, kThreads, kUnrolledOverLink, multiprocessors());
  } else if (quads > 0) {
    start(copy_quads<kThreads, kUnrolledShort, true>, kThreads, kUnrolledShort, multiprocessors());
  }
  const std::size_t done = quads * sizeof(uint4);
  if (bytes > done) {
    copy_single_bytes<<<blocks_for(bytes - done), kThreads, 0, native_stream(*this)>>>(out + done, in + done,
                                                                                       bytes - done, ring);
  }
  check(gpuGetLastError(), "copying by a kernel");
}

void Stream::fill(const pattern::Stretch& stretch, const pattern::Pattern& pattern, Content content, bool inverted,
                  bool stamps_only) {
  const pattern::Words words = words_of(stretch, pattern.stride, stamps_only);
  const unsigned blocks = blocks_for(words.count());
  if (content == Content::numbers) {
    fill_numbers<<<blocks, kThreads, 0, native_stream(*this)>>>(stretch, pattern, words);
  } else {
    fill_bytes<<<blocks, kThreads, 0, native_stream(*this)>>>(stretch, pattern, words,
                                                              inverted ? ~std::uint64_t{0} : 0);
  }
  check(gpuGetLastError(), "filling a buffer");
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

std::string why_no_trains() { return ""; }

TrainClock::TrainClock() : flag_(sizeof(int), HostKind::pinned) {
  gpuEvent_t first = nullptr;
  gpuEvent_t last = nullptr;
  check(gpuEventCreate(&first), "EventCreate");
  check(gpuEventCreate(&last), "EventCreate");
  first_ = first;
  last_ = last;
}
TrainClock::~TrainClock() {
  if (first_ != nullptr) report(gpuEventDestroy(static_cast<gpuEvent_t>(first_)), "EventDestroy");
  if (last_ != nullptr) report(gpuEventDestroy(static_cast<gpuEvent_t>(last_)), "EventDestroy");
}
TrainClock::TrainClock(TrainClock&& other) noexcept
    : flag_(std::move(other.flag_)),
      first_(std::exchange(other.first_, nullptr)),
      last_(std::exchange(other.last_, nullptr)) {}

void TrainClock::start(Stream& stream) {
  *reinterpret_cast<volatile int*>(flag_.data()) = 0;
  hold<<<1, 1, 0, native_stream(stream)>>>(reinterpret_cast<const int*>(flag_.on_device()));
  check(gpuGetLastError(), "holding a stream");
  check(gpuEventRecord(static_cast<gpuEvent_t>(first_), native_stream(stream)), "EventRecord");
}
void TrainClock::stop(Stream& stream) {
  check(gpuEventRecord(static_cast<gpuEvent_t>(last_), native_stream(stream)), "EventRecord");
}
void TrainClock::release() { *reinterpret_cast<volatile int*>(flag_.data()) = 1; }
std::int64_t TrainClock::ns() const {
  float milliseconds = 0;
  check(gpuEventElapsedTime(&milliseconds, static_cast<gpuEvent_t>(first_), static_cast<gpuEvent_t>(last_)),
        "EventElapsedTime");
  return static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6);
}

void Stream::count_wrong(const pattern::Check& data, std::size_t words, std::uint64_t* total) {
  compare<<<blocks_for(words), kThreads, 0, native_stream(*this)>>>(data, reinterpret_cast<unsigned long long*>(total));
  check(gpuGetLastError(), "the check of the data");
}

}  // namespace fabricbench::device
