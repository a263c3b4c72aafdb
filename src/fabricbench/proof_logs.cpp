#include "fabricbench/proof_logs.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include "fabricbench/secrets.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\r") - first + 1));
}

// The plugin's versions write Provider and provider.
constexpr char kProvider[] = "NET/OFI Selected ";

}  // namespace

std::map<std::string, long> paths_in_ccl_log(const std::string& log) {
  // "… Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "… [send] via NET/AWS Libfabric/0/GDRDMA comm 0x55…", and of the
  // plugin for libfabric "NET/OFI Selected Provider is cxi (found 4 nics)": tcp can hide below it. The plugin says so
  // inside a node too, where nothing goes over it: it counts beside a channel over a network only.
  std::map<std::string, long> paths;
  std::map<std::string, long> providers;
  bool network = false;
  std::istringstream stream(log);
  for (std::string line; std::getline(stream, line);) {
    if (const std::size_t provider = line.find(kProvider); provider != std::string::npos) {
      const std::size_t begin = line.find(" is ", provider);
      if (begin == std::string::npos) continue;
      const std::string name = line.substr(begin + 4, line.find_first_of(" ,\r", begin + 4) - begin - 4);
      if (!name.empty()) ++providers["NET/OFI provider " + name];
      continue;
    }
    const std::size_t via = line.find(" via ");
    if (via == std::string::npos || line.find("Channel ") == std::string::npos) continue;
    // The name of a network may have blanks; what follows it is the address of the communicator.
    const std::string path = trimmed(std::string_view(line).substr(via + 5, line.find(" comm 0x", via) - via - 5));
    if (!path.empty()) ++paths[path];
    network = network || path.rfind("NET/", 0) == 0;
  }
  if (network) paths.insert(providers.begin(), providers.end());
  return paths;
}

std::map<std::string, std::string> settings_in_ccl_log(const std::string& log) {
  // "… NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer",
  // "… INFO P2P Chunksize set to 524288", "… INFO CC Off, workFifoBytes 1048576", "… INFO threadThresholds 8/8/64 | …"
  constexpr const char* kNumberBefore[][2] = {{" coll channels", "NCCL_MAX_NCHANNELS"},
                                              {" nvls channels", "NCCL_NVLS_NCHANNELS"},
                                              {" p2p channels,", "NCCL_MAX_P2P_NCHANNELS"}};
  constexpr const char* kValueBehind[][2] = {{"P2P Chunksize set to ", "NCCL P2P Chunksize"},
                                             {"workFifoBytes ", "NCCL_WORK_FIFO_BYTES"},
                                             {"threadThresholds ", "NCCL_THREAD_THRESHOLDS"}};
  std::map<std::string, std::string> settings;
  std::istringstream stream(log);
  for (std::string line; std::getline(stream, line);) {
    if (line.find(" INFO ") == std::string::npos) continue;
    for (const auto& [mark, name] : kNumberBefore) {
      const std::size_t end = line.find(mark);
      if (end == std::string::npos) continue;
      const std::size_t begin = line.rfind(' ', end - 1) + 1;
      settings.emplace(name, line.substr(begin, end - begin));
    }
    for (const auto& [mark, name] : kValueBehind) {
      if (const std::size_t at = line.find(mark); at != std::string::npos)
        settings.emplace(name, trimmed(std::string_view(line).substr(at + std::strlen(mark))));
    }
  }
  return settings;
}

std::string default_in_help(const std::string& help) {
  // "Maximum size (default: 64)", "Number of operations\n Default: 1024"
  std::size_t begin = std::string::npos;
  for (const char* mark : {"default: ", "Default: "})
    if (const std::size_t at = help.rfind(mark); at != std::string::npos) begin = at + std::strlen(mark);
  return begin == std::string::npos ? std::string() : help.substr(begin, help.find_first_of(")\n", begin) - begin);
}

