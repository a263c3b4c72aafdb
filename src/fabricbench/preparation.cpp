#include "fabricbench/preparation.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "fabricbench/device/device.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/numa.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

constexpr std::uint64_t kMostManaged = std::uint64_t{1} << 30;

// The number that all nodes have, where the ranks of each are next to one another; else kNoCommonSize.
int ranks_of_a_node(const World& world) {
  const int first = world.node_ranks.front();
  const bool fits = world.node_size * world.node_count == world.size && first % world.node_size == 0 &&
                    world.node_ranks.back() == first + world.node_size - 1;
  int mine = fits ? 1 : 0;
  int all = 0;
  mpi_check(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, world.all), "MPI_Allreduce");
  return all == 1 ? world.node_size : kNoCommonSize;
}

// Rank 0 reads for all: a file need not be on every node, and all ranks have to see the same.
std::string input(const World& world, const std::string& path, const char* option) {
  std::string text;
  bool complete = true;
  try {
    if (world.rank == 0) text = read_input(path, option);
  } catch (const InputError& error) {
    std::fprintf(stderr, "fabricbench: %s\n", error.what());
    complete = false;
  }
  agree(world, complete);
  return world.from_first(text);
}

// The index of the device that a rank of a node is to drive. With --devices it need not be there.
int chosen_device(const Options& options, const LocalRank& local, int devices) {
  const int place = local.value / static_cast<int>(options.ranks_per_device);
  if (options.devices.empty()) return place % devices;
  return options.devices[static_cast<std::size_t>(place) % options.devices.size()];
}

// What is wrong where two ranks of this node drive one device, on the first rank of the node; else nothing.
std::string device_driven_twice(const World& world, int devices, const std::string& uuid) {
  const std::vector<std::string> uuids = World::gather_strings(uuid, world.node);
  std::map<std::string, int> drivers;
  for (std::size_t i = 0; i < uuids.size() && world.node_rank == 0; ++i) {
    const int rank = world.node_ranks[i];
    const auto [driver, is_first] = drivers.emplace(uuids[i], rank);
    if (is_first) continue;
    return "ranks " + std::to_string(driver->second) + " and " + std::to_string(rank) + " would both drive " +
           uuids[i] + ": on " + host_name() + " are " + std::to_string(world.node_size) + " ranks, and rank " +
           std::to_string(world.rank) + " sees " + std::to_string(devices) + (devices == 1 ? " GPU" : " GPUs") +
           ": is a GPU missing? Else start at most one rank a GPU, leave all GPUs of a node visible to its ranks, or "
           "pass --share-devices";
  }
  return {};
}

}  // namespace

void agree(const World& world, bool fine) {
  int mine = fine ? 1 : 0;
  int all = 0;
  mpi_check(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, world.all), "MPI_Allreduce");
  if (all == 0) throw InputError("");
}

void check_world(const Options& options, const World& world, LocalRank& local) {
  if (const int launched = launched_ranks(); launched > 0 && launched != world.size) {
    throw InputError(
        "the launcher started " + std::to_string(launched) + " ranks and MPI sees " + std::to_string(world.size) +
        ": use the launcher (under srun, the --mpi plugin) that belongs to the MPI library of this program");
  }
  if (options.expected_ranks && *options.expected_ranks != world.size) {
    throw InputError("this run has " + std::to_string(world.size) + " ranks and --expect-ranks asks for " +
                     std::to_string(*options.expected_ranks));
  }
  if (options.expected_nodes && *options.expected_nodes != world.node_count) {
    throw InputError("this run is on " + std::to_string(world.node_count) + " nodes and --expect-nodes asks for " +
                     std::to_string(*options.expected_nodes));
  }
  // The launcher's number is right only if it numbers the ranks of the node.
  std::vector<int> numbers(static_cast<std::size_t>(world.node_size));
  mpi_check(MPI_Allgather(&local.value, 1, MPI_INT, numbers.data(), 1, MPI_INT, world.node), "MPI_Allgather");
  std::sort(numbers.begin(), numbers.end());
  for (int i = 0; i < world.node_size; ++i) {
    if (numbers[static_cast<std::size_t>(i)] != i) local = {world.node_rank, "order on the node"};
  }
}

