#include "fabricbench/options.hpp"

#include <getopt.h>

#include <algorithm>
#include <limits>

#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

const char* const kTransports[] = {"staging", "copy", "kernel", "ccl", "mpi"};
const char* const kDefects[] = {"wrong-byte", "hang", "kill", "crash", "no-footer"};

template <std::size_t N>
std::string one_of(const std::string& value, const char* const (&choices)[N], const char* what) {
  for (const char* choice : choices) {
    if (value == choice) return value;
  }
  throw InputError("there is no " + std::string(what) + " '" + value + "': choose from " +
                   join(std::vector<std::string>(std::begin(choices), std::end(choices)), ", "));
}

Implementation parse_implementation(const std::string& text) {
  const char* const names[] = {"automatic", "transfers", "library"};
  const std::string name = one_of(text, names, "implementation");
  return name == "automatic"   ? Implementation::automatic
         : name == "transfers" ? Implementation::transfers
                               : Implementation::library;
}

Schedule parse_schedule(const std::string& text) {
  const char* const names[] = {"uncontended", "contended"};
  return one_of(text, names, "schedule") == "contended" ? Schedule::contended : Schedule::uncontended;
}

Verify parse_verify(const std::string& text) {
  const char* const names[] = {"batch", "every", "off"};
  const std::string name = one_of(text, names, "way to verify");
  return name == "batch" ? Verify::batch : name == "every" ? Verify::every : Verify::off;
}

Access parse_access(const std::string& text) {
  const char* const names[] = {"write", "read"};
  return one_of(text, names, "way to reach a peer") == "write" ? Access::write : Access::read;
}

device::HostKind parse_host_kind(const std::string& text) {
  using device::HostKind;
  const char* const names[] = {"pageable", "pinned", "noncoherent", "managed", "migrated"};
  const std::string name = one_of(text, names, "kind of host memory");
  for (const HostKind kind : {HostKind::pageable, HostKind::pinned, HostKind::noncoherent, HostKind::managed}) {
    if (to_string(kind) == name) return kind;
  }
  return HostKind::migrated;
}

HostPlacement parse_placement(const std::string& text) {
  const char* const names[] = {"any", "local", "remote"};
  const std::string name = one_of(text, names, "NUMA placement");
  return name == "any" ? HostPlacement::any : name == "local" ? HostPlacement::local : HostPlacement::remote;
}

Ends parse_ends(const std::string& text) {
  const char* const names[] = {"device-device", "host-device", "device-host", "host-host"};
  const auto ends = split(one_of(text, names, "pair of buffers"), '-');
  const auto place = [](const std::string& name) { return name == "host" ? Place::host : Place::device; };
  return {place(ends[0]), place(ends[1])};
}

// "0,2,4", or with another separator: at least two, none twice.
std::vector<int> parse_ranks(const std::string& text, char separator) {
  std::vector<int> ranks;
  for (const std::string& each : split(text, separator)) {
    ranks.push_back(parse_rank(each));
    if (std::count(ranks.begin(), ranks.end(), ranks.back()) > 1)
      throw InputError("the list '" + text + "' has rank " + each + " twice");
  }
  if (ranks.size() < 2)
    throw InputError("'" + text + "' is not a list of at least two ranks: write 0" + separator + "2");
  return ranks;
}

// "3" or "1-4", ends included.
std::pair<int, int> parse_span(const std::string& text, int minimum, const char* what) {
  const auto ends = split(text, '-');
  if (ends.size() > 2) throw InputError("'" + text + "' is not " + what + ", nor a span such as 1-4");
  const int first = parse_count(ends[0], minimum, what);
  const int last = parse_count(ends.back(), minimum, what);
  if (first > last) throw InputError("the span '" + text + "' is empty: its end comes before its beginning");
  return {first, last};
}

std::string parse_file_name(const std::string& text, const char* option) {
  if (text.empty()) throw InputError(std::string(option) + " needs the name of a file");
  return text;
}

