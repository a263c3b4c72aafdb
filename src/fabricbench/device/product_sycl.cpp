// The product of the sycl backend: by a kernel of our own, of float32.
#include <algorithm>

#include "fabricbench/device/product.hpp"
#include "fabricbench/device/sycl_devices.hpp"
#include "fabricbench/device/sycl_launch.hpp"

namespace fabricbench::product {
namespace {

using device::guarded;
using device::Launch;
using device::queue_of;
namespace kernels = fabricbench::kernels;

constexpr std::size_t kMostGroups = 1024;
constexpr auto kFloat32 = static_cast<std::uint32_t>(Type::float32);

std::size_t groups_for(std::uint64_t items) {
  return std::min<std::size_t>((items + kernels::kThreads - 1) / kernels::kThreads, kMostGroups);
}

}  // namespace

const Type kUsualType = Type::float32;
const std::uint64_t kUsualOrder = 2048;

std::string why_unsupported(Type type) {
  return type == Type::float32 ? "" : "the sycl backend multiplies float32 alone: choose it for --product";
}

Multiplier::Multiplier(device::Stream& stream, Type type, std::uint64_t order, bool by_library)
    : stream_(stream), type_(type), order_(order) {
  if (by_library) why_no_library_ = "the sycl backend has none";
}
Multiplier::~Multiplier() = default;

void Multiplier::fill(std::byte* factors, bool second) {
  const std::uint64_t count = order_ * order_;
  guarded("filling the factors", [&] {
    FABRICBENCH_LAUNCH(fill_factors, queue_of(stream_), groups_for(count), kFloat32, reinterpret_cast<float*>(factors),
                       count, second ? 1 : 0);
  });
}

void Multiplier::multiply(const std::byte* a, const std::byte* b, std::byte* result) {
  guarded("the product", [&] {
    FABRICBENCH_LAUNCH(multiply_by_cores, queue_of(stream_), groups_for(order_ * order_), kFloat32,
                       reinterpret_cast<const float*>(a), reinterpret_cast<const float*>(b),
                       reinterpret_cast<float*>(result), order_);
  });
}

void Multiplier::compare(const std::byte* result, const std::byte* expected, std::uint64_t number,
                         Differences* differences) {
  const std::uint64_t quads = order_ * order_ * result_bytes(type_) / 16;
  guarded("the comparison of results", [&] {
    FABRICBENCH_LAUNCH(compare_results, queue_of(stream_), groups_for(4 * quads),
                       reinterpret_cast<const std::uint32_t*>(result), reinterpret_cast<const std::uint32_t*>(expected),
                       quads, number, &differences->words);
  });
}

}  // namespace fabricbench::product
