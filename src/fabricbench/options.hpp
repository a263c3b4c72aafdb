// What the user asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabricbench/device/device.hpp"
#include "fabricbench/patterns.hpp"

namespace fabricbench {

enum class Implementation { automatic, transfers, library };
enum class Schedule { uncontended, contended };
enum class Verify { batch, every, off };
// Who moves data between two ranks that reach each other's memory: the source, or the destination.
enum class Access { write, read };
// Host memory on the NUMA node that the runtime chooses, on that of the rank's device, or on the one farthest from it.
enum class HostPlacement { any, local, remote };

std::string to_string(Implementation implementation);
std::string to_string(Schedule schedule);
std::string to_string(Verify verify);
std::string to_string(Access access);
std::string to_string(device::HostKind kind);
std::string to_string(HostPlacement placement);
std::string to_string(const Ends& ends);

struct Options {
  std::string transport = "mpi";
  std::vector<Operation> operations;
  Implementation implementation = Implementation::automatic;
  std::vector<Schedule> schedules;
  std::vector<std::pair<int, int>> pairs;  // empty: all
  std::vector<std::vector<int>> together;  // sets of ranks that use their memory paths at once; empty: as planned
  Ends ends;
  Access access = Access::write;
  std::optional<device::HostKind> host_memory;  // unset: what the port has
  HostPlacement host_placement = HostPlacement::any;
  std::vector<std::uint64_t> sizes;
  std::optional<std::int64_t> fixed_iterations;
  std::int64_t minimum_iterations = 20;
  std::int64_t maximum_iterations = 1000;
  double budget_s = 1.0;
  std::int64_t warmup = 10;
  Verify verify = Verify::batch;
  double timeout_s = 60.0;
  bool share_devices = false;
  std::int64_t ranks_per_device = 1;
  std::string output;
  std::optional<std::int64_t> expected_ranks;
  std::optional<std::int64_t> expected_nodes;
  bool quiet = false;
  std::string injected;  // a planted defect: tests of the suite only
  int injected_rank = -1;

  bool show_help = false;
  bool show_version = false;
};

// Parses the arguments; InputError says what is wrong with them.
Options parse_options(int count, char** arguments);
std::string help_text();

}  // namespace fabricbench
