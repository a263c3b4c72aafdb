// Which paths the logs of the libraries name.
#pragma once

#include <map>
#include <string>

namespace fabricbench {

// Path to the number of times that a log names it; these read NCCL's and UCX's log.
std::map<std::string, long> paths_in_ccl_log(const std::string& log);
std::map<std::string, long> paths_in_ucx_log(const std::string& log);

}  // namespace fabricbench