void read_inputs(Options& options, const World& world) {
  if (options.group_size == 0 && world.node_count > 1) options.group_size = ranks_of_a_node(world);
  if (!options.rounds_file.empty()) {
    options.rounds = parse_rounds(input(world, options.rounds_file, "--rounds"), options.rounds_file, world.size);
  }
  if (options.matrix_files.empty()) return;
  for (const std::string& file : split(options.matrix_files, ','))
    options.matrices.push_back(parse_matrix(input(world, file, "--matrix"), file));
}

Implementation choose(const Transport& transport, Operation operation, Implementation wanted, bool in_place) {
  if (!transport.has_library(operation) && !transport.has_transfers(operation)) {
    throw InputError("this transport has no " + to_string(operation) +
                     ": leave it out, or use --transport mpi or staging");
  }
  if (wanted == Implementation::automatic || (!is_collective(operation) && transport.has_transfers(operation)))
    wanted = transport.preferred(operation);
  if (wanted == Implementation::library && !transport.has_library(operation)) {
    throw InputError("this transport has no collective of its own for " + to_string(operation) +
                     ": use --implementation transfers");
  }
  if (wanted == Implementation::transfers && !transport.has_transfers(operation)) {
    throw InputError("this transport cannot run " + to_string(operation) +
                     " as a list of transfers: use --implementation library");
  }
  if (in_place && (wanted != Implementation::library || !transport.has_in_place(operation)))
    throw InputError("this transport has no " + to_string(operation) +
                     " in place: leave it out, or leave out --in-place");
  return wanted;
}

bool moves_between_ranks(const std::vector<Series>& plan) {
  return std::any_of(plan.begin(), plan.end(), [](const Series& series) {
    if (is_collective(series.operation) || is_training(series.operation)) return true;
    const Transfer first = series.first_transfer();
    return first.source != first.destination;
  });
}

void check_paths(const Options& options, const Transport& transport, const std::vector<Series>& plan) {
  for (const Series& series : plan) {
    if (is_collective(series.operation) || is_training(series.operation)) continue;
    const bool by_cores = describe(series.operation).has(kByCores) && options.transport != "cores";
    if (by_cores || !transport.reaches(series.first_transfer())) {
      throw InputError("the transport " + options.transport + " does not run " + to_string(series.operation) +
                       " between these memories: --transport copy, kernel and fabric have GPU and host, mpi two ranks, "
                       "cores host_read, host_stream and host_triad");
    }
  }
  const HostBufferBytes host = host_buffer_bytes(plan, options, device::present());
  if (host.send + host.receive > 0 && options.host_memory == device::HostKind::migrated) {
    const bool only_there = std::all_of(plan.begin(), plan.end(), [](const Series& series) {
      return series.operation == Operation::host_to_device || series.operation == Operation::device_to_host;
    });
    if (options.transport != "kernel" || !only_there) {
      throw InputError(
          "pages migrate to the kernel or processor that uses them: --host-memory migrated is for host_to_device and "
          "device_to_host with --transport kernel");
    }
  }
  const bool managed =
      options.host_memory == device::HostKind::managed || options.host_memory == device::HostKind::migrated;
  if (managed && host.send + host.receive > kMostManaged) {
    throw InputError("managed memory is limited to " + format_size(kMostManaged) +
                     " in all, since more than the free memory can hang a device: choose smaller --sizes");
  }
  const bool placed = options.host_placement != HostPlacement::any;
  if (placed && options.host_memory != device::HostKind::pinned && options.host_memory != device::HostKind::pageable)
    throw InputError("--host-numa is for pinned and pageable memory: the runtime places the others");
}

