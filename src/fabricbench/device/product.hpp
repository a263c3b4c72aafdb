// The matrix product with which a burn-in loads the arithmetic of the devices. Its factors are whole numbers from -127
// to 127 (pattern::factor), which every type here holds. A sum of kMostOrder products of two of them has a standard
// deviation of 10^6, 17 times less than 2^24, up to which float32 adds whole numbers exactly: so the right result does
// not depend on the order of the additions, and is the same bits on any device by any library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fabricbench/device/device.hpp"

namespace fabricbench::product {

// Of the factors. The result of the first two is float32, as tensor cores add it up.
enum class Type : std::uint32_t { bfloat16, float16, float32, float64 };

// All matrices are square and row by row, with a multiple of kOrderStep rows.
constexpr std::uint64_t kOrderStep = 128;
constexpr std::uint64_t kMostOrder = 32768;

std::string to_string(Type type);
Type parse_type(const std::string& name);
inline std::size_t factor_bytes(Type type) { return type == Type::float64 ? 8 : type == Type::float32 ? 4 : 2; }
inline std::size_t result_bytes(Type type) { return type == Type::float64 ? 8 : 4; }

// Whether results are right, by exact arithmetic on the processor: for a vector x of random whole numbers, C x must be
// A (B x), modulo 2^64 (Freivalds, Probabilistic machines can use less running time, IFIP 1977). A wrong row passes
// with a probability of 2^-40 or less. In time order^2, where the product takes order^3.
class Check {
 public:
  Check(Type type, std::uint64_t order);
  // `values`: a row of the result.
  bool is_right(std::uint64_t row, const std::byte* values) const;

 private:
  Type type_;
  std::vector<std::uint64_t> x_;
  std::vector<std::uint64_t> expected_;  // A (B x)
};

// What compare() counts, on the device. `first`: the product's number and the word's place, as pattern::packed() has
// them.
struct Differences {
  std::uint64_t words;
  std::uint64_t first;
};
constexpr std::uint64_t kNoDifference = ~std::uint64_t{0};

// Of this backend, where the user did not choose.
extern const Type kUsualType;
extern const std::uint64_t kUsualOrder;
// Why this backend multiplies no such numbers; empty where it does.
std::string why_unsupported(Type type);

// Products on one stream. Everything only enqueues.
class Multiplier {
 public:
  // By a library where it loads and `by_library` asks for it, else by a kernel of our own.
  Multiplier(device::Stream& stream, Type type, std::uint64_t order, bool by_library);
  ~Multiplier();
  Multiplier(const Multiplier&) = delete;
  Multiplier& operator=(const Multiplier&) = delete;

  void fill(std::byte* factors, bool second);
  void multiply(const std::byte* a, const std::byte* b, std::byte* result);
  // Compares bit by bit, in words of 4 bytes, and adds to what is in `differences` on the device.
  void compare(const std::byte* result, const std::byte* expected, std::uint64_t number, Differences* differences);

  const std::string& by() const { return by_; }
  // Why no library is used although one was asked for.
  const std::string& why_no_library() const { return why_no_library_; }

 private:
  [[maybe_unused]] device::Stream& stream_;  // the host backend has none
  Type type_;
  std::uint64_t order_;
  std::string by_ = "kernel";
  std::string why_no_library_;
  [[maybe_unused]] void* library_ = nullptr;
};

}  // namespace fabricbench::product
