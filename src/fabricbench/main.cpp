// fabricbench: sets up the ranks and their devices, measures the plan, writes the results.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "fabricbench/device/device.hpp"
#include "fabricbench/environment.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/json.hpp"
#include "fabricbench/measure.hpp"
#include "fabricbench/node_shared.hpp"
#include "fabricbench/numa.hpp"
#include "fabricbench/options.hpp"
#include "fabricbench/plan.hpp"
#include "fabricbench/private_log.hpp"
#include "fabricbench/proof.hpp"
#include "fabricbench/results.hpp"
#include "fabricbench/text.hpp"
#include "fabricbench/transports/transport.hpp"
#include "fabricbench/watchdog.hpp"
#include "fabricbench/world.hpp"

namespace fabricbench {
namespace {

constexpr std::uint64_t kMostManaged = std::uint64_t{1} << 30;

// Times a part of the run into a total.
class Stopwatch {
 public:
  explicit Stopwatch(std::int64_t& total) : total_(total), start_(now_ns()) {}
  ~Stopwatch() { total_ += now_ns() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::int64_t& total_;
  std::int64_t start_;
};

struct MpiLibrary {
  std::string name;
  std::string version;
};

MpiLibrary mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<std::size_t>(length));
  const auto number_after = [&](const std::string& label) {
    std::size_t start = whole.find(label);
    if (start == std::string::npos) return std::string();
    start = whole.find_first_of("0123456789", start + label.size());
    return start == std::string::npos ? std::string()
                                      : whole.substr(start, whole.find_first_not_of("0123456789.abrc", start) - start);
  };
  // CRAY and MVAPICH come first: they are made from MPICH and say so.
  const MpiLibrary known[] = {{"Open MPI", "Open MPI v"},
                              {"Cray MPICH", "CRAY MPICH version"},
                              {"MVAPICH", "MVAPICH"},
                              {"Intel MPI", "Intel(R) MPI Library"},
                              {"MPICH", "MPICH Version:"}};
  for (const auto& [name, label] : known) {
    if (const std::string version = number_after(label); !version.empty()) return {name, version};
  }
  return {whole.substr(0, whole.find_first_of(",\n")), ""};
}

// What the host buffers of a rank really are.
std::string host_memory_json(const device::HostMemory& memory, int wanted_node) {
  return Json()
      .begin_object()
      .field("allocation", memory.allocation())
      .field("numa_node", numa_node_of_page(memory.data()))
      .field("wanted_numa_node", wanted_node)
      .end_object()
      .text();
}

std::string rank_json(const World& world, int local_rank, int device_index, const std::string& host_memory) {
  const std::vector<int> cpus = allowed_cpus();
  std::set<int> nodes;
  for (const int cpu : cpus) nodes.insert(numa_node_of_cpu(cpu));
  Json json;
  json.begin_object()
      .field("rank", world.rank)
      .field("host", host_name())
      .field("local_rank", local_rank)
      .field("pid", getpid())
      .field("cpus", format_ranges(cpus))
      .field("numa_node", nodes.size() == 1 ? *nodes.begin() : -1)
      .key("device");
  if (device_index < 0) {
    json.null();
  } else {
    const device::Info info = device::info(device_index);
    json.begin_object()
        .field("index", info.index)
        .field("name", info.name)
        .field("bus_id", info.bus_id)
        .field("uuid", info.uuid)
        .field("numa_node", info.numa_node)
        .field("memory_bytes", info.memory_bytes)
        .end_object();
  }
  if (!host_memory.empty()) json.key("host_memory").literal(host_memory);
  return json.end_object().text();
}

// Where the environment of other ranks differs from that of rank 0.
void differences_json(Json& json, const std::vector<std::string>& environments) {
  const auto parse = [](const std::string& text) {
    std::map<std::string, std::string> result;
    for (const std::string& entry : split(text, '\0')) {
      if (const std::size_t equals = entry.find('='); equals != std::string::npos)
        result[entry.substr(0, equals)] = entry.substr(equals + 1);
    }
    return result;
  };
  // What a launcher gives each rank on purpose.
  const auto is_per_rank = [](const std::string& name) {
    return name.rfind("OMPI_MCA_ess", 0) == 0 || name.rfind("OMPI_MCA_orte", 0) == 0;
  };
  const auto first = parse(environments[0]);
  json.begin_array();
  for (std::size_t rank = 1; rank < environments.size(); ++rank) {
    const auto other = parse(environments[rank]);
    const auto entry = [&](const std::string& name, const std::string* value) {
      if (is_per_rank(name)) return;
      json.begin_object().field("rank", rank).field("name", name).key("value");
      if (value == nullptr) {
        json.null();
      } else {
        json.value(*value);
      }
      json.end_object();
    };
    for (const auto& [name, value] : first) {
      const auto found = other.find(name);
      if (found == other.end()) {
        entry(name, nullptr);
      } else if (found->second != value) {
        entry(name, &found->second);
      }
    }
    for (const auto& [name, value] : other) {
      if (first.find(name) == first.end()) entry(name, &value);
    }
  }
  json.end_array();
}

void series_json(Json& json, const Series& series, Schedule schedule) {
  for (const std::vector<int>& ranks : series.groups) {
    json.begin_object()
        .field("operation", to_string(series.operation))
        .field("implementation", to_string(series.implementation))
        .field("schedule", to_string(schedule))
        .field("round", series.round)
        .field("ranks", ranks);
    if (series.shape.groups > 0) json.field("groups", numbers(series.shape));
    json.field("bytes", series.sizes);
    if (!series.steps.empty()) {
      json.key("messages").begin_array();
      for (const Transfer& each : series.steps[0])
        json.begin_array().value(each.source).value(each.destination).value(each.bytes).end_array();
      json.end_array();
    }
    if (series.aggressor) json.field("aggressors", series.aggressor->ranks);
    json.end_object();
  }
}

// Whether some transport moves data into or out of the memory of other ranks by itself.
bool has_access(const Options& options) {
  const auto moves = [](const std::string& name) { return name == "copy" || name == "kernel"; };
  return moves(options.transport) || std::any_of(options.step_transports.begin(), options.step_transports.end(), moves);
}

void plan_json(Json& json, const Options& options, const std::vector<Series>& plan) {
  std::vector<std::string> operations;
  for (const Operation operation : options.operations) operations.push_back(to_string(operation));
  std::set<std::string> schedules;
  for (const Series& series : plan) {
    for (const Schedule schedule : series.schedules()) schedules.insert(to_string(schedule));
  }
  json.begin_object()
      .field("operations", operations)
      .field("implementation", to_string(options.implementation))
      .field("schedules", std::vector<std::string>(schedules.rbegin(), schedules.rend()))
      .field("sizes", options.sizes)
      .field("warmup", options.warmup);
  if (!options.rounds_file.empty()) json.field("rounds", options.rounds_file);
  if (!options.step_transports.empty()) json.field("step_transports", options.step_transports);
  if (!options.matrix_file.empty()) json.field("matrix", options.matrix_file);
  json.key("iterations").begin_object();
  if (options.fixed_iterations) {
    json.field("mode", "fixed")
        .field("minimum", *options.fixed_iterations)
        .field("maximum", *options.fixed_iterations)
        .key("budget_s")
        .null();
  } else {
    json.field("mode", "adaptive")
        .field("minimum", options.minimum_iterations)
        .field("maximum", options.maximum_iterations)
        .field("budget_s", options.budget_s);
  }
  json.end_object().field("datatype", "float32").field("verify", to_string(options.verify));
  if (has_access(options)) json.field("access", to_string(options.access));
  if (!(options.ends == Ends{})) json.field("buffers", to_string(options.ends));
  if (const HostBufferBytes host = host_buffer_bytes(plan); host.send + host.receive > 0) {
    json.field("host_memory", to_string(*options.host_memory)).field("host_numa", to_string(options.host_placement));
  }
  json.field("shared_devices", options.share_devices || options.ranks_per_device > 1);
  json.key("injected");
  if (options.injected.empty()) {
    json.null();
  } else {
    json.value(options.injected);
  }
  json.key("series").begin_array();
  for (const Series& series : plan) {
    for (const Schedule schedule : series.schedules()) {
      series_json(json, series, schedule);
    }
  }
  json.end_array().end_object();
}

class Program {
 public:
  Program(Options options, std::vector<std::string> command, std::map<std::string, std::string> environment,
          LocalRank local)
      : options_(std::move(options)),
        command_(std::move(command)),
        environment_(std::move(environment)),
        local_(std::move(local)) {
    if (!options_.host_memory)
      options_.host_memory = device::present() ? device::HostKind::pinned : device::HostKind::pageable;
  }

