#include "fabricbench/header.hpp"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "fabricbench/burn_in.hpp"
#include "fabricbench/device/device.hpp"
#include "fabricbench/json.hpp"
#include "fabricbench/numa.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

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

std::string rank_json(const World& world, int local_rank, int device_index, const std::string& host_memory,
                      const std::string& nics) {
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
        .field("memory_bytes", info.memory_bytes);
    if (info.tile >= 0) json.field("tile", info.tile);
    json.end_object();
  }
  if (!host_memory.empty()) json.key("host_memory").literal(host_memory);
  if (!nics.empty()) json.key("nics").literal(nics);
  return json.end_object().text();
}

// Where the variables, or libraries, of other ranks differ from those of rank 0: a JSON array on rank 0. Each rank
// finds its own, lest rank 0 hold the environments of thousands. Collective.
std::string differences_json(const World& world, const std::string& mine) {
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
  const auto first = parse(world.from_first(mine));
  const auto own = parse(mine);
  std::vector<std::string> entries;
  const auto entry = [&](const std::string& name, const std::string* value) {
    if (is_per_rank(name)) return;
    Json json;
    json.begin_object().field("rank", world.rank).field("name", name).key("value");
    if (value == nullptr) {
      json.null();
    } else {
      json.value(*value);
    }
    entries.push_back(json.end_object().text());
  };
  for (const auto& [name, value] : first) {
    const auto setting = own.find(name);
    if (setting == own.end()) {
      entry(name, nullptr);
    } else if (setting->second != value) {
      entry(name, &setting->second);
    }
  }
  for (const auto& [name, value] : own) {
    if (first.find(name) == first.end()) entry(name, &value);
  }
  Json json;
  json.begin_array();
  for (const std::string& names : world.strings_at_first(join(entries, ","))) {
    if (!names.empty()) json.literal(names);
  }
  return json.end_array().text();
}

void rule_json(Json& json, const Series& series) {
  const PairRule& rule = *series.rule;
  json.key("rule")
      .begin_object()
      .field("ranks", rule.ranks)
      .field("group", rule.group)
      .field("directions", rule.directions);
  if (rule.turns > 0) json.field("turns", rule.turns);
  json.field("hash", hash_text(rule)).end_object().field("bytes", series.sizes);
}

void groups_json(Json& json, const Series& series, const std::vector<int>& ranks) {
  json.field("round", series.round).field("ranks", ranks);
  if (series.shape.groups > 0) json.field("groups", numbers(series.shape));
  json.field("bytes", series.sizes);
  if (!series.steps.empty()) {
    json.key("messages").begin_array();
    for (std::size_t step = 0; step < series.steps.size(); ++step) {
      for (const Transfer& transfer : series.steps[step]) {
        json.begin_array().value(transfer.source).value(transfer.destination).value(transfer.bytes);
        if (step > 0) json.value(step);
        json.end_array();
      }
    }
    json.end_array();
  }
  if (!series.aggressors.empty()) json.field("aggressors", series.aggressors);
}

void series_json(Json& json, const Series& series, Schedule schedule) {
  for (std::size_t i = 0; i < (series.rule ? 1 : series.groups.size()); ++i) {
    json.begin_object()
        .field("operation", to_string(series.operation))
        .field("implementation", to_string(series.implementation))
        .field("schedule", to_string(schedule));
    if (series.rule) {
      rule_json(json, series);
    } else {
      groups_json(json, series, series.groups[i]);
    }
    json.end_object();
  }
}

// Whether some transport moves data into or out of the memory of other ranks by itself.
bool has_access(const Options& options) {
  const auto moves = [](const std::string& name) { return name == "copy" || name == "kernel" || name == "fabric"; };
  return moves(options.transport) || std::any_of(options.step_transports.begin(), options.step_transports.end(), moves);
}

