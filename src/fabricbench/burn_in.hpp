// Everything at once, for a time: a product of matrices, the traffic of a plan, and copies to and from the host.
#pragma once

#include "fabricbench/options.hpp"
#include "fabricbench/plan.hpp"
#include "fabricbench/results.hpp"
#include "fabricbench/transports/transport.hpp"

namespace fabricbench {

// InputError where the plan has more than one measurement, or one that does not go on beside others.
void check_burn_in(const Options& options, const std::vector<Series>& plan);

// How the time is divided, and what is multiplied and copied; for the header too.
struct BurnInPlan {
  double seconds;
  double alone_seconds;   // of each of the three before they go together
  double window_seconds;  // of which order statistics are kept
  product::Type product;
  std::uint64_t order;
  std::uint64_t copy_bytes;  // in each direction
};
BurnInPlan burn_in_plan(const Options& options);
// Collective: the order that the options give, else the largest, up to the backend's usual one, of which no rank takes
// longer than a tenth of a second. It is tried on the devices: an emulated GPU takes minutes for what a real one does
// in a millisecond.
std::uint64_t fitting_order(const Options& options, const World& world, NodeShared& shared);

// Collective. `results` is null but on rank 0, where windows are written to it.
void burn_in(const Measurement& measurement, const Options& options, const Context& context, Transport& transport,
             ResultFile* results, Totals& totals);

}  // namespace fabricbench
