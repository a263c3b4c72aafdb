#include "fabricbench/nics.hpp"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <tuple>
#include <utility>

#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// The name without the number at its end, and that number.
std::pair<std::string, std::uint64_t> name_and_number(const std::string& name) {
  std::size_t end = name.size();
  while (end > 0 && is_digit(name[end - 1])) --end;
  return {name.substr(0, end), std::strtoull(name.c_str() + end, nullptr, 10)};
}

template <typename Value>
Value read_value(const std::string& path, Value otherwise) {
  std::ifstream file(path);
  Value value{};
  return file >> value ? value : otherwise;
}

std::string real_path(const std::string& path) {
  char real[PATH_MAX];
  return realpath(path.c_str(), real) == nullptr ? "" : real;
}

// How many bridges the ways to two PCI devices have in common, and whether they are on one NUMA node. The more, the
// nearer.
std::pair<std::size_t, bool> nearness(const std::string& bus_id, const Seat& seat, const std::string& sysfs) {
  const std::string devices = sysfs + "/bus/pci/devices/";
  const int node = bus_id.empty() ? -1 : read_value(devices + bus_id + "/numa_node", -1);
  const bool same_node = node >= 0 && node == seat.numa_node;
  if (bus_id.empty() || seat.bus_id.empty()) return {0, same_node};
  const std::vector<std::string> own = split(real_path(devices + seat.bus_id), '/');
  const std::vector<std::string> other = split(real_path(devices + bus_id), '/');
  const std::size_t shorter = std::min(own.size(), other.size());
  const auto end = own.begin() + static_cast<std::ptrdiff_t>(shorter);
  return {static_cast<std::size_t>(std::mismatch(own.begin(), end, other.begin()).first - own.begin()), same_node};
}

std::size_t nearest(const std::vector<Nic>& nics, const Seat& seat, const std::string& sysfs) {
  std::vector<std::pair<std::size_t, bool>> near;
  for (const Nic& nic : nics) near.push_back(nearness(nic.bus_id, seat, sysfs));
  const auto best = *std::max_element(near.begin(), near.end());
  std::vector<std::size_t> equals;
  for (std::size_t i = 0; i < near.size(); ++i) {
    if (near[i] == best) equals.push_back(i);
  }
  return equals[static_cast<std::size_t>(seat.node_rank) % equals.size()];
}

std::size_t named(const std::vector<Nic>& nics, const std::string& wanted, const std::string& sysfs) {
  std::vector<std::string> names;
  for (const Nic& nic : nics) names.push_back(nic.name);
  const auto name = std::find(names.begin(), names.end(), wanted);
  if (name != names.end()) return static_cast<std::size_t>(name - names.begin());
  const std::string device = interface_of(wanted, sysfs).bus_id;
  for (std::size_t i = 0; i < nics.size(); ++i) {
    if (!device.empty() && nics[i].bus_id == device) return i;
  }
  if (!wanted.empty() && std::all_of(wanted.begin(), wanted.end(), is_digit)) {
    const auto number = static_cast<std::size_t>(std::strtoull(wanted.c_str(), nullptr, 10));
    if (number < nics.size()) return number;
  }
  throw InputError("there is no NIC '" + wanted + "' in libfabric's list: choose from " + join(names, ", "));
}

}  // namespace

void sort_by_name(std::vector<Nic>& nics) {
  std::sort(nics.begin(), nics.end(),
            [](const Nic& a, const Nic& b) { return name_and_number(a.name) < name_and_number(b.name); });
}

Nic interface_of(const std::string& name, const std::string& sysfs) {
  const std::string folder = sysfs + "/class/net/" + name;
  Nic nic;
  nic.name = name;
  const std::string device = real_path(folder + "/device");
  const std::string last = device.substr(device.rfind('/') + 1);
  // Devices of other buses have names of other forms, such as virtio0.
  if (std::count(last.begin(), last.end(), ':') == 2) nic.bus_id = last;
  nic.gbps = std::max(read_value(folder + "/speed", 0.0), 0.0) / 1000;  // in Mb/s; -1 where it is down
  nic.up = read_value(folder + "/operstate", std::string("unknown")) != "down";
  return nic;
}

std::vector<std::size_t> chosen_nics(const std::vector<Nic>& nics, const std::string& wanted, const Seat& seat,
                                     const std::string& sysfs) {
  std::vector<std::size_t> chosen;
  if (wanted == kAllNics) {
    for (std::size_t i = 0; i < nics.size(); ++i) chosen.push_back(i);
  } else if (wanted == kNearNic) {
    chosen = {nearest(nics, seat, sysfs)};
  } else {
    const std::vector<std::string> list = split(wanted, ',');
    for (const std::string& name : split(list[static_cast<std::size_t>(seat.node_rank) % list.size()], '+'))
      chosen.push_back(named(nics, name, sysfs));
  }
  for (const std::size_t place : chosen) {
    if (!nics[place].up)
      throw InputError("the link of the NIC " + nics[place].name + " is down: check its cable and port");
  }
  return chosen;
}

std::vector<Piece> pieces_of(std::uint64_t bytes, std::size_t nics, std::uint64_t most) {
  constexpr std::uint64_t kPage = 4096;
  const std::uint64_t pages = (bytes + kPage - 1) / kPage;
  const std::uint64_t stripe = (pages + nics - 1) / nics * kPage;
  std::vector<Piece> pieces;
  for (std::uint64_t at = 0; at < bytes;) {
    const std::uint64_t end = std::min(bytes, (at / stripe + 1) * stripe);
    const std::uint64_t length = std::min(end - at, most);
    pieces.push_back({static_cast<std::size_t>(at / stripe), at, length});
    at += length;
  }
  return pieces;
}

}  // namespace fabricbench
