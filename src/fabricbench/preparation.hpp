// What is looked at, read and chosen before anything is measured.
#pragma once

#include <string>
#include <vector>

#include "fabricbench/environment.hpp"
#include "fabricbench/options.hpp"
#include "fabricbench/plan.hpp"
#include "fabricbench/transports/transport.hpp"
#include "fabricbench/world.hpp"

namespace fabricbench {

// InputError where the ranks or nodes are not those that were asked for. Puts the number of this rank on its node
// right. Collective.
void check_world(const Options& options, const World& world, LocalRank& local);

// The files that the options name, read by rank 0 for all. Collective.
void read_inputs(Options& options, const World& world);

// Which implementation of an operation the transport has; InputError where it has none.
Implementation choose(const Transport& transport, Operation operation, Implementation wanted, bool in_place);

// InputError where the transport does not move data between the memories that are asked for.
void check_paths(const Options& options, const Transport& transport, const std::vector<Series>& plan);

// InputError where a buffer of the plan is larger than the transport can send.
void check_sizes(const Transport& transport, const std::vector<Series>& plan);

// Whether the plan moves data between ranks, and not only inside each.
bool moves_between_ranks(const std::vector<Series>& plan);

// UnsupportedError on all ranks where one of them has a reason why its machine cannot run this; collective.
void require(const World& world, const std::string& reason);

// The NUMA node on which this rank's host memory is to lie; kAnyNode where nothing says so. Collective.
int host_node(const Options& options, const World& world, int device_index);

// Memory on that node: there or nowhere, or as far as the node has room and the kernel lets this process choose.
device::HostMemory host_memory_on(int node, bool there_only, std::size_t bytes, device::HostKind kind);

// The device that this rank drives from now on; -1 on the host backend. InputError where two ranks would share one
// unasked. Collective.
int select_device(const Options& options, const World& world, const LocalRank& local);
// The same before MPI starts, without a word: a GPU-aware MPI library looks at the current device while it starts.
void select_device_early(const Options& options, const LocalRank& local);

// Ends all ranks where one of them, which has printed the reason, cannot go on. Collective.
void agree(const World& world, bool fine);

}  // namespace fabricbench
