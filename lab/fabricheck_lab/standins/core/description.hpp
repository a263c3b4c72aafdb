// What the emulated node is: `node.json` in the folder that FABRICHECK_EMULATED_NODE names, written by
// fabricheck_lab.node, and what is wrong with it: `faults.json` beside it, read again whenever it changes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/json.hpp"

namespace emulation {

// What moves data, each with its own efficiency on a link.
enum class Mover { copy, kernel, ccl };
constexpr std::size_t kMovers = 3;

struct Gpu {
  std::string name;
  int vertex;
  std::string model;
  std::array<std::uint8_t, 16> uuid;
  std::string bus_id;
  std::uint64_t memory_bytes;
  int host;         // vertex of the CPU that it is nearest to
  std::string nic;  // its NIC, which is an interface of the node; empty without one
  Json facts;       // everything that the file says of it
};

// A directed link, or another limit that several routes share.
struct Link {
  std::string name;
  std::string source;
  std::string destination;
  double rate;                             // bits a nanosecond
  std::array<double, kMovers> efficiency;  // share of the rate that is payload
};

struct Route {
  std::vector<std::uint16_t> links;
  bool peer_access = true;
};

struct Description {
  std::string folder;
  std::string system;
  std::string vendor;  // nvidia, amd
  std::vector<Gpu> gpus;
  std::vector<std::string> vertices;  // GPUs, then CPUs, then NICs
  std::vector<Link> links;
  std::map<std::pair<int, int>, Route> routes;
  std::array<std::int64_t, kMovers> latency_ns;
  std::uint64_t largest_allocation;  // 0: no limit
  Json content;

  int vertex(const std::string& name) const;
  const Route& route(int source, int destination) const;
};

// The description of this process's node; ends the run where there is none, or it does not fit together.
const Description& description();

// The faults in effect, looked for at most every 20 ms. `stamp` changes with them.
struct Faults {
  Json content;
  std::int64_t stamp = 0;
};
const Faults& faults();

// Names of the GPUs that the node has at present, in the driver's order.
std::vector<int> present_gpus();

// Whether a fault's list of GPUs, or `true` for all of them, names this one.
bool names(const Json& list, const Gpu& gpu);

// A version that a fault may have replaced: `versions` of the faults, else of the description.
Json version(const std::string& what);

}  // namespace emulation
