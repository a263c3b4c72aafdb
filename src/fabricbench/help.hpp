// What the program says about itself.
#pragma once

#include <string>

#include "fabricbench/options.hpp"

namespace fabricbench {

std::string help_text();
// The table of operations in JSON: a list of objects with name, family, round_trip, rooted, host (whether it needs host
// memory by itself), victim (the pattern that an aggressor disturbs; or empty) and pattern (kind and direction between
// groups; or two empty strings). fabricheck/records/operations.py explains them.
std::string operations_json();
// What --list-pairs asks for, on stdout: {operation, schedule, round, pairs} of each round, and after those of a rule
// its hash. InputError where the options are not for so many ranks.
void print_pairs(const Options& options);

}  // namespace fabricbench