enum Option : int {
  kTransport = 256,
  kStepTransports,
  kOperations,
  kImplementation,
  kSchedules,
  kPairs,
  kRounds,
  kGroups,
  kGroupSize,
  kMatrix,
  kVictims,
  kAggressorSize,
  kTogether,
  kBuffers,
  kAccess,
  kHostMemory,
  kHostNuma,
  kSizes,
  kIterations,
  kMinimum,
  kMaximum,
  kBudget,
  kWarmup,
  kVerify,
  kTimeout,
  kShareDevices,
  kRanksPerDevice,
  kOutput,
  kExpectRanks,
  kExpectNodes,
  kQuiet,
  kInject,
  kHelp,
  kVersion
};

const option kLongOptions[] = {{"transport", required_argument, nullptr, kTransport},
                               {"step-transports", required_argument, nullptr, kStepTransports},
                               {"operations", required_argument, nullptr, kOperations},
                               {"implementation", required_argument, nullptr, kImplementation},
                               {"schedules", required_argument, nullptr, kSchedules},
                               {"pairs", required_argument, nullptr, kPairs},
                               {"rounds", required_argument, nullptr, kRounds},
                               {"groups", required_argument, nullptr, kGroups},
                               {"group-size", required_argument, nullptr, kGroupSize},
                               {"matrix", required_argument, nullptr, kMatrix},
                               {"victims", required_argument, nullptr, kVictims},
                               {"aggressor-size", required_argument, nullptr, kAggressorSize},
                               {"together", required_argument, nullptr, kTogether},
                               {"buffers", required_argument, nullptr, kBuffers},
                               {"access", required_argument, nullptr, kAccess},
                               {"host-memory", required_argument, nullptr, kHostMemory},
                               {"host-numa", required_argument, nullptr, kHostNuma},
                               {"sizes", required_argument, nullptr, kSizes},
                               {"iterations", required_argument, nullptr, kIterations},
                               {"min-iterations", required_argument, nullptr, kMinimum},
                               {"max-iterations", required_argument, nullptr, kMaximum},
                               {"budget", required_argument, nullptr, kBudget},
                               {"warmup", required_argument, nullptr, kWarmup},
                               {"verify", required_argument, nullptr, kVerify},
                               {"timeout", required_argument, nullptr, kTimeout},
                               {"share-devices", no_argument, nullptr, kShareDevices},
                               {"ranks-per-device", required_argument, nullptr, kRanksPerDevice},
                               {"output", required_argument, nullptr, kOutput},
                               {"expect-ranks", required_argument, nullptr, kExpectRanks},
                               {"expect-nodes", required_argument, nullptr, kExpectNodes},
                               {"quiet", no_argument, nullptr, kQuiet},
                               {"inject", required_argument, nullptr, kInject},
                               {"help", no_argument, nullptr, kHelp},
                               {"version", no_argument, nullptr, kVersion},
                               {nullptr, 0, nullptr, 0}};

