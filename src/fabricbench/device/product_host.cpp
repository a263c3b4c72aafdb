// The product of the host backend: by the processor.
#include <algorithm>
#include <cstring>

#include "fabricbench/device/product.hpp"

namespace fabricbench::product {
namespace {

template <typename Number>
void fill_with(std::byte* factors, std::uint64_t count, bool second) {
  auto* numbers = reinterpret_cast<Number*>(factors);
  for (std::uint64_t i = 0; i < count; ++i) numbers[i] = static_cast<Number>(pattern::factor(i, second));
}

template <typename Number>
void multiply_with(const std::byte* first, const std::byte* second, std::byte* result, std::uint64_t order) {
  const auto* a = reinterpret_cast<const Number*>(first);
  const auto* b = reinterpret_cast<const Number*>(second);
  auto* c = reinterpret_cast<Number*>(result);
  std::fill_n(c, order * order, Number{0});
  for (std::uint64_t i = 0; i < order; ++i) {
    for (std::uint64_t k = 0; k < order; ++k) {
      for (std::uint64_t j = 0; j < order; ++j) c[i * order + j] += a[i * order + k] * b[k * order + j];
    }
  }
}

}  // namespace

const Type kUsualType = Type::float32;
const std::uint64_t kUsualOrder = 128;

std::string why_unsupported(Type type) {
  return type == Type::float32 || type == Type::float64
             ? ""
             : "the host backend multiplies float32 and float64: choose one of them for --product";
}

Multiplier::Multiplier(device::Stream& stream, Type type, std::uint64_t order, bool by_library)
    : stream_(stream), type_(type), order_(order) {
  if (by_library) why_no_library_ = "the host backend has none";
}
Multiplier::~Multiplier() = default;

void Multiplier::fill(std::byte* factors, bool second) {
  (type_ == Type::float64 ? fill_with<double> : fill_with<float>)(factors, order_ * order_, second);
}

void Multiplier::multiply(const std::byte* a, const std::byte* b, std::byte* result) {
  (type_ == Type::float64 ? multiply_with<double> : multiply_with<float>)(a, b, result, order_);
}

void Multiplier::compare(const std::byte* result, const std::byte* expected, std::uint64_t number,
                         Differences* differences) {
  const std::uint64_t words = order_ * order_ * result_bytes(type_) / sizeof(std::uint32_t);
  for (std::uint64_t i = 0; i < words; ++i) {
    if (std::memcmp(result + 4 * i, expected + 4 * i, 4) == 0) continue;
    ++differences->words;
    differences->first = std::min(differences->first, pattern::packed(number, i));
  }
}

}  // namespace fabricbench::product
