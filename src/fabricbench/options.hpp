// What the user asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabricbench/patterns.hpp"

namespace fabricbench {

enum class Implementation { automatic, transfers, library };
enum class Schedule { uncontended, contended };
enum class Verify { batch, every, off };

std::string to_string(Implementation implementation);
std::string to_string(Schedule schedule);
std::string to_string(Verify verify);

struct Options {
  std::string transport = "mpi";
  std::vector<Operation> operations;
  Implementation implementation = Implementation::automatic;
  std::vector<Schedule> schedules;
  std::vector<std::pair<int, int>> pairs;  // empty: all
  std::vector<std::uint64_t> sizes;
  std::optional<std::int64_t> fixed_iterations;
  std::int64_t minimum_iterations = 20;
  std::int64_t maximum_iterations = 1000;
  double budget_s = 1.0;
  std::int64_t warmup = 10;
  Verify verify = Verify::batch;
  double timeout_s = 60.0;
  bool share_devices = false;
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