  int run(Proof& proof, std::int64_t begin) {
    World world;
    check_world(world);
    read_inputs(world);
    const std::unique_ptr<Transport> transport = options_.step_transports.empty()
                                                     ? make_transport(options_.transport)
                                                     : make_stepwise(options_.transport, options_.step_transports);
    const std::vector<Series> plan = make_plan(options_, world.size, [&](Operation operation, Implementation wanted) {
      return choose(*transport, operation, wanted);
    });
    check_paths(*transport, plan);
    if (world.rank == 0) results_ = open_results();
    agree(world, world.rank != 0 || results_ != nullptr);

    NodeShared shared(world);
    Watchdog watchdog(world, shared, results_.get(), options_.timeout_s);
    alarm(0);  // the watchdog looks on from here
    install_signal_handlers(world, shared, results_.get());
    try {
      measure_all(world, shared, *transport, plan, proof, begin);
    } catch (const LackError& error) {
      if (results_) results_->write_error("lack", error.what());
      throw;
    } catch (const RunError& error) {
      fail(world, shared, error);
    }
    return totals_.wrong_bytes > 0 ? kExitWrongData : 0;
  }

 private:
  static Implementation choose(const Transport& transport, Operation operation, Implementation wanted) {
    if (!transport.has_library(operation) && !transport.has_transfers(operation)) {
      throw InputError("this transport has no " + to_string(operation) +
                       ": leave it out, or use --transport mpi or staging");
    }
    if (wanted == Implementation::automatic || !is_collective(operation)) wanted = transport.preferred(operation);
    if (wanted == Implementation::library && !transport.has_library(operation)) {
      throw InputError("this transport has no collective of its own for " + to_string(operation) +
                       ": use --implementation transfers");
    }
    if (wanted == Implementation::transfers && !transport.has_transfers(operation)) {
      throw InputError("this transport cannot run " + to_string(operation) +
                       ", which adds numbers, as a list of transfers: use --implementation library");
    }
    return wanted;
  }

