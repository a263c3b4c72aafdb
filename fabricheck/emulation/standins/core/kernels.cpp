#include "core/kernels.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "core/description.hpp"
#include "core/ending.hpp"
#include "core/managed.hpp"
#include "core/memory.hpp"
#include "fabricbench/device/pattern.hpp"

namespace emulation {
namespace {

namespace pattern = fabricbench::pattern;

constexpr std::size_t kCaptured = 64 << 10;
constexpr int kMostInputs = 16;
struct Inputs {
  const float* of[kMostInputs];
};

template <typename Value>
Value argument(void** arguments, int number) {
  return *static_cast<Value*>(arguments[number]);
}

std::int64_t latency() { return description().latency_ns[static_cast<std::size_t>(Mover::kernel)]; }

template <typename Value>
using Writer = void (*)(Value* out, std::uint64_t count, std::uint64_t first, std::uint64_t seed, Value flip);

template <typename Value, Writer<Value> write>
void fill(void** arguments, Stream& stream) {
  auto* out = argument<Value*>(arguments, 0);
  const auto count = argument<std::uint64_t>(arguments, 1);
  const auto first = argument<std::uint64_t>(arguments, 2);
  const auto seed = argument<std::uint64_t>(arguments, 3);
  const auto flip = argument<Value>(arguments, 4);
  stream.enqueue({}, latency(), [=] {
    wrote(out, count * sizeof(Value));
    write(out, count, first, seed, flip);
  });
}

void write_words(std::uint64_t* out, std::uint64_t words, std::uint64_t first, std::uint64_t seed, std::uint64_t flip) {
  for (std::uint64_t i = 0; i < words; ++i) out[i] = pattern::bytes_of_word(seed, first + i) ^ flip;
}
void write_bytes(std::uint8_t* out, std::uint64_t bytes, std::uint64_t position, std::uint64_t seed,
                 std::uint8_t flip) {
  for (std::uint64_t i = 0; i < bytes; ++i)
    out[i] = static_cast<std::uint8_t>(pattern::byte_at(seed, position + i) ^ flip);
}
void write_floats(std::uint32_t* out, std::uint64_t count, std::uint64_t first, std::uint64_t seed,
                  std::uint32_t flip) {
  for (std::uint64_t i = 0; i < count; ++i) out[i] = pattern::bits_of(pattern::float_at(seed, first + i)) ^ flip;
}

void compare_words(void** arguments, Stream& stream) {
  const auto* in = argument<const std::uint64_t*>(arguments, 0);
  const auto words = argument<std::uint64_t>(arguments, 1);
  const auto first = argument<std::uint64_t>(arguments, 2);
  const auto seed = argument<std::uint64_t>(arguments, 3);
  auto* total = argument<unsigned long long*>(arguments, 4);
  stream.enqueue({}, latency(), [=] {
    for (std::uint64_t i = 0; i < words; ++i)
      *total += static_cast<unsigned>(pattern::differing_bytes(in[i], pattern::bytes_of_word(seed, first + i)));
  });
}

void compare_bytes(void** arguments, Stream& stream) {
  const auto* in = argument<const std::uint8_t*>(arguments, 0);
  const auto bytes = argument<std::uint64_t>(arguments, 1);
  const auto position = argument<std::uint64_t>(arguments, 2);
  const auto seed = argument<std::uint64_t>(arguments, 3);
  auto* total = argument<unsigned long long*>(arguments, 4);
  stream.enqueue({}, latency(), [=] {
    for (std::uint64_t i = 0; i < bytes; ++i) *total += in[i] != pattern::byte_at(seed, position + i) ? 1U : 0U;
  });
}

void compare_sums(void** arguments, Stream& stream) {
  const auto* in = argument<const std::uint32_t*>(arguments, 0);
  const auto count = argument<std::uint64_t>(arguments, 1);
  const auto first = argument<std::uint64_t>(arguments, 2);
  const auto* seeds = argument<const std::uint64_t*>(arguments, 3);
  const auto ranks = argument<int>(arguments, 4);
  auto* total = argument<unsigned long long*>(arguments, 5);
  stream.enqueue({}, latency(), [=] {
    // Eight floats have their bytes in one word of each rank's pattern.
    for (std::uint64_t i = 0; i < count;) {
      const std::uint64_t word = (first + i) / 8;
      std::uint64_t sums[8] = {};
      for (int rank = 0; rank < ranks; ++rank) {
        const std::uint64_t bytes = pattern::bytes_of_word(seeds[rank], word);
        for (std::size_t k = 0; k < 8; ++k) sums[k] += (bytes >> (8 * k)) & 0xFF;
      }
      for (std::uint64_t k = (first + i) % 8; k < 8 && i < count; ++k, ++i)
        *total += static_cast<unsigned>(pattern::differing_bytes(in[i], pattern::bits_of(static_cast<float>(sums[k]))));
    }
  });
}

void add_inputs(void** arguments, Stream& stream) {
  auto* out = argument<float*>(arguments, 0);
  const auto inputs = argument<Inputs>(arguments, 1);
  const auto number = argument<int>(arguments, 2);
  const auto onto = argument<bool>(arguments, 3);
  const auto count = argument<std::uint64_t>(arguments, 4);
  const std::size_t bytes = count * sizeof(float);
  const int host = description().gpus[static_cast<std::size_t>(stream.gpu())].host;
  std::vector<Flow> flows;
  for (int k = 0; k < number; ++k)
    flows.push_back(flow_between(place_of(inputs.of[k], host), stream.gpu(), bytes, Mover::kernel));
  stream.enqueue(flows, latency(), [=] {
    Origin origin{static_cast<std::uint64_t>(2 + number), 0};
    for (int k = 0; k < number; ++k) add_input(origin, inputs.of[k], bytes);
    if (onto) add_input(origin, nullptr, 0);
    if (holds(out, bytes, origin)) return;
    wrote(out, bytes);
    if (!onto) std::memset(out, 0, bytes);
    for (int k = 0; k < number; ++k) {
      for (std::uint64_t i = 0; i < count; ++i) out[i] += inputs.of[k][i];
    }
    now_holds(out, bytes, origin);
  });
}

void copy_items(void** arguments, Stream& stream, std::size_t item) {
  enqueue_copy(stream, argument<void*>(arguments, 0), argument<const void*>(arguments, 1),
               argument<std::uint64_t>(arguments, 2) * item, Mover::kernel);
}

void copy_quads(void** arguments, Stream& stream) { copy_items(arguments, stream, 16); }

using Kernel = void (*)(void** arguments, Stream& stream);

const std::map<std::string, Kernel>& kernels() {
  static const auto* const all = new std::map<std::string, Kernel>{
      {"fill_words", &fill<std::uint64_t, write_words>},
      {"fill_bytes", &fill<std::uint8_t, write_bytes>},
      {"fill_floats", &fill<std::uint32_t, write_floats>},
      {"compare_words", &compare_words},
      {"compare_bytes", &compare_bytes},
      {"compare_sums", &compare_sums},
      {"add_inputs", &add_inputs},
      {"copy_quads", &copy_quads},
      {"copy_over_link", &copy_quads},  // the sycl backend's two
      {"copy_inside", &copy_quads},
      {"copy_single_bytes", [](void** arguments, Stream& stream) { copy_items(arguments, stream, 1); }},
  };
  return *all;
}

}  // namespace

std::string plain_kernel_name(const char* registered) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(registered, nullptr, nullptr, &status);
  std::string name = status == 0 ? demangled : registered;
  std::free(demangled);
  // "void fabricbench::device::(anonymous namespace)::copy_quads<8u>(uint4*, …)" -> "copy_quads"
  const std::string anonymous = "(anonymous namespace)";
  for (std::size_t at = name.find(anonymous); at != std::string::npos; at = name.find(anonymous))
    name.erase(at, anonymous.size());
  name = name.substr(0, name.find_first_of("(<"));
  const std::size_t begin = name.find_last_of(": ");
  return begin == std::string::npos ? name : name.substr(begin + 1);
}

