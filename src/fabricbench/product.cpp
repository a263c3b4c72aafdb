#include <cmath>
#include <cstring>

#include "fabricbench/device/product.hpp"
#include "fabricbench/errors.hpp"

namespace fabricbench::product {
namespace {

constexpr const char* kNames[] = {"bfloat16", "float16", "float32", "float64"};

std::uint64_t as_word(std::int64_t number) { return static_cast<std::uint64_t>(number); }

}  // namespace

std::string to_string(Type type) { return kNames[static_cast<std::size_t>(type)]; }

Type parse_type(const std::string& name) {
  std::uint32_t number = 0;
  for (const char* known : kNames) {
    if (name == known) return static_cast<Type>(number);
    ++number;
  }
  throw InputError("there is no product of '" + name + "': choose from bfloat16, float16, float32, float64");
}

Check::Check(Type type, std::uint64_t order) : type_(type), x_(order), expected_(order, 0) {
  for (std::uint64_t i = 0; i < order; ++i) x_[i] = pattern::mix(i);
  std::vector<std::uint64_t> bx(order, 0);
  for (std::uint64_t i = 0; i < order; ++i) {
    for (std::uint64_t j = 0; j < order; ++j) bx[i] += as_word(pattern::factor(i * order + j, true)) * x_[j];
  }
  for (std::uint64_t i = 0; i < order; ++i) {
    for (std::uint64_t j = 0; j < order; ++j) expected_[i] += as_word(pattern::factor(i * order + j, false)) * bx[j];
  }
}

bool Check::is_right(std::uint64_t row, const std::byte* values) const {
  std::uint64_t sum = 0;
  for (std::size_t j = 0; j < x_.size(); ++j) {
    double value = 0;
    if (type_ == Type::float64) {
      std::memcpy(&value, values + j * sizeof(double), sizeof value);
    } else {
      float single = 0;
      std::memcpy(&single, values + j * sizeof single, sizeof single);
      value = single;
    }
    constexpr double kLargest = 1 << 24;
    if (!(std::fabs(value) <= kLargest) || value != std::floor(value)) return false;
    sum += as_word(static_cast<std::int64_t>(value)) * x_[j];
  }
  return sum == expected_[row];
}

}  // namespace fabricbench::product