  // Whether the transport moves data between the memories that are asked for.
  void check_paths(const Transport& transport, const std::vector<Series>& plan) const {
    for (const Series& series : plan) {
      if (is_collective(series.operation)) continue;
      const Transfer first = series.at(series.sizes.front()).groups[0].steps[0][0];
      if (!transport.reaches(first)) {
        throw InputError("the transport " + options_.transport + " does not run " + to_string(series.operation) +
                         " between these memories: --transport copy or kernel moves data between a GPU and its host, "
                         "mpi between the buffers of two ranks wherever they lie");
      }
    }
    const HostBufferBytes host = host_buffer_bytes(plan);
    if (host.send + host.receive > 0 && options_.host_memory == device::HostKind::migrated) {
      const bool only_there = std::all_of(plan.begin(), plan.end(), [](const Series& series) {
        return series.operation == Operation::host_to_device || series.operation == Operation::device_to_host;
      });
      if (options_.transport != "kernel" || !only_there) {
        throw InputError(
            "pages migrate to the kernel or processor that uses them: --host-memory migrated is for host_to_device and "
            "device_to_host with --transport kernel");
      }
    }
    const bool managed =
        options_.host_memory == device::HostKind::managed || options_.host_memory == device::HostKind::migrated;
    if (managed && host.send + host.receive > kMostManaged) {
      throw InputError("managed memory is measured up to " + format_size(kMostManaged) +
                       " in all, as more than a device has free can hang it: choose smaller --sizes");
    }
    const bool placed = options_.host_placement != HostPlacement::any;
    if (placed && options_.host_memory != device::HostKind::pinned &&
        options_.host_memory != device::HostKind::pageable)
      throw InputError("--host-numa is for pinned and pageable memory: the runtime places the others");
  }