void launch_kernel(const std::string& name, void** arguments, Stream& stream) {
  const auto found = kernels().find(name);
  if (found == kernels().end()) end_run("the stand-in of the GPU runtime has no kernel '" + name + "'");
  found->second(arguments, stream);
}

void enqueue_copy(Stream& stream, void* destination, const void* source, std::size_t bytes, Mover mover) {
  const int host = description().gpus[static_cast<std::size_t>(stream.gpu())].host;
  const int from = place_of(source, host);
  const int to = place_of(destination, host);
  std::vector<Flow> flows;
  if (bytes > 0 && !(from == host && to == host)) {
    flows.push_back(flow_between(from, to, bytes, mover));
  } else if (bytes > 0 && mover == Mover::kernel) {
    // What a kernel copies from host to host comes to the GPU and goes back at the same time.
    flows.push_back(flow_between(host, stream.gpu(), bytes, mover));
    add_route(flows.back(), stream.gpu(), host, mover);
  }
  // A runtime copies from host to host by the processor, in its own time.
  const std::int64_t delay = description().latency_ns[static_cast<std::size_t>(mover)];
  if (bytes <= kCaptured && bytes > 0 && from == host && !region_of(source)) {
    // A runtime reads pageable memory before the call returns.
    const auto* begin = static_cast<const unsigned char*>(source);
    stream.enqueue(flows, delay, [=, held = std::vector<unsigned char>(begin, begin + bytes)] {
      move_bytes(destination, held.data(), bytes);
    });
    return;
  }
  stream.enqueue(flows, delay, [=] { move_bytes(destination, source, bytes); });
  // To pageable memory a copy has ended when the call returns.
  if (to == host && from != host && !region_of(destination)) stream.synchronize();
}

void enqueue_set(Stream& stream, void* destination, int value, std::size_t bytes) {
  stream.enqueue({}, latency(), [=] {
    wrote(destination, bytes);
    std::memset(destination, value, bytes);
  });
}

void migrate(Stream& stream, const void* managed, std::size_t bytes, int gpu) {
  const int host = description().gpus[static_cast<std::size_t>(stream.gpu())].host;
  const int from = place_of(managed, host);
  const int to = gpu < 0 ? host : gpu;
  set_place(managed, gpu);
  std::vector<Flow> flows;
  if (from != to) flows.push_back(flow_between(from, to, bytes, Mover::copy));
  stream.enqueue(flows, latency(), [=] { place_pages(managed, bytes, gpu); });
}

}  // namespace emulation