void set(Options& options, int option, const std::string& text) {
  switch (option) {
    case kTransport:
      options.transport = one_of(text, kTransports, "transport");
      break;
    case kStepTransports:
      options.step_transports.clear();
      for (const std::string& name : split(text, ','))
        options.step_transports.push_back(one_of(name, kTransports, "transport"));
      if (options.step_transports.size() != 3)
        throw InputError("'" + text + "' is not a transport for each of split, translate and assemble: write a,b,c");
      break;
    case kOperations:
      options.operations.clear();
      for (const std::string& name : split(text, ',')) options.operations.push_back(parse_operation(name));
      break;
    case kImplementation:
      options.implementation = parse_implementation(text);
      break;
    case kSchedules:
      options.schedules.clear();
      for (const std::string& name : split(text, ',')) options.schedules.push_back(parse_schedule(name));
      break;
    case kPairs:
      options.pairs.clear();
      if (text != "all") {
        for (const std::string& pair : split(text, ',')) options.pairs.push_back(parse_pair(pair));
      }
      break;
    case kRounds:
      options.rounds_file = parse_file_name(text, "--rounds");
      break;
    case kGroups:
      options.shapes = parse_shapes(text);
      break;
    case kGroupSize:
      options.group_size = parse_count(text, 1, "a number of ranks");
      break;
    case kMatrix:
      options.matrix_file = parse_file_name(text, "--matrix");
      break;
    case kVictims:
      options.victims = parse_ranks(text, ',');
      break;
    case kAggressorSize:
      options.aggressor_size = parse_size(text);
      break;
    case kTogether:
      options.together.clear();
      for (const std::string& set : split(text, ',')) options.together.push_back(parse_ranks(set, '+'));
      break;
    case kBuffers:
      options.ends = parse_ends(text);
      break;
    case kAccess:
      options.access = parse_access(text);
      break;
    case kHostMemory:
      options.host_memory = parse_host_kind(text);
      break;
    case kHostNuma:
      options.host_placement = parse_placement(text);
      break;
    case kSizes:
      options.sizes = parse_sizes(text);
      options.sizes_given = true;
      break;
    case kIterations:
      options.fixed_iterations = parse_integer(text, 1, "a number of iterations");
      break;
    case kMinimum:
      options.minimum_iterations = parse_integer(text, 8, "a least number of iterations");
      break;
    case kMaximum:
      options.maximum_iterations = parse_integer(text, 8, "a greatest number of iterations");
      break;
    case kBudget:
      options.budget_s = parse_positive(text, "a time in seconds");
      break;
    case kWarmup:
      options.warmup = parse_integer(text, 1, "a number of warm-up iterations");
      break;
    case kVerify:
      options.verify = parse_verify(text);
      break;
    case kTimeout:
      options.timeout_s = parse_positive(text, "a time in seconds");
      break;
    case kShareDevices:
      options.share_devices = true;
      break;
    case kRanksPerDevice:
      options.ranks_per_device = parse_integer(text, 1, "a number of ranks");
      break;
    case kOutput:
      options.output = text;
      break;
    case kExpectRanks:
      options.expected_ranks = parse_integer(text, 1, "a number of ranks");
      break;
    case kExpectNodes:
      options.expected_nodes = parse_integer(text, 1, "a number of nodes");
      break;
    case kQuiet:
      options.quiet = true;
      break;
    case kInject: {
      const auto parts = split(text, ':');
      options.injected = one_of(parts[0], kDefects, "planted defect");
      if (parts.size() > 1) options.injected_rank = static_cast<int>(parse_integer(parts[1], 0, "a rank"));
      break;
    }
    case kHelp:
      options.show_help = true;
      break;
    case kVersion:
      options.show_version = true;
      break;
    default:
      break;
  }
}

}  // namespace

std::string to_string(Implementation implementation) {
  switch (implementation) {
    case Implementation::automatic:
      return "automatic";
    case Implementation::transfers:
      return "transfers";
    case Implementation::library:
      return "library";
  }
  return {};
}

std::string to_string(Schedule schedule) { return schedule == Schedule::contended ? "contended" : "uncontended"; }

std::string to_string(Verify verify) {
  return verify == Verify::batch ? "batch" : verify == Verify::every ? "every" : "off";
}

int parse_count(const std::string& text, int minimum, const char* what) {
  const std::int64_t number = parse_integer(text, minimum, what);
  if (number > std::numeric_limits<int>::max()) throw InputError("'" + text + "' is not " + what + ": it is too large");
  return static_cast<int>(number);
}

int parse_rank(const std::string& text) { return parse_count(text, 0, "a rank"); }

std::vector<Shape> parse_shapes(const std::string& text) {
  constexpr int kMostRanks = 1 << 24;
  std::vector<Shape> shapes;
  for (const std::string& each : split(text, ',')) {
    const auto parts = split(each, 'x');
    if (parts.size() != 3) throw InputError("'" + each + "' is not a shape of groups: write NxGxK, such as 2x4x1-4");
    const int size = parse_count(parts[1], 1, "a number of ranks in a group");
    const auto [fewest, most] = parse_span(parts[0], 2, "a number of groups");
    const auto [least, greatest] = parse_span(parts[2], 1, "a number of active ranks");
    if (greatest > size) {
      throw InputError("'" + each + "' has " + std::to_string(greatest) + " active ranks in groups of " +
                       std::to_string(size) + ": K is at most G in NxGxK");
    }
    if (most > kMostRanks / size) throw InputError("'" + each + "' has more ranks than any run");
    for (int groups = fewest; groups <= most; ++groups) {
      for (int active = least; active <= greatest; ++active) {
        const Shape shape{groups, size, active};
        if (std::find(shapes.begin(), shapes.end(), shape) != shapes.end())
          throw InputError("--groups has '" + each + "' twice");
        shapes.push_back(shape);
      }
    }
  }
  return shapes;
}

