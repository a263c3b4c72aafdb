// What the kernel counted on each network interface of a node: the proof of which way data left it.
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

}  // namespace fabricbench
