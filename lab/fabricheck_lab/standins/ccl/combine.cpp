#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "ccl/operations.hpp"
#include "core/ending.hpp"

namespace emulation::ccl {
namespace {

// A floating-point number of 16 or 8 bits; those below the least normal one are no concern of a stand-in.
template <typename Bits, int kBias, int kMantissa>
class Small {
 public:
  explicit Small(float number) {
    if (number == 0) return;
    const int exponent = std::ilogb(number);
    const auto fraction = static_cast<int>(std::nearbyint(std::ldexp(std::fabs(number), kMantissa - exponent)));
    bits_ = static_cast<Bits>((std::signbit(number) ? kSign : 0) + ((exponent + kBias - 1) << kMantissa) + fraction);
  }
  operator float() const {
    const int size = bits_ % kSign;
    if (size == 0) return 0;
    const int fraction = (1 << kMantissa) + size % (1 << kMantissa);
    const float number = std::ldexp(static_cast<float>(fraction), (size >> kMantissa) - kBias - kMantissa);
    return bits_ >= kSign ? -number : number;
  }

 private:
  static constexpr int kSign = 1 << (8 * sizeof(Bits) - 1);
  Bits bits_ = 0;
};

template <typename Value, typename Operation>
void combine_all(void* out, const void* a, const void* b, std::size_t count, Operation&& operation) {
  auto* to = static_cast<Value*>(out);
  const auto* one = static_cast<const Value*>(a);
  const auto* other = static_cast<const Value*>(b);
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<Value>(operation(one[i], other[i]));
}

template <typename Value>
void combine_type(void* out, const void* a, const void* b, std::size_t count, ncclRedOp_t operation) {
  switch (operation) {
    case ncclSum:
      return combine_all<Value>(out, a, b, count, [](Value x, Value y) { return x + y; });
    case ncclProd:
      return combine_all<Value>(out, a, b, count, [](Value x, Value y) { return x * y; });
    case ncclMax:
      return combine_all<Value>(out, a, b, count, [](Value x, Value y) { return std::max(x, y); });
    case ncclMin:
      return combine_all<Value>(out, a, b, count, [](Value x, Value y) { return std::min(x, y); });
    default:
      end_run("the stand-in of *CCL has no reduction " + std::to_string(operation));
  }
}

}  // namespace

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
  }
  end_run("the stand-in of *CCL has no data type " + std::to_string(type));
}

void combine(void* out, const void* a, const void* b, std::size_t count, ncclDataType_t type, ncclRedOp_t operation) {
  switch (type) {
    case ncclFloat32:
      return combine_type<float>(out, a, b, count, operation);
    case ncclFloat16:
      return combine_type<Small<std::uint16_t, 15, 10>>(out, a, b, count, operation);
    case ncclBfloat16:
      return combine_type<Small<std::uint16_t, 127, 7>>(out, a, b, count, operation);
    case ncclFloat8e4m3:
      return combine_type<Small<std::uint8_t, 7, 3>>(out, a, b, count, operation);
    case ncclFloat8e5m2:
      return combine_type<Small<std::uint8_t, 15, 2>>(out, a, b, count, operation);
    case ncclFloat64:
      return combine_type<double>(out, a, b, count, operation);
    case ncclInt32:
      return combine_type<std::int32_t>(out, a, b, count, operation);
    case ncclUint32:
      return combine_type<std::uint32_t>(out, a, b, count, operation);
    case ncclInt64:
      return combine_type<std::int64_t>(out, a, b, count, operation);
    case ncclUint64:
      return combine_type<std::uint64_t>(out, a, b, count, operation);
    default:
      end_run("the stand-in of *CCL adds no data of type " + std::to_string(type));
  }
}

}  // namespace emulation::ccl
