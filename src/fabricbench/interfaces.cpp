#include "fabricbench/interfaces.hpp"

#include <fstream>
#include <optional>
#include <system_error>

namespace fabricbench {
namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> read_number(const fs::path& file) {
  std::ifstream stream(file);
  std::uint64_t number = 0;
  if (stream >> number) return number;
  return std::nullopt;
}

}  // namespace

SentBytes sent_bytes(const fs::path& sysfs) {
  SentBytes sent;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(sysfs / "class/net", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == "lo") continue;
    if (const auto bytes = read_number(entry.path() / "statistics/tx_bytes")) sent[name] = *bytes;
  }
  for (const auto& device : fs::directory_iterator(sysfs / "class/infiniband", ignored)) {
    for (const auto& port : fs::directory_iterator(device.path() / "ports", ignored)) {
      // Counted in words of four bytes (InfiniBand specification, PortXmitData).
      if (const auto words = read_number(port.path() / "counters/port_xmit_data")) {
        sent[device.path().filename().string() + ':' + port.path().filename().string()] = *words * 4;
      }
    }
  }
  return sent;
}

SentBytes sent_between(const SentBytes& before, const SentBytes& after) {
  SentBytes sent;
  for (const auto& [name, bytes] : after) {
    const auto found = before.find(name);
    if (found != before.end() && bytes >= found->second) sent[name] = bytes - found->second;
  }
  return sent;
}

}  // namespace fabricbench