std::pair<int, int> parse_pair(const std::string& text) {
  const auto ends = split(text, '-');
  if (ends.size() != 2) throw InputError("'" + text + "' is not a pair of ranks: write 0-1");
  const int a = parse_rank(ends[0]);
  const int b = parse_rank(ends[1]);
  if (a == b) throw InputError("the pair '" + text + "' has the same rank twice");
  return {a, b};
}

std::string to_string(Access access) { return access == Access::write ? "write" : "read"; }

std::string to_string(device::HostKind kind) {
  switch (kind) {
    case device::HostKind::pageable:
      return "pageable";
    case device::HostKind::pinned:
      return "pinned";
    case device::HostKind::noncoherent:
      return "noncoherent";
    case device::HostKind::managed:
      return "managed";
    case device::HostKind::migrated:
      return "migrated";
  }
  return {};
}

std::string to_string(HostPlacement placement) {
  return placement == HostPlacement::any ? "any" : placement == HostPlacement::local ? "local" : "remote";
}

std::string to_string(const Ends& ends) {
  const auto name = [](Place place) { return place == Place::host ? "host" : "device"; };
  return std::string(name(ends.first)) + "-" + name(ends.second);
}

Options parse_options(int count, char** arguments) {
  Options options;
  options.operations = {Operation::pingpong};
  options.schedules = {Schedule::uncontended, Schedule::contended};
  opterr = 0;
  optind = 0;  // glibc: begin anew
  for (;;) {
    const int here = std::max(optind, 1);
    const int option = getopt_long(count, arguments, "+:h", kLongOptions, nullptr);
    if (option == -1) break;
    if (option == '?')
      throw InputError("there is no option '" + std::string(arguments[here]) + "' (or it takes no value): see --help");
    if (option == ':') throw InputError("the option '" + std::string(arguments[here]) + "' needs a value");
    set(options, option == 'h' ? kHelp : option, optarg == nullptr ? "" : optarg);
  }
  if (optind < count) throw InputError("unexpected argument '" + std::string(arguments[optind]) + "': see --help");
  if (options.sizes.empty()) options.sizes = parse_sizes("1B:1GiB");
  if (!options.rounds_file.empty() && !options.pairs.empty()) {
    throw InputError("--rounds and --pairs both say which pairs to measure: give one of the two");
  }
  if (!options.rounds_file.empty() &&
      std::none_of(options.operations.begin(), options.operations.end(), is_pair_operation)) {
    throw InputError("--rounds holds pairs and none of the --operations is between two ranks");
  }
  const bool pipelined =
      std::count(options.operations.begin(), options.operations.end(), Operation::striping_pipelined) > 0;
  if (!options.step_transports.empty() && pipelined) {
    throw InputError(
        "striping_pipelined takes its steps at the same time, so all by one transport: leave it out or "
        "leave out --step-transports");
  }
  if (options.minimum_iterations > options.maximum_iterations) {
    throw InputError("--min-iterations is above --max-iterations (" + std::to_string(options.maximum_iterations) + ")");
  }
  return options;
}

