// What the program says about itself.
#pragma once

#include <string>

namespace fabricbench {

std::string help_text();
// The table of operations in JSON: a list of objects with name, kind, direction, round_trip and host_memory (whether it
// needs buffers there by itself).
std::string operations_json();

}  // namespace fabricbench
