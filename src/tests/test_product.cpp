#include <algorithm>
#include <limits>

#include "check.hpp"
#include "fabricbench/device/product.hpp"
#include "fabricbench/errors.hpp"

using namespace fabricbench;

namespace {

constexpr std::uint64_t kOrder = 128;

// Row by row, by whole numbers alone.
template <typename Number>
std::vector<Number> right_result() {
  std::vector<Number> result;
  for (std::uint64_t i = 0; i < kOrder; ++i) {
    for (std::uint64_t j = 0; j < kOrder; ++j) {
      std::int64_t sum = 0;
      for (std::uint64_t k = 0; k < kOrder; ++k)
        sum += pattern::factor(i * kOrder + k, false) * pattern::factor(k * kOrder + j, true);
      result.push_back(static_cast<Number>(sum));
    }
  }
  return result;
}

template <typename Number>
std::uint64_t wrong_rows(const product::Check& check, const std::vector<Number>& result) {
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < kOrder; ++i)
    wrong += check.is_right(i, reinterpret_cast<const std::byte*>(&result[i * kOrder])) ? 0U : 1U;
  return wrong;
}

}  // namespace

TEST(a_right_product_passes_and_a_wrong_one_does_not) {
  const product::Check single(product::Type::bfloat16, kOrder);
  const product::Check both(product::Type::float64, kOrder);
  CHECK_EQUAL(wrong_rows(single, right_result<float>()), 0u);
  CHECK_EQUAL(wrong_rows(both, right_result<double>()), 0u);
  std::vector<float> result = right_result<float>();
  result[3 * kOrder + 7] += 1;
  result[5 * kOrder] += 0.5F;
  std::swap(result[9 * kOrder], result[9 * kOrder + 1]);
  result[11 * kOrder] = std::numeric_limits<float>::quiet_NaN();
  result[13 * kOrder] = std::numeric_limits<float>::infinity();
  CHECK_EQUAL(wrong_rows(single, result), 5u);
}

TEST(factors_are_small_whole_numbers_of_both_signs) {
  int least = 0;
  int most = 0;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    least = std::min(least, pattern::factor(i, false));
    most = std::max(most, pattern::factor(i, true));
  }
  CHECK_EQUAL(least, -127);
  CHECK_EQUAL(most, 127);
}

TEST(types_of_a_product_have_names) {
  for (const char* name : {"bfloat16", "float16", "float32", "float64"})
    CHECK_EQUAL(product::to_string(product::parse_type(name)), name);
  CHECK(check::message_of<InputError>([] { product::parse_type("int8"); }).find("bfloat16") != std::string::npos);
}
