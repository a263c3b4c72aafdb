#include "fabricbench/operations.hpp"

#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {

const std::vector<Description>& all_operations() {
  static const std::vector<Description> table = {
#define FABRICBENCH_ROW(name, kind, direction, properties) \
  {Operation::name, #name, Kind::kind, Direction::direction, properties},
      FABRICBENCH_OPERATIONS(FABRICBENCH_ROW)
#undef FABRICBENCH_ROW
  };
  return table;
}

const Description& describe(Operation operation) { return all_operations()[static_cast<std::size_t>(operation)]; }

std::string to_string(Operation operation) { return describe(operation).name; }

std::string to_string(Kind kind) {
  const char* const names[] = {"pair",     "collective", "rail",   "asymmetric", "symmetric",
                               "striping", "training",   "sparse", "victim",     "memory"};
  return names[static_cast<std::size_t>(kind)];
}

std::string to_string(Direction direction) {
  const char* const names[] = {"none", "unidirectional", "bidirectional", "omnidirectional"};
  return names[static_cast<std::size_t>(direction)];
}

Operation parse_operation(const std::string& name) {
  std::vector<std::string> names;
  for (const Description& row : all_operations()) {
    if (name == row.name) return row.operation;
    names.emplace_back(row.name);
  }
  throw InputError("there is no operation '" + name + "': choose from " + join(names, ", "));
}

bool is_pair_operation(Operation operation) { return describe(operation).kind == Kind::pair; }
bool has_shape(Operation operation) {
  return is_striping(operation) || is_training(operation) || describe(operation).direction != Direction::none;
}
bool is_striping(Operation operation) { return describe(operation).kind == Kind::striping; }
bool is_training(Operation operation) { return describe(operation).kind == Kind::training; }
bool is_sparse(Operation operation) { return describe(operation).kind == Kind::sparse; }
bool is_victim(Operation operation) { return describe(operation).kind == Kind::victim; }
bool is_memory_path(Operation operation) { return describe(operation).kind == Kind::memory; }
bool is_collective(Operation operation) { return describe(operation).kind == Kind::collective; }
bool is_reduction(Operation operation) { return describe(operation).has(kReduces); }
bool is_round_trip(Operation operation) { return describe(operation).has(kRoundTrip); }
bool is_symmetric(Operation operation) { return describe(operation).has(kSymmetric); }

}  // namespace fabricbench