void plan_json(Json& json, const Options& options, const Transport& transport, const std::vector<Series>& plan) {
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
  if (!options.split.empty()) json.field("split", options.split);
  if (!options.matrix_files.empty()) json.field("matrix", options.matrix_files);
  if (options.ccl.any()) json.field("ccl_mode", join(names(options.ccl), ","));
  if (options.train > 0) json.field("train", options.train);
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
  json.end_object().field("datatype", to_string(options.data_type)).field("verify", to_string(options.verify));
  if (options.burn_in_s > 0) {
    const BurnInPlan burn_in = burn_in_plan(options);
    json.key("burn_in")
        .begin_object()
        .field("seconds", burn_in.seconds)
        .field("alone_seconds", burn_in.alone_seconds)
        .field("window_seconds", burn_in.window_seconds)
        .field("product", product::to_string(burn_in.product))
        .field("order", burn_in.order)
        .field("copy_bytes", burn_in.copy_bytes)
        .end_object();
  }
  if (options.in_place) json.field("in_place", "yes");
  if (has_access(options)) json.field("access", to_string(options.access));
  if (transport.handles() != device::Handles::ipc) json.field("handles", to_string(transport.handles()));
  if (options.transport == "fabric") json.field("nic", options.nic);
  if (!(options.ends == Ends{})) json.field("buffers", to_string(options.ends));
  if (const HostBufferBytes host = host_buffer_bytes(plan, options, false); host.send + host.receive > 0) {
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

struct Libraries {
  MpiLibrary mpi;
  std::map<std::string, std::string> movers;  // *CCL, libfabric
  device::Versions gpu;

  // Each with its version, as `NAME=VERSION`.
  std::string listed() const {
    std::string text = "mpi=" + mpi.name + ' ' + mpi.version + '\0';
    for (const auto& [name, version] : movers) text += "ccl=" + name + ' ' + version + '\0';
    if (device::present()) text += "gpu=" + gpu.name + ' ' + gpu.runtime + ", driver " + gpu.driver + '\0';
    return text;
  }
};

void libraries_json(Json& json, const Libraries& libraries) {
  const auto& [mpi, movers, gpu] = libraries;
  json.begin_object();
  json.key("mpi").begin_object().field("name", mpi.name).field("version", mpi.version).end_object();
  for (const auto& [name, version] : movers)
    json.key(name == "libfabric" ? "fabric" : "ccl")
        .begin_object()
        .field("name", name)
        .field("version", version)
        .end_object();
  if (device::present()) {
    json.key("gpu").begin_object().field("name", gpu.name).field("version", gpu.runtime).field("driver", gpu.driver);
    if (!gpu.hierarchy.empty()) json.field("device_hierarchy", gpu.hierarchy);
    json.end_object();
  }
  json.end_object();
}

}  // namespace

std::string host_memory_json(const device::HostMemory& memory, int wanted_node) {
  return Json()
      .begin_object()
      .field("allocation", memory.allocation())
      .field("numa_node", numa_node_of_page(memory.data()))
      .field("wanted_numa_node", wanted_node)
      .end_object()
      .text();
}

void Invocation::add_files_of_library(const std::vector<std::string>& own) {
  for (auto& [name, value] : recorded_environment()) {
    const bool of_library = name.compare(1, 4, "CCL_") == 0;
    if (!of_library || std::find(own.begin(), own.end(), name) != own.end()) continue;
    std::string& known = environment[name];
    if (known == value) continue;
    known = value;
    set_by_library.push_back(name);
  }
}

std::string mpi_library_text() {
  const MpiLibrary mpi = mpi_library();
  return mpi.version.empty() ? mpi.name : mpi.name + ' ' + mpi.version;
}

std::string header_json(const World& world, const Options& options, const Invocation& invocation,
                        const Transport& transport, const std::vector<Series>& plan, const std::string& run_id,
                        int device_index, const std::string& host_memory) {
  std::string mine;
  for (const auto& [name, value] : invocation.environment) mine += name + '=' + value + '\0';
  const std::string environment_differences = differences_json(world, mine);
  const Libraries libraries{mpi_library(), transport.library(),
                            device::present() ? device::versions() : device::Versions{}};
  const std::string library_differences = differences_json(world, libraries.listed());
  const std::vector<std::string> ranks = world.strings_at_first(
      rank_json(world, invocation.local.value, device_index, host_memory, transport.nics_json()));
  const int mine_of_cores[] = {world.shares_cores ? 1 : 0, world.lacks_cores ? 1 : 0};
  int of_cores[2] = {};
  mpi_check(MPI_Allreduce(mine_of_cores, of_cores, 2, MPI_INT, MPI_MAX, world.all), "MPI_Allreduce");
  if (world.rank != 0) return {};

  const ClockFacts clock = clock_facts();
  Json json;
  json.begin_object()
      .field("record", "header")
      .field("format", 2)
      .field("run_id", run_id)
      .field("program", "fabricbench")
      .field("version", FABRICBENCH_VERSION)
      .field("backend", device::backend())
      .field("platform", device::platform())
      .field("transport", options.transport)
      .field("started_utc", utc_now())
      .field("command", invocation.command);
  if (!options.case_name.empty()) json.field("case", options.case_name);
  json.key("ranks").begin_array();
  for (const std::string& rank : ranks) json.literal(rank);
  json.end_array().field("local_rank_source", invocation.local.variable).field("oversubscribed", of_cores[0] == 1);
  if (of_cores[1] == 1) json.field("few_cores", true);
  json.key("libraries");
  libraries_json(json, libraries);
  json.key("library_differences").literal(library_differences).key("environment").begin_object();
  for (const auto& [name, value] : invocation.environment) json.field(name, value);
  json.end_object();
  if (!invocation.set_by_library.empty()) json.field("set_by_library", invocation.set_by_library);
  json.key("environment_differences")
      .literal(environment_differences)
      .key("clock")
      .begin_object()
      .field("source", "CLOCK_MONOTONIC")
      .field("resolution_ns", clock.resolution_ns)
      .field("overhead_ns", clock.overhead_ns)
      .end_object();
  json.field("host_copy_gbps", host_copy_gbps());
  json.key("plan");
  plan_json(json, options, transport, plan);
  json.field("expected_records", record_count(plan)).end_object();
  return json.text();
}

}  // namespace fabricbench
