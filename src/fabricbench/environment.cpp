#include "fabricbench/environment.hpp"

#include <sched.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <random>

#include "fabricbench/secrets.hpp"

extern char** environ;

namespace fabricbench {
namespace {

constexpr const char* kLocalRankVariables[] = {"OMPI_COMM_WORLD_LOCAL_RANK",
                                               "MPI_LOCALRANKID",
                                               "MV2_COMM_WORLD_LOCAL_RANK",
                                               "PALS_LOCAL_RANKID",
                                               "JSM_NAMESPACE_LOCAL_RANK",
                                               "FLUX_TASK_LOCAL_ID",
                                               "SLURM_LOCALID",
                                               "LOCAL_RANK"};
// Set for each rank by the launcher itself, and not by an allocation around it.
constexpr const char* kLaunchedVariables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "JSM_NAMESPACE_SIZE", "FLUX_JOB_SIZE",
                                              "PALS_SIZE"};

int integer_variable(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return -1;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *end == '\0' && value >= 0 && value < (1L << 30) ? static_cast<int>(value) : -1;
}

}  // namespace

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string node_identity() {
  // Two nodes may have one name, and two containers of a node have names of their own and no memory in common.
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return host_name() + ' ' + boot;
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  // The kernel refuses a mask that is smaller than its own.
  for (std::size_t most = CPU_SETSIZE; most <= (std::size_t{1} << 20); most *= 2) {
    cpu_set_t* set = CPU_ALLOC(most);
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(most);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    for (std::size_t cpu = 0; known && cpu < most; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(static_cast<int>(cpu));
    }
    CPU_FREE(set);
    if (known) break;
  }
  return cpus;
}

int numa_node_of_cpu(int cpu) {
  for (int node = 0; node < 256; ++node) {
    char path[96];
    std::snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/node%d", cpu, node);
    if (struct stat status{}; stat(path, &status) == 0) return node;
  }
  return -1;
}

std::string utc_now() {
  const time_t now = time(nullptr);
  struct tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string random_id() {
  std::random_device source;
  std::string text;
  for (int i = 0; i < 4; ++i) {
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", source());
    text += digits;
  }
  return text;
}

LocalRank local_rank_from_environment() {
  for (const char* name : kLocalRankVariables) {
    if (const int value = integer_variable(name); value >= 0) return {value, name};
  }
  return {};
}

int launched_ranks() {
  for (const char* name : kLaunchedVariables) {
    if (const int value = integer_variable(name); value > 0) return value;
  }
  // srun sets SLURM_STEP_NUM_TASKS and SLURM_PROCID for the step; mpirun inside an allocation does not set SLURM_PROCID
  // for its own ranks, but inherits the batch script's, so only a step that is not the batch step counts.
  if (std::getenv("SLURM_STEP_NUM_TASKS") != nullptr && std::getenv("OMPI_COMM_WORLD_RANK") == nullptr &&
      std::getenv("PMI_RANK") == nullptr) {
    return integer_variable("SLURM_STEP_NUM_TASKS");
  }
  return -1;
}

std::map<std::string, std::string> recorded_environment() {
  std::map<std::string, std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    std::string name = text.substr(0, equals);
    if (is_recorded(name)) result.emplace(std::move(name), redacted(text.substr(equals + 1)));
  }
  return result;
}

std::int64_t now_ns() {
  struct timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

ClockFacts clock_facts() {
  struct timespec resolution{};
  clock_getres(CLOCK_MONOTONIC, &resolution);
  std::array<std::int64_t, 1001> readings{};
  for (auto& reading : readings) {
    constexpr int kReadings = 16;
    const std::int64_t start = now_ns();
    for (int i = 0; i < kReadings; ++i) (void)now_ns();
    reading = (now_ns() - start) / (kReadings + 1);
  }
  std::nth_element(readings.begin(), readings.begin() + readings.size() / 2, readings.end());
  return {resolution.tv_sec * 1'000'000'000LL + resolution.tv_nsec, readings[readings.size() / 2]};
}

double host_copy_gbps() {
  // Larger than the caches of today's processors, small enough to take a moment only.
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const auto source = std::make_unique<char[]>(kBytes);
  const auto destination = std::make_unique<char[]>(kBytes);
  std::memset(source.get(), 1, kBytes);
  std::memset(destination.get(), 2, kBytes);
  // Of a busy core others take most of the time, in turns that are shorter than a copy: what counts is the time that
  // this thread had. Those that use the memory make a reading slower, and nothing makes it faster.
  const auto own_ns = []() -> std::int64_t {
    struct timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
  };
  static std::int64_t best = std::numeric_limits<std::int64_t>::max();
  for (int reading = 0; reading < 9; ++reading) {
    const std::int64_t start = own_ns();
    std::memcpy(destination.get(), source.get(), kBytes);
    // The copy is used, so it cannot be left out.
    volatile char last = destination[kBytes - 1];
    (void)last;
    best = std::min(best, own_ns() - start);
  }
  return 8.0 * static_cast<double>(kBytes) / static_cast<double>(best);
}

}  // namespace fabricbench
