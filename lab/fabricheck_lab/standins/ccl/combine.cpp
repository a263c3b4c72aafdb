#include <algorithm>
#include <cstdint>
#include <string>

#include "ccl/operations.hpp"
#include "core/ending.hpp"

namespace emulation::ccl {
namespace {

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
