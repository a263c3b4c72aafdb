#include "fabricbench/proof.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>

#include "fabricbench/device/device.hpp"
#include "fabricbench/environment.hpp"
#include "fabricbench/json.hpp"
#include "fabricbench/private_log.hpp"
#include "fabricbench/proof_logs.hpp"
#include "fabricbench/secrets.hpp"

namespace fabricbench {
namespace {

// Marks the second start, in which UCX finds its variables set.
constexpr char kRestarted[] = "FABRICBENCH_RESTARTED";

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

// By host, what each of its interfaces has sent since `before`, on rank 0; empty on one node. Collective.
void interfaces_json(Json& json, const World& world, const SentBytes& before) {
  std::string mine;
  if (world.node_count > 1 && world.node_rank == 0) {
    mine = host_name() + '\n';
    for (const auto& [name, bytes] : sent_between(before, sent_bytes())) {
      mine += std::to_string(bytes) + ' ' + name + '\n';
    }
  }
  json.begin_object();
  for (const std::string& text : world.strings_at_first(mine)) {
    std::istringstream stream(text);
    std::string line;
    if (!std::getline(stream, line)) continue;
    json.key(line).begin_object();
    while (std::getline(stream, line)) {
      const std::size_t space = line.find(' ');
      json.field(line.substr(space + 1), static_cast<std::int64_t>(std::strtoll(line.c_str(), nullptr, 10)));
    }
    json.end_object();
  }
  json.end_object();
}

// The first ranks that named a path, where it was not named on every node, on rank 0. Collective.
void only_json(Json& json, const World& world, const std::map<std::string, std::vector<int>>& ranks) {
  constexpr std::size_t kMost = 8;
  const std::vector<std::string> hosts = world.strings_at_first(host_name());
  const std::set<std::string> everywhere(hosts.begin(), hosts.end());
  json.begin_object();
  for (const auto& [path, named] : ranks) {
    std::set<std::string> where;
    for (const int rank : named) where.insert(hosts[static_cast<std::size_t>(rank)]);
    if (where == everywhere) continue;
    json.field(path, std::vector<int>(named.begin(),
                                      named.begin() + static_cast<std::ptrdiff_t>(std::min(named.size(), kMost))));
  }
  json.end_object();
}

// What the log of each rank remarks, with the first ranks that do, on rank 0. Collective.
std::map<Remark, std::vector<int>> remarks_of_all_ranks(const World& world, bool has_log) {
  constexpr std::size_t kMostOfRank = 16, kMost = 64;
  std::string mine;
  if (has_log) {
    for (const auto& [text, warning] : remarks_in_ccl_log(read_private_log(), kMostOfRank))
      mine += (warning ? '!' : ' ') + text + '\n';
  }
  std::map<Remark, std::vector<int>> remarks;
  const std::vector<std::string> told = world.strings_at_first(mine);
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    std::istringstream stream(told[rank]);
    for (std::string line; std::getline(stream, line);) {
      const Remark remark{redacted(line.substr(1)), line[0] == '!'};
      if (remarks.size() < kMost || remarks.count(remark) > 0) remarks[remark].push_back(static_cast<int>(rank));
    }
  }
  return remarks;
}

void remarks_json(Json& json, const std::map<Remark, std::vector<int>>& remarks) {
  constexpr std::size_t kMostRanks = 8;
  json.key("remarks").begin_array();
  for (const auto& [remark, ranks] : remarks) {
    const std::vector<int> first(ranks.begin(),
                                 ranks.begin() + static_cast<std::ptrdiff_t>(std::min(ranks.size(), kMostRanks)));
    json.begin_object()
        .field("text", remark.text)
        .field("warning", remark.warning)
        .field("ranks", first)
        .field("of_ranks", ranks.size())
        .end_object();
  }
  json.end_array();
}

// By rank, on rank 0; ranks that never paused are left out. Collective.
void pauses_json(Json& json, const World& world, const Pauses& mine) {
  const std::vector<std::string> of_ranks = world.strings_at_first(mine.json());
  json.key("pauses").begin_object();
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (!of_ranks[rank].empty()) json.key(std::to_string(rank)).literal(of_ranks[rank]);
  }
  json.end_object();
}

// What all ranks know of the modes of *CCL, on rank 0. Collective.
CclProof of_all_ranks(const World& world, const CclProof& mine) {
  CclProof all;
  for (const std::string& text : world.strings_at_first(mine.lines())) all.add_lines(text);
  return all;
}

}  // namespace