  // Ends the run where some rank lacks something, with what the first of them lacks.
  static void require(const World& world, const std::string& lack) {
    for (const std::string& each : world.gather_strings(lack.empty() ? lack : host_name() + ": " + lack)) {
      if (!each.empty()) throw LackError(each);
    }
  }

  // The NUMA node of this rank's host memory.
  int host_node(const World& world, int device_index) const {
    if (options_.host_placement == HostPlacement::any) return kAnyNode;
    int node = device_index >= 0 ? device::info(device_index).numa_node : numa_node_of_cpu(allowed_cpus().front());
    const bool remote = options_.host_placement == HostPlacement::remote;
    require(world, remote && !has_numa() ? "all memory is on one NUMA node, so none is remote" : "");
    require(world, node < 0 && has_numa() ? "the kernel does not say on which NUMA node the GPU is" : "");
    return remote ? farthest_numa_node(node) : std::max(node, 0);
  }

  void check_world(const World& world) {
    if (const int launched = launched_ranks(); launched > 0 && launched != world.size) {
      throw InputError(
          "the launcher started " + std::to_string(launched) + " ranks and MPI sees " + std::to_string(world.size) +
          ": use the launcher (under srun, the --mpi plugin) that belongs to the MPI library of this program");
    }
    if (options_.expected_ranks && *options_.expected_ranks != world.size) {
      throw InputError("this run has " + std::to_string(world.size) + " ranks and --expect-ranks asks for " +
                       std::to_string(*options_.expected_ranks));
    }
    if (options_.expected_nodes && *options_.expected_nodes != world.node_count) {
      throw InputError("this run is on " + std::to_string(world.node_count) + " nodes and --expect-nodes asks for " +
                       std::to_string(*options_.expected_nodes));
    }
    // The launcher's number is right only if it numbers the ranks of the node.
    std::vector<int> numbers(static_cast<std::size_t>(world.node_size));
    mpi_check(MPI_Allgather(&local_.value, 1, MPI_INT, numbers.data(), 1, MPI_INT, world.node), "MPI_Allgather");
    std::sort(numbers.begin(), numbers.end());
    for (int i = 0; i < world.node_size; ++i) {
      if (numbers[static_cast<std::size_t>(i)] != i) local_ = {world.node_rank, "order on the node"};
    }
  }

  void read_inputs(const World& world) {
    if (options_.group_size == 0 && world.node_count > 1) options_.group_size = ranks_of_a_node(world);
    if (!options_.rounds_file.empty()) {
      options_.rounds = parse_rounds(input(world, options_.rounds_file, "--rounds"), options_.rounds_file, world.size);
    }
    if (!options_.matrix_file.empty())
      options_.matrix = parse_matrix(input(world, options_.matrix_file, "--matrix"), options_.matrix_file);
  }

  // The number that all nodes have, where the ranks of each are next to one another; else kNoCommonSize.
  static int ranks_of_a_node(const World& world) {
    const int first = world.node_ranks.front();
    const bool fits = world.node_size * world.node_count == world.size && first % world.node_size == 0 &&
                      world.node_ranks.back() == first + world.node_size - 1;
    int mine = fits ? 1 : 0;
    int all = 0;
    mpi_check(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, world.all), "MPI_Allreduce");
    return all == 1 ? world.node_size : kNoCommonSize;
  }

  // Rank 0 reads for all: a file need not be on every node, and all ranks have to see the same.
  static std::string input(const World& world, const std::string& path, const char* option) {
    std::string text;
    bool found = true;
    try {
      if (world.rank == 0) text = read_input(path, option);
    } catch (const InputError& error) {
      std::fprintf(stderr, "fabricbench: %s\n", error.what());
      found = false;
    }
    agree(world, found);
    return world.from_first(text);
  }

  // Null where the file cannot be opened, which is said then.
  std::unique_ptr<ResultFile> open_results() {
    try {
      return std::make_unique<ResultFile>(options_.output, random_id());
    } catch (const InputError& error) {
      std::fprintf(stderr, "fabricbench: %s\n", error.what());
      return nullptr;
    }
  }

