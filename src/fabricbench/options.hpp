// What the user asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabricbench/ccl_modes.hpp"
#include "fabricbench/data_types.hpp"
#include "fabricbench/device/device.hpp"
#include "fabricbench/device/product.hpp"
#include "fabricbench/inputs.hpp"
#include "fabricbench/nics.hpp"
#include "fabricbench/patterns.hpp"

namespace fabricbench {

enum class Implementation { automatic, transfers, library };
enum class Schedule { uncontended, contended };
enum class Verify { batch, every, off };
// Who moves data between two ranks that reach each other's memory: the source, or the destination; or both, by a
// message.
enum class Access { write, read, send };
// Host memory on the NUMA node that the runtime chooses, on that of the rank's device, or on the one farthest from it.
enum class HostPlacement { any, local, remote };

std::string to_string(Implementation implementation);
std::string to_string(Schedule schedule);
std::string to_string(Verify verify);
std::string to_string(Access access);
std::string to_string(device::HostKind kind);
std::string to_string(device::Handles handles);
std::string to_string(HostPlacement placement);
std::string to_string(const Ends& ends);

// A group size where the nodes of a run have none in common.
inline constexpr int kNoCommonSize = -1;

struct Options {
  std::string transport = "mpi";
  std::vector<std::string> step_transports;  // of a striped message: split, translate, assemble; empty: `transport`
  CclModes ccl;                              // of the transport ccl
  std::vector<Operation> operations;
  Implementation implementation = Implementation::automatic;
  std::vector<Schedule> schedules;
  std::vector<std::pair<int, int>> pairs;  // empty: all
  int turns = 0;                           // of the rounds of all pairs; 0: all
  bool rails = false;                      // of the pairs, those of two groups whose ranks have the same place in them
  std::string rounds_file;                 // empty: all pairs, in rounds of their own
  std::vector<Round> rounds;               // what the file holds
  std::vector<Shape> shapes;               // of the patterns between groups; empty: the ones that the ranks allow
  int group_size = 0;                      // ranks of a group where `shapes` is empty; 0: half of the ranks
  std::string split;                       // of the collectives, as parse_split reads it; empty: all ranks together
  std::string matrix_files;                // of the sparse operations, with commas: a step each
  std::vector<CommunicationMatrix> matrices;
  std::vector<int> victims;  // empty: the plan chooses
  std::uint64_t aggressor_size = 1 << 20;
  std::vector<std::vector<int>> together;  // sets of ranks that use their memory paths at once; empty: as planned
  Ends ends;
  bool in_place = false;                   // collectives have their result where their input was
  DataType data_type = DataType::float32;  // of the numbers that are added up
  Access access = Access::write;
  std::optional<device::Handles> handles;       // of copy and kernel; unset: what the nodes have
  std::string nic = kNearNic;                   // of fabric, as chosen_nics reads it
  std::optional<device::HostKind> host_memory;  // unset: what the backend has
  HostPlacement host_placement = HostPlacement::any;
  std::vector<std::uint64_t> sizes;
  bool sizes_given = false;
  std::optional<std::int64_t> fixed_iterations;
  std::int64_t minimum_iterations = 20;
  std::int64_t maximum_iterations = 1000;
  double budget_s = 1.0;
  std::int64_t warmup = 10;
  std::int64_t train = 0;  // operations of an iteration, one after the other without a wait; 0: one, by itself
  double burn_in_s = 0;    // 0: none
  std::optional<product::Type> product;        // of a burn-in; unset: what the backend has
  std::optional<std::uint64_t> product_order;  // unset: fitting_order()
  bool product_by_library = true;              // where it has a library
  bool compute_only = false;                   // a burn-in of products alone
  Verify verify = Verify::batch;
  double timeout_s = 60.0;
  double limit_s = 0;  // of the whole plan, from its own start; 0: none
  bool share_devices = false;
  std::int64_t ranks_per_device = 1;
  std::vector<int> devices;  // of the ranks of a node, in their order; empty: the first, the second, …
  std::string case_name;     // of the test that this run is, for the header
  std::string output;
  std::string plans;  // a file with a plan on each line (plan_list.hpp); empty: the plan is that of these options
  std::optional<std::int64_t> expected_ranks;
  std::optional<std::int64_t> expected_nodes;
  bool quiet = false;
  bool library_settings = false;  // recorded in the footer
  std::string injected;           // a planted defect: tests of the suite only
  int injected_rank = -1;

  bool show_help = false;
  bool show_version = false;
  bool show_operations = false;
  int list_pairs = 0;  // of so many ranks
};

// Parses the arguments; InputError says what is wrong with them.
Options parse_options(int count, char** arguments);

// A whole number from `minimum` up that an int can hold.
int parse_count(const std::string& text, int minimum, const char* what);
int parse_rank(const std::string& text);
// "0,2,4,6" as the devices of the ranks of a node.
std::vector<int> parse_devices(const std::string& text);
// "2x4x1-4" as the shapes of two groups of four ranks of which one to four take part.
std::vector<Shape> parse_shapes(const std::string& text);
// "nodes", "rails", or "4x2" for four ranks that are two apart, among `ranks` in groups of `group_size`.
Split parse_split(const std::string& text, int ranks, int group_size);
// "0-1" as a pair of two different ranks.
std::pair<int, int> parse_pair(const std::string& text);

}  // namespace fabricbench
