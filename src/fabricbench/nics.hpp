// The NICs of a node, which of them a rank uses, and which part of a message goes over which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fabricbench {

struct Nic {
  std::string name;      // as the kernel has it: mlx5_0, cxi0, hsn0
  std::string provider;  // libfabric's: verbs;ofi_rxm
  std::string bus_id;    // 0000:41:00.0; empty where it is no PCI device
  double gbps = 0;       // of its link, in one direction; 0: unknown
  bool up = true;
};

// Who looks for a NIC: the PCI device of its GPU (empty: none), a NUMA node, and its number among the ranks of the
// node.
struct Seat {
  std::string bus_id;
  int numa_node;
  int node_rank;
};

inline constexpr char kNearNic[] = "near";
inline constexpr char kAllNics[] = "all";

// In the order in which NICs are numbered: mlx5_2 comes before mlx5_10.
void sort_by_name(std::vector<Nic>& nics);

// PCI device, rate and state of an interface of the kernel's network, as far as sysfs knows them.
Nic interface_of(const std::string& name, const std::string& sysfs = "/sys");

// The places among `nics`, which are sorted, of those that a rank uses: the one that shares most of the way over PCIe
// with its GPU, or is on its NUMA node (near), all, or what a list says for this rank: a name, that of its network
// interface (hsn0 for cxi0), or a number, or several joined by '+'. Of several that are equally near the ranks of a
// node take one after another.
// InputError where there is no such NIC, or where it is down.
std::vector<std::size_t> chosen_nics(const std::vector<Nic>& nics, const std::string& wanted, const Seat& seat,
                                     const std::string& sysfs = "/sys");

// What goes over one of the NICs in one piece.
struct Piece {
  std::size_t nic;
  std::uint64_t offset;
  std::uint64_t bytes;

  bool operator==(const Piece& other) const {
    return nic == other.nic && offset == other.offset && bytes == other.bytes;
  }
};
// A message in stripes over so many NICs, each of whole pages but the last, and none of the pieces above `most` bytes.
std::vector<Piece> pieces_of(std::uint64_t bytes, std::size_t nics, std::uint64_t most);

}  // namespace fabricbench
