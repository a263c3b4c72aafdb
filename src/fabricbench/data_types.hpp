// The types of the numbers that reductions add up: one table. The package has the same
// (fabricheck/records/operations.py), and a test compares the two.
#pragma once

#include <string>
#include <vector>

#include "fabricbench/device/pattern.hpp"

namespace fabricbench {

// Name, bytes, bias of the exponent, bits of the mantissa (IEEE 754; bfloat16: Intel 338302; FP8: Open Compute Project,
// OFP8, 2023); in the order in which they are shown.
// clang-format off
#define FABRICBENCH_DATA_TYPES(X) \
  X(float32, 4, 127, 23) \
  X(float16, 2, 15, 10) \
  X(bfloat16, 2, 127, 7) \
  X(float8_e4m3, 1, 7, 3) \
  X(float8_e5m2, 1, 15, 2)
// clang-format on

enum class DataType {
#define FABRICBENCH_NAME(name, bytes, bias, mantissa) name,
  FABRICBENCH_DATA_TYPES(FABRICBENCH_NAME)
#undef FABRICBENCH_NAME
};

struct DataTypeRow {
  DataType type;
  const char* name;
  pattern::Format format;
};

const std::vector<DataTypeRow>& all_data_types();
const DataTypeRow& describe(DataType type);
std::string to_string(DataType type);
DataType parse_data_type(const std::string& name);

}  // namespace fabricbench
