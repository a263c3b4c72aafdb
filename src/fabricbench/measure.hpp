// The one loop that measures everything.
#pragma once

#include <cstdint>
#include <vector>

#include "fabricbench/options.hpp"
#include "fabricbench/results.hpp"
#include "fabricbench/transports/transport.hpp"

namespace fabricbench {

// Measures `measurement`; collective. The records, one a group, are on rank 0 only. Adds to `totals` on rank 0.
std::vector<Record> measure(const Measurement& measurement, const Options& options, const Context& context,
                            Transport& transport, Totals& totals);

}  // namespace fabricbench