std::string help_text() {
  return R"(fabricbench: measures the paths between the ranks of an MPI job and the devices that they drive.

  mpirun -n 4 fabricbench --transport ccl --operations pingpong,allreduce --output result.jsonl

What
  --transport NAME        staging, copy, kernel, ccl or mpi (the host port has mpi only)    [mpi]
  --step-transports A,B,C of the steps of striping: split, translate, assemble         [as --transport]
  --operations LIST       of pairs: pingpong, unidirectional, bidirectional                 [pingpong]
                          of all ranks: alltoall, allreduce, allgather, reduce_scatter,
                          broadcast, reduce
                          between groups: rail_, symmetric_ with unidirectional,
                          bidirectional or omnidirectional, asymmetric_ with the first two
                          over two groups: striping, striping_pipelined, and its parts _split,
                          _translate, _assemble, beside striping_direct
                          of a matrix: sparse, sparse_intra, sparse_inter, sparse_alltoallv
                          of victims: victim_pingpong_alltoall, victim_pingpong_incast,
                          victim_alltoall_alltoall, victim_alltoall_incast
                          of each GPU: host_to_device, device_to_host, host_bidirectional,
                          host_stream (host to host by a kernel), local_copy
  --implementation WHICH  of an operation: transfers, library, or automatic                 [automatic]
  --schedules LIST        of pairs: uncontended (one pair at a time), contended (rounds in
                          which every rank takes part once); of GPUs: alone, together       [uncontended,contended]
  --pairs LIST            pairs of ranks such as 0-1,2-3, or all                            [all]
  --rounds FILE           the rounds of pairs to measure, in place of all pairs: a round a
                          line, such as 0-1 3-2; pairs of a round go at the same time
  --groups LIST           of patterns between groups: NxGxK, N groups of G consecutive ranks of
                          which K take part; N and K may be spans   [2xGx1-G, then more groups]
  --group-size G          ranks of a group                   [those of a node; half of one node]
  --matrix FILE           of sparse operations: who sends how many bytes to whom, in Matrix
                          Market's coordinate format; with --sizes, scaled to that total
  --victims RANKS         of victim operations                            [0,LAST; every other]
  --aggressor-size SIZE   of each message to an incast, of each rank's alltoall buffer      [1MiB]
  --buffers ENDS          where the buffers of the first and second rank of a pair lie, such
                          as host-device                                                    [device-device]
  --access WHICH          who moves what goes between two GPUs by copy or kernel: the source
                          (write) or the destination (read)                                 [write]
  --host-memory KIND      pageable, pinned, noncoherent (pinned, cached by the GPU: AMD),
                          managed (read and written where it lies), migrated (managed, whose
                          pages go to the device)                [pinned; host port: pageable]
  --host-numa WHERE       host memory on the NUMA node that is local to the GPU, or remote;
                          any: what the runtime chooses                                     [any]
  --together SETS         contended operations of each GPU: sets of ranks that go at the
                          same time, such as 0+1,0+2,0+1+2+3     [the first 2, 3, … all ranks]
  --sizes SIZES           MIN:MAX[:FACTOR], or a list such as 8,64KiB,1GiB                  [1B:1GiB]
How often
  --iterations N          a fixed number; without it, as many as are needed for a 95%
                          confidence interval of the median within 1%, bounded by:
  --min-iterations N      at least                                                          [20]
  --max-iterations N      at most                                                           [1000]
  --budget SECONDS        measuring time of one size of one pair or group                   [1]
  --warmup N              iterations that are not kept (fewer where they would take
                          more than a fifth of the budget)                                  [10]
Safeguards
  --verify WHEN           check the data before the first and after the last iteration of
                          each batch, after every iteration, or off                         [batch]
  --timeout SECONDS       an iteration or a preparation that takes longer ends the run       [60]
  --expect-ranks N        refuse to run with another number of ranks
  --expect-nodes N        refuse to run on another number of nodes
  --share-devices         let several ranks of a node drive one device
  --ranks-per-device N    so many neighbouring ranks drive one device, which they then share [1]
Output
  --output FILE           JSON Lines: every sample, in order
  --quiet                 no table and no progress
  --inject DEFECT[:RANK]  plant a defect, to see it found: wrong-byte, hang, kill, crash, no-footer
  --version, --help

Exit status: 0 measured and right, 2 wrong arguments, 3 something failed, 4 a time-out, 5 wrong data,
6 this machine lacks something that the measurement needs.
)";
}

}  // namespace fabricbench