  // Ends all ranks where one of them, which has said why, cannot go on.
  static void agree(const World& world, bool fine) {
    int mine = fine ? 1 : 0;
    int all = 0;
    mpi_check(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, world.all), "MPI_Allreduce");
    if (all == 0) throw InputError("");
  }

  int select_device(const World& world) {
    if (!device::present()) return -1;
    const int devices = device::count();
    if (devices == 0)
      throw InputError("no GPU is visible on " + host_name() +
                       ": check the driver and CUDA_VISIBLE_DEVICES, or use the host port");
    const int index = local_.value / static_cast<int>(options_.ranks_per_device) % devices;
    device::select(index);
    const std::vector<std::string> hosts = world.gather_strings(host_name());
    const std::vector<std::string> uuids = world.gather_strings(device::info(index).uuid);
    for (std::size_t a = 0; a < uuids.size() && !options_.share_devices && options_.ranks_per_device == 1; ++a) {
      for (std::size_t b = a + 1; b < uuids.size(); ++b) {
        if (hosts[a] != hosts[b] || uuids[a] != uuids[b]) continue;
        throw InputError("ranks " + std::to_string(a) + " and " + std::to_string(b) + " would both drive " + uuids[a] +
                         ": on " + hosts[a] + " are " +
                         std::to_string(std::count(hosts.begin(), hosts.end(), hosts[a])) + " ranks, and rank " +
                         std::to_string(world.rank) + " sees " + std::to_string(devices) +
                         (devices == 1 ? " GPU" : " GPUs") +
                         ": is a GPU missing? Else start at most one rank a GPU, leave all GPUs of a node visible to "
                         "its ranks, or pass --share-devices");
      }
    }
    return index;
  }

  void measure_all(const World& world, NodeShared& shared, Transport& transport, const std::vector<Series>& plan,
                   Proof& proof, std::int64_t begin) {
    totals_.setup_ns = now_ns() - begin;  // MPI's own start
    std::optional<Stopwatch> setup(std::in_place, totals_.setup_ns);
    const int device_index = select_device(world);
    shared.advance();
    const std::uint64_t bytes = buffer_bytes(plan);
    device::Stream stream;
    device::Memory send(bytes);
    device::Memory receive(bytes);
    stream.set_byte(send.data(), bytes, 0);
    stream.set_byte(receive.data(), bytes, 0);
    stream.synchronize();
    shared.advance();
    // Managed memory is the last to come: it takes what is left.
    const HostBufferBytes host = host_buffer_bytes(plan);
    const device::HostKind kind = *options_.host_memory;
    const bool uses_host = host.send + host.receive > 0;
    const int node = uses_host ? host_node(world, device_index) : kAnyNode;
    require(world, uses_host ? device::lack_of(kind, options_.transport == "kernel") : "");
    device::HostMemory host_send(host.send, kind, node);
    device::HostMemory host_receive(host.receive, kind, node);
    shared.advance();
    const Context context{world, shared, stream, send, receive, bytes, host_send, host_receive, kind, options_.access};
    transport.set_up(context);
    shared.advance();
    const std::string host_memory = uses_host ? host_memory_json(host.send > 0 ? host_send : host_receive, node) : "";
    write_header(world, transport, plan, device_index, host_memory);
    proof.begin_counting(world);
    setup.reset();

    const std::size_t planned = record_count(plan);
    if (world.rank == 0 && !options_.quiet) print_table_head();
    for (const Series& series : plan) {
      for (const std::uint64_t size : series.sizes) {
        const Measurement measurement = series.at(size, world.rank);
        if (results_) {
          results_->now_measuring(measurement);
          progress(planned, measurement);
        }
        const std::vector<Record> records = measure(measurement, options_, context, transport, totals_);
        record(records);
        totals_.records += measurement.groups.size() * series.schedules().size();
        shared.advance();
      }
    }
    if (results_) results_->now_measuring_nothing();
    const std::string proven = proof.collect(world);
    if (results_) {
      clear_progress();
      totals_.wall_ns = now_ns() - begin;
      if (options_.injected != "no-footer") results_->write_footer(totals_, proven);
      if (!options_.quiet) {
        std::printf(
            "%zu records, %llu samples, %lld wrong bytes, %.1f s, of which %.1f s inside the clock; paths: %s\n",
            totals_.records, static_cast<unsigned long long>(totals_.samples),
            static_cast<long long>(totals_.wrong_bytes), static_cast<double>(totals_.wall_ns) / 1e9,
            static_cast<double>(totals_.timed_ns) / 1e9, proven.c_str());
      }
    }
    // Every rank ends with the same exit status.
    mpi_check(MPI_Bcast(&totals_.wrong_bytes, 1, MPI_INT64_T, 0, world.all), "MPI_Bcast");
    shared.advance();
  }

  void record(const std::vector<Record>& records) {
    const Stopwatch watch(totals_.recording_ns);
    std::size_t index = totals_.records;
    for (const Record& each : records) {
      totals_.samples += each.times_ns.size();
      totals_.wrong_bytes += std::max<std::int64_t>(each.wrong_bytes, 0);
      results_->write(each, index++);
      if (!options_.quiet) {
        clear_progress();
        print_table_row(each);
      }
    }
  }

  void write_header(const World& world, const Transport& transport, const std::vector<Series>& plan, int device_index,
                    const std::string& host_memory) {
    std::string mine;
    for (const auto& [name, value] : environment_) mine += name + '=' + value + '\0';
    const std::vector<std::string> environments = world.gather_strings(mine);
    const std::vector<std::string> ranks =
        world.gather_strings(rank_json(world, local_.value, device_index, host_memory));
    const int crowded = world.shares_cores ? 1 : 0;
    int oversubscribed = 0;
    mpi_check(MPI_Allreduce(&crowded, &oversubscribed, 1, MPI_INT, MPI_MAX, world.all), "MPI_Allreduce");
    if (world.rank != 0) return;

    const ClockFacts clock = clock_facts();
    const MpiLibrary mpi = mpi_library();
    Json json;
    json.begin_object()
        .field("record", "header")
        .field("format", 1)
        .field("run_id", results_->run_id())
        .field("program", "fabricbench")
        .field("version", FABRICBENCH_VERSION)
        .field("port", device::port())
        .field("platform", device::platform())
        .field("transport", options_.transport)
        .field("started_utc", utc_now())
        .field("command", command_)
        .key("ranks")
        .begin_array();
    for (const std::string& rank : ranks) json.literal(rank);
    json.end_array().field("local_rank_source", local_.variable).field("oversubscribed", oversubscribed == 1);
    json.key("libraries").begin_object();
    json.key("mpi").begin_object().field("name", mpi.name).field("version", mpi.version).end_object();
    for (const auto& [name, version] : transport.library())
      json.key("ccl").begin_object().field("name", name).field("version", version).end_object();
    if (device::present()) {
      const device::Versions versions = device::versions();
      json.key("gpu")
          .begin_object()
          .field("name", versions.name)
          .field("version", versions.runtime)
          .field("driver", versions.driver)
          .end_object();
    }
    json.end_object().key("environment").begin_object();
    for (const auto& [name, value] : environment_) json.field(name, value);
    json.end_object().key("environment_differences");
    differences_json(json, environments);
    json.key("clock")
        .begin_object()
        .field("source", "CLOCK_MONOTONIC")
        .field("resolution_ns", clock.resolution_ns)
        .field("overhead_ns", clock.overhead_ns)
        .end_object();
    json.field("host_copy_gbps", host_copy_gbps());
    json.key("plan");
    plan_json(json, options_, plan);
    json.field("expected_records", record_count(plan)).end_object();
    results_->write_line(json.text());
  }

  void progress(std::size_t planned, const Measurement& measurement) const {
    if (options_.quiet || !isatty(STDERR_FILENO)) return;
    std::fprintf(stderr, "\r\033[K[%zu/%zu] %s %s", totals_.records, planned, to_string(measurement.operation).c_str(),
                 format_size(measurement.bytes).c_str());
  }
  void clear_progress() const {
    if (!options_.quiet && isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\033[K");
  }

  // What failed on one rank ends them all; rank 0 writes it down, for itself or for the rank that left the message.
  [[noreturn]] void fail(const World& world, NodeShared& shared, const RunError& error) {
    const std::string message = "rank " + std::to_string(world.rank) + " on " + host_name() + ": " + error.what();
    std::fprintf(stderr, "fabricbench: %s\n", message.c_str());
    if (results_) {
      results_->write_error(error.kind, message);
    } else {
      shared.leave_message(message.c_str());
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    remove_private_log();
    MPI_Abort(MPI_COMM_WORLD, kExitFailed);
    _exit(kExitFailed);
  }

  Options options_;
  std::vector<std::string> command_;
  std::map<std::string, std::string> environment_;
  LocalRank local_;
  std::unique_ptr<ResultFile> results_;
  Totals totals_;
};

// A GPU-aware MPI library looks at the current device while it starts.
void select_device_early(const LocalRank& local, std::int64_t ranks_per_device) {
  if (!device::present() || local.value < 0) return;
  try {
    if (const int devices = device::count(); devices > 0)
      device::select(local.value / static_cast<int>(ranks_per_device) % devices);
  } catch (const RunError&) {
    // It is said once MPI can say it once for all ranks.
  }
}

// While there is no watchdog: before MPI has started, and when it ends.
const char* volatile hanging = nullptr;

void say_that_mpi_hangs(int) {
  const char* message = hanging;
  remove_private_log();
  if (write(STDERR_FILENO, message, std::strlen(message)) < 0) _exit(kExitFailed);
  _exit(kExitFailed);
}

void begin_to_wait(const char* message, double timeout_s) {
  hanging = message;
  std::signal(SIGALRM, say_that_mpi_hangs);
  alarm(static_cast<unsigned>(std::ceil(timeout_s)));
}

// Some libraries do not come back from it.
void finalize(double timeout_s) {
  begin_to_wait("fabricbench: MPI_Finalize did not return: everything was measured, and the job hangs\n", timeout_s);
  MPI_Finalize();
  alarm(0);
}

// How many times as long as an iteration MPI may take to start: large jobs need minutes.
constexpr double kStartFactor = 5;

int report_and_end(const char* message, int status) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0 && *message != '\0') std::fprintf(stderr, "fabricbench: %s\n", message);
  MPI_Finalize();
  return status;
}

