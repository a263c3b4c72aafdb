// What a node reports of its GPUs and NICs while it works: clocks, power, temperature, what holds clocks down, errors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fabricbench/world.hpp"

namespace fabricbench {

// The first rank of each node looks once a second, in a thread that makes no MPI call and waits for nothing that the
// measurement does. A window keeps least, mean and most of what goes up and down, and the end of what only grows, so
// that hours are as short as minutes. The words are those of fabricheck/state.
class Telemetry {
 public:
  // Collective. `device_index`: the device of this rank, or -1.
  Telemetry(const World& world, int device_index);
  ~Telemetry();
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  // Of the node since the last call, as a line of the result file; empty on all ranks of a node but its first.
  std::string window_json(std::int64_t window);

 private:
  class Sampler;
  std::unique_ptr<Sampler> sampler_;  // null where another rank of the node has it
};

}  // namespace fabricbench
