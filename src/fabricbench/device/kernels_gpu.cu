// The kernels of the cuda and hip backends: they copy, fill, add, and check data.
#include <algorithm>

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

}  // namespace

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