void check_sizes(const Transport& transport, const std::vector<Series>& plan) {
  const std::uint64_t bytes = buffer_bytes(plan);
  if (bytes > transport.most_bytes())
    throw InputError("this library's messages have at most " + std::to_string(transport.most_bytes()) +
                     " B and --sizes goes up to " + format_size(bytes) + ": choose smaller sizes");
}

void require(const World& world, const std::string& reason) {
  const std::string first = world.first_said(reason.empty() ? reason : host_name() + ": " + reason);
  if (!first.empty()) throw UnsupportedError(first);
}

int host_node(const Options& options, const World& world, int device_index) {
  const HostPlacement wanted = options.host_placement;
  const int node = device_index >= 0              ? device::info(device_index).numa_node
                   : wanted == HostPlacement::any ? kAnyNode
                                                  : numa_node_of_cpu(allowed_cpus().front());
  const std::vector<int> nearest_first = numa_nodes_with_memory(node);
  const bool several = nearest_first.size() > 1;
  if (wanted != HostPlacement::any) {
    require(world,
            wanted == HostPlacement::remote && !several ? "all memory is on one NUMA node, so none is remote" : "");
    require(world, node < 0 && several ? "the kernel does not report the NUMA node of the GPU" : "");
  }
  if (node < 0 && wanted == HostPlacement::any) return kAnyNode;
  if (nearest_first.empty()) return std::max(node, 0);
  return wanted == HostPlacement::remote ? nearest_first.back() : nearest_first.front();
}

device::HostMemory host_memory_on(int node, bool there_only, std::size_t bytes, device::HostKind kind) {
  if (there_only) return device::HostMemory(bytes, kind, node);
  const MemoryPolicy near(node, false);
  device::HostMemory memory(bytes, kind);
  const bool can_place = kind == device::HostKind::pinned || kind == device::HostKind::pageable;
  const int actual = bytes > 0 && can_place && node != kAnyNode ? numa_node_of_page(memory.data()) : node;
  if (actual != node && actual != kAnyNode) {
    // A driver with a will of its own may yet take pages that are there.
    try {
      return device::HostMemory(bytes, kind, node);
    } catch (const RunError&) {
      return memory;  // as the header will tell
    }
  }
  return memory;
}

int select_device(const Options& options, const World& world, const LocalRank& local) {
  if (!device::present()) return -1;
  int devices = 0;
  std::string mistake;
  try {
    devices = device::count();
  } catch (const RunError& error) {
    mistake = host_name() + ": " + error.what();
  }
  const int index = devices > 0 ? chosen_device(options, local, devices) : 0;
  if (devices == 0 && mistake.empty()) {
    mistake = "no GPU is visible on " + host_name() + ": " + device::what_to_check();
  } else if (devices > 0 && index >= devices) {
    mistake = "--devices names device " + std::to_string(index) + " for rank " + std::to_string(world.rank) + " and " +
              host_name() + " shows " + std::to_string(devices) + ": is a GPU missing?";
  }
  // All ranks end where one has no device: the others would wait for it.
  if (const std::string first = world.first_said(mistake); !first.empty()) throw InputError(first);
  device::select(index);
  if (!options.share_devices && options.ranks_per_device == 1) {
    const std::string twice = world.first_said(device_driven_twice(world, devices, device::info(index).uuid));
    if (!twice.empty()) throw InputError(twice);
  }
  return index;
}

void select_device_early(const Options& options, const LocalRank& local) {
  if (!device::present() || local.value < 0) return;
  try {
    const int devices = device::count();
    if (const int index = devices > 0 ? chosen_device(options, local, devices) : 0; index < devices)
      device::select(index);
  } catch (const RunError&) {
    // It is said once MPI can say it once for all ranks.
  }
}

}  // namespace fabricbench
