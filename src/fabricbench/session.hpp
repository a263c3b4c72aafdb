// One run of the benchmark between MPI's start and its end.
#pragma once

#include <cstdint>

#include "fabricbench/header.hpp"
#include "fabricbench/options.hpp"
#include "fabricbench/proof.hpp"

namespace fabricbench {

// Prepares, measures the plan and writes the results; collective. `begin`: when the program or the plan started, of
// now_ns(). Returns the exit status; throws InputError, UnsupportedError or RunError, on all ranks alike.
int run_session(Options options, Invocation invocation, const World& world, Proof& proof, std::int64_t begin);

}  // namespace fabricbench
