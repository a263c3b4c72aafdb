#include "fabricbench/interfaces.hpp"

#include <glob.h>

#include <fstream>
#include <utility>
#include <vector>

#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

// The number in each file that matches, by the names of the folders above the file, the nearest one last.
std::vector<std::pair<std::vector<std::string>, std::uint64_t>> read_numbers(const std::string& pattern,
                                                                             bool with_file = false) {
  std::vector<std::pair<std::vector<std::string>, std::uint64_t>> numbers;
  glob_t files{};
  if (glob(pattern.c_str(), 0, nullptr, &files) == 0) {
    for (std::size_t i = 0; i < files.gl_pathc; ++i) {
      std::ifstream stream(files.gl_pathv[i]);
      std::uint64_t number = 0;
      if (!(stream >> number)) continue;
      std::vector<std::string> folders = split(files.gl_pathv[i], '/');
      if (!with_file) folders.pop_back();
      numbers.emplace_back(std::move(folders), number);
    }
  }
  globfree(&files);
  return numbers;
}

}  // namespace

SentBytes sent_bytes(const std::string& sysfs) {
  SentBytes sent;
  for (const auto& [folders, bytes] : read_numbers(sysfs + "/class/net/*/statistics/tx_bytes")) {
    const std::string& name = folders[folders.size() - 2];
    if (name != "lo") sent[name] = bytes;
  }
  for (const auto& [folders, words] : read_numbers(sysfs + "/class/infiniband/*/ports/*/counters/port_xmit_data")) {
    // Counted in words of four bytes (InfiniBand specification, PortXmitData).
    sent[folders[folders.size() - 4] + ':' + folders[folders.size() - 2]] = words * 4;
  }
  return sent;
}

PortCounters port_counters(const std::string& sysfs) {
  PortCounters counters;
  const auto add = [&](const std::string& pattern, auto name_of) {
    for (const auto& [path, number] : read_numbers(sysfs + pattern, true)) {
      if (const std::string name = name_of(path); !name.empty()) counters[name][path.back()] = number;
    }
  };
  const auto above = [](const std::vector<std::string>& path, std::size_t levels) {
    return path[path.size() - 1 - levels];
  };
  for (const char* folder : {"counters", "hw_counters"}) {
    add("/class/infiniband/*/ports/*/" + std::string(folder) + "/*", [&](const auto& path) {
      const std::string port = above(path, 2);
      return above(path, 4) + (port == "1" ? "" : "_" + port);
    });
  }
  for (const char* file : {"statistics/*", "carrier_changes"}) {
    add("/class/net/*/" + std::string(file), [&](const auto& path) {
      const std::string name = above(path, path.back() == "carrier_changes" ? 1 : 2);
      std::ifstream type(sysfs + "/class/net/" + name + "/type");
      int number = 0;
      return type >> number && number == 1 ? name : "";  // Ethernet
    });
  }
  for (const char* word : {"paus", "pfc", "discard", "drop", "err", "uncorrected", "timeout", "retr"})
    add("/class/cxi/*/device/telemetry/*" + std::string(word) + "*", [&](const auto& path) { return above(path, 3); });
  return counters;
}

PortCounters growth(const PortCounters& before, const PortCounters& after) {
  PortCounters grown;
  for (const auto& [port, counters] : after) {
    const auto known = before.find(port);
    for (const auto& [name, number] : counters) {
      if (known == before.end()) continue;
      const auto earlier = known->second.find(name);
      if (earlier != known->second.end() && number > earlier->second) grown[port][name] = number - earlier->second;
    }
  }
  return grown;
}

SentBytes sent_between(const SentBytes& before, const SentBytes& after) {
  SentBytes sent;
  for (const auto& [name, bytes] : after) {
    const auto earlier = before.find(name);
    if (earlier != before.end() && bytes >= earlier->second) sent[name] = bytes - earlier->second;
  }
  return sent;
}

}  // namespace fabricbench
