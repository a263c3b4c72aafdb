#include "core/kernels.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>

#include "core/description.hpp"
#include "core/ending.hpp"
#include "core/managed.hpp"
#include "core/memory.hpp"
#include "fabricbench/device/pattern.hpp"
#include "fabricbench/device/product.hpp"

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

// The stretch is that of a whole allocation where only its stamps are written.
template <typename Write>
void fill(void** arguments, Stream& stream, Write write) {
  const auto out = argument<pattern::Stretch>(arguments, 0);
  const auto data = argument<pattern::Pattern>(arguments, 1);
  const auto words = argument<pattern::Words>(arguments, 2);
  stream.enqueue({}, latency(), [=] {
    if (words.step == 1) {
      wrote(out.data, out.bytes);
    } else {
      wrote_words(out.data, 8 * words.step);
    }
    for (std::uint64_t word = words.first; word < words.end; word += words.step) write(out, word, data);
  });
}

void fill_bytes(void** arguments, Stream& stream) {
  const auto flip = argument<std::uint64_t>(arguments, 3);
  fill(arguments, stream, [flip](const pattern::Stretch& out, std::uint64_t word, const pattern::Pattern& data) {
    write_bytes(out, word, data, flip);
  });
}

void fill_numbers(void** arguments, Stream& stream) {
  fill(arguments, stream, [](const pattern::Stretch& out, std::uint64_t word, const pattern::Pattern& data) {
    write_numbers(out, word, data);
  });
}

void compare(void** arguments, Stream& stream) {
  const auto check = argument<pattern::Check>(arguments, 0);
  auto* total = argument<unsigned long long*>(arguments, 1);
  stream.enqueue({}, latency(), [=] {
    for (std::uint64_t i = 0; i < check.number; ++i) *total += wrong_in_stretch(check, i, 0, 1);
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
    Changes changes;  // before the versions, as in move_bytes
    for (int k = 0; k < number; ++k) changes = changes.with(changes_of(inputs.of[k]));
    Origin origin{static_cast<std::uint64_t>(2 + number), 0};
    for (int k = 0; k < number; ++k) add_input(origin, inputs.of[k], bytes);
    if (onto) add_input(origin, nullptr, 0);
    const auto add = [&](std::size_t begin, std::size_t length) {
      float* sums = out + begin / sizeof(float);
      if (!onto) std::memset(sums, 0, length);
      for (int k = 0; k < number; ++k) {
        const float* input = inputs.of[k] + begin / sizeof(float);
        for (std::size_t i = 0; i < length / sizeof(float); ++i) sums[i] += input[i];
      }
    };
    if (holds(out, bytes, origin)) {
      changes.for_each(bytes, add);
      wrote_like(out, changes);
      return;
    }
    wrote(out, bytes);
    add(0, bytes);
    now_holds(out, bytes, origin);
  });
}

void copy_items(void** arguments, Stream& stream, std::size_t item) {
  auto* to = argument<std::byte*>(arguments, 0);
  const auto* from = argument<const std::byte*>(arguments, 1);
  const std::uint64_t bytes = argument<std::uint64_t>(arguments, 2) * item;
  const auto ring = argument<pattern::Ring>(arguments, 3);
  for (std::uint64_t operation = 0; operation < ring.operations; ++operation) {
    const std::uint64_t shift = ring.shift_of(operation);
    enqueue_copy(stream, to + shift, from + shift, bytes, Mover::kernel);
  }
}

void copy_quads(void** arguments, Stream& stream) { copy_items(arguments, stream, 16); }

// The product of a burn-in (product.hpp). A GPU multiplies so many pairs of numbers in a second, whatever their type.
constexpr double kMultiplications = 5e9;

using Type = fabricbench::product::Type;
constexpr pattern::Format kHalf{2, 15, 10};
constexpr pattern::Format kBfloat16{2, 127, 7};

template <typename Word, typename Encode>
void write_factors(void* out, std::uint64_t count, bool second, Encode encode) {
  auto* words = static_cast<Word*>(out);
  for (std::uint64_t i = 0; i < count; ++i) words[i] = encode(pattern::factor(i, second));
}

