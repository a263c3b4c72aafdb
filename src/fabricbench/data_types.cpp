#include "fabricbench/data_types.hpp"

#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {

const std::vector<DataTypeRow>& all_data_types() {
  static const std::vector<DataTypeRow> table = {
#define FABRICBENCH_ROW(name, bytes, bias, mantissa) {DataType::name, #name, {bytes, bias, mantissa}},
      FABRICBENCH_DATA_TYPES(FABRICBENCH_ROW)
#undef FABRICBENCH_ROW
  };
  return table;
}

const DataTypeRow& describe(DataType type) { return all_data_types()[static_cast<std::size_t>(type)]; }

std::string to_string(DataType type) { return describe(type).name; }

DataType parse_data_type(const std::string& name) {
  std::vector<std::string> names;
  for (const DataTypeRow& row : all_data_types()) {
    if (name == row.name) return row.type;
    names.emplace_back(row.name);
  }
  throw InputError("there is no data type '" + name + "': choose from " + join(names, ", "));
}

}  // namespace fabricbench
