// The header record: what was measured, where, with which libraries and under which settings.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fabricbench/environment.hpp"
#include "fabricbench/options.hpp"
#include "fabricbench/plan.hpp"
#include "fabricbench/transports/transport.hpp"
#include "fabricbench/world.hpp"

namespace fabricbench {

// How the program was started.
struct Invocation {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;  // what may be recorded
  LocalRank local;
  std::vector<std::string> set_by_library{};  // of `environment`: by a file that NCCL or RCCL read

  // NCCL and RCCL put what stands in their files (/etc/nccl.conf, ~/.nccl.conf) into the environment when they start.
  // `own`: variables that are this program's.
  void add_files_of_library(const std::vector<std::string>& own);
};

// What the host buffers of a rank really are, as JSON.
std::string host_memory_json(const device::HostMemory& memory, int wanted_node);

// Name and version of the MPI library in use, such as `Open MPI 5.0.11`.
std::string mpi_library_text();

// The header record of a run as JSON, on rank 0; empty elsewhere. Collective. `device_index` of -1: this rank drives no
// device. `host_memory`: as host_memory_json() says, or empty.
std::string header_json(const World& world, const Options& options, const Invocation& invocation,
                        const Transport& transport, const std::vector<Series>& plan, const std::string& run_id,
                        int device_index, const std::string& host_memory);

}  // namespace fabricbench