void fill_factors(void** arguments, Stream& stream) {
  const auto type = static_cast<Type>(argument<std::uint32_t>(arguments, 0));
  auto* out = argument<void*>(arguments, 1);
  const auto count = argument<std::uint64_t>(arguments, 2);
  const bool second = argument<std::uint64_t>(arguments, 3) != 0;
  stream.enqueue({}, latency(), [=] {
    wrote(out, count * fabricbench::product::factor_bytes(type));
    if (type == Type::float64) {
      write_factors<double>(out, count, second, [](int number) { return static_cast<double>(number); });
    } else if (type == Type::float32) {
      write_factors<float>(out, count, second, [](int number) { return static_cast<float>(number); });
    } else {
      write_factors<std::uint16_t>(out, count, second, [=](int number) {
        const auto bits =
            encode(static_cast<std::uint64_t>(std::abs(number)), type == Type::float16 ? kHalf : kBfloat16);
        return static_cast<std::uint16_t>(bits | (number < 0 ? 0x8000U : 0U));
      });
    }
  });
}

// All factors are those of fill_factors(), so that the result is known without reading them.
template <typename Number>
void write_product(void* out, std::uint64_t order) {
  auto* c = static_cast<Number*>(out);
  std::fill_n(c, order * order, Number{0});
  std::vector<Number> b(order * order);
  for (std::uint64_t i = 0; i < b.size(); ++i) b[i] = static_cast<Number>(pattern::factor(i, true));
  for (std::uint64_t i = 0; i < order; ++i) {
    for (std::uint64_t k = 0; k < order; ++k) {
      const auto a = static_cast<Number>(pattern::factor(i * order + k, false));
      for (std::uint64_t j = 0; j < order; ++j) c[i * order + j] += a * b[k * order + j];
    }
  }
}

// A GPU that is throttled takes longer; a fault may have it take longer for products alone, and flip a bit of each
// N-th: {"products": {"gpu0": {"factor": 0.5, "wrong_each": 100}}}.
void multiply(void** arguments, Stream& stream) {
  const auto type = static_cast<Type>(argument<std::uint32_t>(arguments, 0));
  auto* c = argument<void*>(arguments, 3);
  const auto order = argument<std::uint64_t>(arguments, 4);
  const std::string gpu = description().gpus[static_cast<std::size_t>(stream.gpu())].name;
  const Json& wrong = faults().content["products"][gpu];
  const double factor = wrong["factor"].number(1) * faults().content["throttle"][gpu]["factor"].number(1);
  static std::atomic<std::int64_t> products{0};
  const std::int64_t each = wrong["wrong_each"].integer(0);
  const bool flips = each > 0 && ++products % each == 0;
  const auto numbers = static_cast<double>(order);
  const auto taken = static_cast<std::int64_t>(numbers * numbers * numbers / kMultiplications / factor * 1e9);
  stream.enqueue({}, latency() + taken, [=] {
    const std::size_t bytes = order * order * fabricbench::product::result_bytes(type);
    const Origin origin{order, 3};
    if (!holds(c, bytes, origin)) {
      wrote(c, bytes);
      (type == Type::float64 ? write_product<double> : write_product<float>)(c, order);
      now_holds(c, bytes, origin);
    }
    if (!flips) return;
    wrote(c, bytes);
    static_cast<unsigned char*>(c)[bytes / 2] ^= 1;
  });
}

void compare_results(void** arguments, Stream& stream) {
  const auto* result = argument<const std::uint32_t*>(arguments, 0);
  const auto* expected = argument<const std::uint32_t*>(arguments, 1);
  const auto quads = argument<std::uint64_t>(arguments, 2);
  const auto number = argument<std::uint64_t>(arguments, 3);
  auto* differences = argument<fabricbench::product::Differences*>(arguments, 4);
  stream.enqueue({}, latency(), [=] {
    for (std::uint64_t i = 0; i < 4 * quads; ++i) {
      if (result[i] == expected[i]) continue;
      wrote(differences, sizeof *differences);
      ++differences->words;
      differences->first = std::min(differences->first, pattern::packed(number, i));
    }
  });
}

using Kernel = void (*)(void** arguments, Stream& stream);

const std::map<std::string, Kernel>& kernels() {
  static const auto* const all = new std::map<std::string, Kernel>{
      {"fill_bytes", &fill_bytes},
      {"fill_numbers", &fill_numbers},
      {"compare", &compare},
      {"hold", [](void**, Stream&) {}},  // what is enqueued is known to the timeline only from then on
      {"add_inputs", &add_inputs},
      {"copy_quads", &copy_quads},
      {"copy_over_link", &copy_quads},  // the sycl backend's two
      {"copy_inside", &copy_quads},
      {"fill_factors", &fill_factors},
      {"multiply_by_cores", &multiply},
      {"multiply_by_tensor_cores", &multiply},
      {"compare_results", &compare_results},
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
