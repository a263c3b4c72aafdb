// Where this rank runs and under which settings.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fabricbench {

std::string host_name();
std::string node_identity();      // the same for all processes that share this node's memory, and for no others
std::vector<int> allowed_cpus();  // of this process, by its affinity mask
int numa_node_of_cpu(int cpu);    // -1 where the kernel does not say
std::string utc_now();            // 2026-11-21T05:54:06Z
std::string random_id();          // 32 hexadecimal digits

// The launchers' variables for the rank's number on its node, most specific first: srun's SLURM_LOCALID is also set
// inside an allocation in which mpirun started the ranks.
struct LocalRank {
  int value = -1;
  std::string variable;
};
LocalRank local_rank_from_environment();
// The number of ranks that the launcher started, or -1: it tells when MPI did not find the others.
int launched_ranks();

// The variables that may be recorded. Everything else may be a secret.
std::map<std::string, std::string> recorded_environment();

std::int64_t now_ns();  // CLOCK_MONOTONIC
struct ClockFacts {
  std::int64_t resolution_ns;
  std::int64_t overhead_ns;  // median of one reading
};
ClockFacts clock_facts();

// Bandwidth of one memcpy in host memory, in Gb/s (bytes copied, counted once, over the time of the core that it took):
// the best of all readings so far.
double host_copy_gbps();

}  // namespace fabricbench