int run(int argc, char** argv) {
  const std::int64_t begin = now_ns();
  Options options;
  std::string mistake;
  try {
    options = parse_options(argc, argv);
  } catch (const InputError& error) {
    mistake = error.what();
  }
  if (options.show_help) return std::printf("%s", help_text().c_str()) < 0;
  if (options.show_version) return std::printf("fabricbench %s (%s port)\n", FABRICBENCH_VERSION, device::port()) < 0;

  Proof proof(options.transport, argv);
  auto environment = recorded_environment();
  for (const std::string& name : proof.own_variables()) environment.erase(name);
  const LocalRank local = local_rank_from_environment();
  select_device_early(local, options.ranks_per_device);
  int provided = 0;
  begin_to_wait("fabricbench: MPI did not start: is a node down, or a link between nodes?\n",
                kStartFactor * options.timeout_s);
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
    std::fprintf(stderr, "fabricbench: MPI_Init_thread failed\n");
    return kExitFailed;
  }
  if (!mistake.empty()) return report_and_end(mistake.c_str(), kExitInput);
  const double timeout_s = options.timeout_s;
  int status = 0;
  try {
    status =
        Program(std::move(options), std::vector<std::string>(argv, argv + argc), environment, local).run(proof, begin);
  } catch (const InputError& error) {
    return report_and_end(error.what(), kExitInput);
  } catch (const LackError& error) {
    return report_and_end(error.what(), kExitLack);
  } catch (const RunError& error) {
    std::fprintf(stderr, "fabricbench: %s\n", error.what());
    remove_private_log();
    MPI_Abort(MPI_COMM_WORLD, kExitFailed);
  }
  finalize(timeout_s);
  return status;
}

}  // namespace
}  // namespace fabricbench

int main(int argc, char** argv) { return fabricbench::run(argc, argv); }