std::vector<Remark> remarks_in_ccl_log(const std::string& log, std::size_t most) {
  constexpr std::size_t kLongest = 240;
  constexpr char kMarks[][sizeof " WARN "] = {" WARN ", " INFO "};
  // "n1:10:11 [0] NCCL INFO NET/Socket : GPU Direct RDMA Disabled for HCA 0 'hsn0'". That no plugin is installed is
  // usual.
  constexpr const char* kReasons[] = {
      "isabled",    "ot supported", "nsupported", "o device found", "ould not",    "ailed",       "annot",
      "navailable", "ot available", " ACS",       "all back",       "alling back", "ncompatible", "rror"};
  std::vector<Remark> remarks;
  std::istringstream stream(log);
  for (std::string line; remarks.size() < most && std::getline(stream, line);) {
    for (const char* mark : kMarks) {
      const std::size_t place = line.find(mark);
      if (place == std::string::npos || place < 4 || line.compare(place - 3, 3, "CCL") != 0) continue;
      const bool warning = mark == kMarks[0];
      std::string text = redacted(trimmed(std::string_view(line).substr(place + std::strlen(mark), kLongest)));
      const bool told =
          !text.empty() && (warning || (text.find("/Plugin") == std::string::npos &&
                                        std::any_of(std::begin(kReasons), std::end(kReasons), [&](const char* word) {
                                          return text.find(word) != std::string::npos;
                                        })));
      Remark remark{std::move(text), warning};
      const auto same = [&](const Remark& other) { return !(other < remark) && !(remark < other); };
      if (told && std::none_of(remarks.begin(), remarks.end(), same)) remarks.push_back(std::move(remark));
      break;
    }
  }
  return remarks;
}

std::string warnings_in_ccl_log(const std::string& log) {
  constexpr std::size_t kFew = 2, kAll = 1000;
  std::vector<std::string> lines;
  for (const auto& [text, warning] : remarks_in_ccl_log(log, kAll)) {
    if (warning && lines.size() < kFew) lines.push_back(text);
  }
  return join(lines, "; ");
}

std::map<std::string, long> paths_in_oneccl_log(const std::string& log) {
  // "… |CCL_INFO| atl-mpi:" and, of a communicator, a block with "single_node: 1" and "p2p_access: 0".
  std::map<std::string, long> paths;
  const std::string over = log.find("|CCL_INFO| atl-ofi:") != std::string::npos   ? "OFI"
                           : log.find("|CCL_INFO| atl-mpi:") != std::string::npos ? "MPI"
                                                                                  : "";
  if (over.empty()) return paths;
  std::istringstream stream(log);
  for (std::string line; std::getline(stream, line);) {
    const std::string fact = trimmed(line);
    if (fact == "single_node: 0") ++paths["NET/" + over];
    if (fact == "p2p_access: 1") ++paths["P2P/LevelZero"];
    if (fact == "p2p_access: 0") ++paths["SHM/" + over];
  }
  return paths;
}

std::map<std::string, long> paths_in_ucx_log(const std::string& log) {
  // Tables whose rows are "| 8185..inf | rendezvous zero-copy read from remote | cuda_ipc/cuda |"; the first row of a
  // table has two cells and says which operation and memory it is about.
  std::map<std::string, long> paths;
  std::istringstream stream(log);
  std::string memory = "host";
  for (std::string line; std::getline(stream, line);) {
    // Versions before 1.14 have no tables, but lines such as "ep_cfg[0]: tag(self/memory0 tcp/hsn0) rma(…)".
    if (const std::size_t lanes = line.find("]: tag("); lanes != std::string::npos && line.find("ep_cfg[") < lanes) {
      const std::size_t begin = lanes + 7;
      for (const std::string& lane : split(line.substr(begin, line.find(')', begin) - begin), ' ')) {
        if (lane.find('/') != std::string::npos) ++paths["host: " + lane];
      }
      continue;
    }
    const std::size_t first = line.find('|');
    if (first == std::string::npos) continue;
    const auto cells = split(std::string_view(line).substr(first + 1), '|');
    if (cells.size() == 2 || cells.size() == 3) {
      const std::string& title = cells[cells.size() - 2];
      memory = title.find("cuda") != std::string::npos   ? "cuda"
               : title.find("rocm") != std::string::npos ? "rocm"
                                                         : "host";
    } else if (cells.size() == 4 && cells[2].find('/') != std::string::npos) {
      ++paths[memory + ": " + trimmed(cells[2])];
    }
  }
  return paths;
}

}  // namespace fabricbench
