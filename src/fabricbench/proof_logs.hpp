// Which paths the logs of the libraries name.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace fabricbench {

// Path to the number of times that a log names it; these read NCCL's, UCX's and oneCCL's log.
std::map<std::string, long> paths_in_ccl_log(const std::string& log);
std::map<std::string, long> paths_in_ucx_log(const std::string& log);
// oneCCL names no link. P2P/LevelZero: the devices of the node reach each other's memory; SHM/MPI: they do not; NET/MPI
// and NET/OFI: between nodes, over MPI or libfabric.
std::map<std::string, long> paths_in_oneccl_log(const std::string& log);

// How NCCL is set, by the variable that sets it, as its log says of the first communicator.
std::map<std::string, std::string> settings_in_ccl_log(const std::string& log);

// The default that libfabric's help of a variable ends in; empty where it names none.
std::string default_in_help(const std::string& help);

// What a library says of itself beside its paths.
struct Remark {
  std::string text;
  bool warning;  // else what it gives as a reason for what it does
  bool operator<(const Remark& other) const { return std::tie(warning, text) < std::tie(other.warning, other.text); }
};
// The warnings in NCCL's or RCCL's log, and reasons why it does not use what there is, each once and no more than
// `most` of them.
std::vector<Remark> remarks_in_ccl_log(const std::string& log, std::size_t most);
// The first warnings, joined by "; ".
std::string warnings_in_ccl_log(const std::string& log);

}  // namespace fabricbench
