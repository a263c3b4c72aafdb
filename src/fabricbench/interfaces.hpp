// What the kernel counted on each network interface of a node: the proof of which way data left it, and errors.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace fabricbench {

// Bytes sent, by interface (hsn0; mlx5_0:1 for a port of an InfiniBand device).
using SentBytes = std::map<std::string, std::uint64_t>;

// Counters of all interfaces below `sysfs` but the loopback. Interfaces that do not say are left out.
SentBytes sent_bytes(const std::string& sysfs = "/sys");

// What was sent between two readings. An interface of which one reading is missing, or that was reset, is left out.
SentBytes sent_between(const SentBytes& before, const SentBytes& after);

// All counters of each port of a NIC, by the names that the kernel has for them, and that node states use
// (fabricheck/state/nics.py): mlx5_0, and mlx5_0_2 of a second port; Ethernet interfaces; cxi0, of whose telemetry only
// what can tell of trouble.
using PortCounters = std::map<std::string, std::map<std::string, std::uint64_t>>;
PortCounters port_counters(const std::string& sysfs = "/sys");
// By how much those that are in both grew, without those that did not.
PortCounters growth(const PortCounters& before, const PortCounters& after);

}  // namespace fabricbench