Proof::Proof(const std::string& transport, char** arguments) {
  if (transport == "ccl" && std::strcmp(device::backend(), "sycl") == 0) {
    if (is_set("CCL_LOG_LEVEL")) return;
    path_ = make_private_log();
    if (path_.empty()) return;
    // It goes to the standard output; the transport turns that into the log while it sets up.
    setenv("CCL_LOG_LEVEL", "info", 1);
    evidence_ = "CCL_LOG_LEVEL";
    own_variables_ = {"CCL_LOG_LEVEL"};
  } else if (transport == "ccl" && std::strcmp(device::backend(), "host") != 0) {
    path_ = make_private_log();
    if (path_.empty()) return;
    // Also where a site's module has set them: without them nothing is proven.
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "INIT,NET", 1);
    setenv("NCCL_DEBUG_FILE", path_.c_str(), 1);
    evidence_ = "NCCL_DEBUG";
    own_variables_ = {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"};
  } else if (transport == "mpi" && is_set(kRestarted) && is_set("UCX_LOG_FILE")) {
    unsetenv(kRestarted);
    path_ = std::getenv("UCX_LOG_FILE");
    adopt_private_log(path_);
    evidence_ = "UCX_PROTO_INFO";
    own_variables_ = {"UCX_PROTO_INFO", "UCX_LOG_LEVEL", "UCX_LOG_FILE"};
  } else if (transport == "mpi" && !is_set("UCX_LOG_FILE") && !is_set("UCX_LOG_LEVEL") && !is_set("UCX_PROTO_INFO")) {
    const std::string path = make_private_log();
    if (path.empty()) return;
    setenv("UCX_PROTO_INFO", "y", 1);
    setenv("UCX_LOG_LEVEL", "info", 1);
    setenv("UCX_LOG_FILE", path.c_str(), 1);
    setenv(kRestarted, "1", 1);
    execv("/proc/self/exe", arguments);
    // Where that is not allowed the run goes on, without this evidence.
    unsetenv(kRestarted);
    for (const char* name : {"UCX_PROTO_INFO", "UCX_LOG_LEVEL", "UCX_LOG_FILE"}) unsetenv(name);
    remove_private_log();
  }
}

Proof::~Proof() { remove_private_log(); }

void Proof::begin_plan() const {
  if (evidence_ != "UCX_PROTO_INFO") forget_private_log();
}

void Proof::begin_counting(const World& world) {
  if (world.node_count > 1 && world.node_rank == 0) sent_before_ = sent_bytes();
}

std::string Proof::collect(const World& world, const std::map<std::string, long>& known, const CclProof& modes,
                           const Pauses& pauses) const {
  std::string lines;
  for (const auto& [path, times] : known) lines += std::to_string(times) + ' ' + path + '\n';
  if (!path_.empty()) {
    const std::string log = read_private_log();
    const auto read = evidence_ == "NCCL_DEBUG"      ? paths_in_ccl_log
                      : evidence_ == "CCL_LOG_LEVEL" ? paths_in_oneccl_log
                                                     : paths_in_ucx_log;
    for (const auto& [path, times] : read(log)) {
      lines += std::to_string(times) + ' ' + path + '\n';
    }
  }
  std::map<std::string, long> paths;
  std::map<std::string, std::vector<int>> ranks;
  const std::vector<std::string> told = world.strings_at_first(lines);
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    std::istringstream stream(told[rank]);
    for (std::string line; std::getline(stream, line);) {
      const std::size_t space = line.find(' ');
      const std::string path = line.substr(space + 1);
      paths[path] += std::strtol(line.c_str(), nullptr, 10);
      ranks[path].push_back(static_cast<int>(rank));
    }
  }
  const auto remarks = remarks_of_all_ranks(world, evidence_ == "NCCL_DEBUG");
  const CclProof all = of_all_ranks(world, modes);
  // Between windows NCCL makes no channels, of which the log would tell: in a node it offers them only where all GPUs
  // reach each other's memory (`symmetricSupport` in init.cc of 2.28), and kernels or copy engines do so.
  for (const char* mode : {kSymmetricMode, kCopyEngineMode}) {
    if (const long times = world.node_count == 1 ? all.proven(mode) : 0; times > 0)
      paths[std::string("P2P/") + mode] = times;
  }
  Json json;
  json.begin_object().key("paths").begin_object();
  for (const auto& [path, times] : paths) json.field(path, times);
  json.end_object().key("evidence");
  if (paths.empty()) {
    json.null();
  } else {
    json.value(known.empty() ? evidence_ : "libfabric");
  }
  json.key("only");
  only_json(json, world, ranks);
  json.key("interfaces");
  interfaces_json(json, world, sent_before_);
  pauses_json(json, world, pauses);
  if (!remarks.empty()) remarks_json(json, remarks);
  if (!all.empty()) json.key("ccl_modes").literal(all.json());
  return json.end_object().text();
}

}  // namespace fabricbench
