#include "fabricbench/interfaces.hpp"

#include <glob.h>

#include <fstream>
#include <utility>
#include <vector>

#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

// By the names of the folders above it, the nearest one last, the number in each file that matches.
std::vector<std::pair<std::vector<std::string>, std::uint64_t>> read_numbers(const std::string& pattern) {
  std::vector<std::pair<std::vector<std::string>, std::uint64_t>> numbers;
  glob_t files{};
  if (glob(pattern.c_str(), 0, nullptr, &files) == 0) {
    for (std::size_t i = 0; i < files.gl_pathc; ++i) {
      std::ifstream stream(files.gl_pathv[i]);
      std::uint64_t number = 0;
      if (!(stream >> number)) continue;
      std::vector<std::string> folders = split(files.gl_pathv[i], '/');
      folders.pop_back();
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

SentBytes sent_between(const SentBytes& before, const SentBytes& after) {
  SentBytes sent;
  for (const auto& [name, bytes] : after) {
    const auto earlier = before.find(name);
    if (earlier != before.end() && bytes >= earlier->second) sent[name] = bytes - earlier->second;
  }
  return sent;
}

}  // namespace fabricbench
