#include "fabricbench/options.hpp"

#include <getopt.h>

#include <algorithm>
#include <limits>

#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

const char* const kTransports[] = {"staging", "copy", "kernel", "ccl", "mpi", "fabric", "cores"};
const char* const kDefects[] = {"wrong-byte", "hang", "kill", "crash", "no-footer", "wrong-product", "slow-product"};

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
  const std::string name = one_of(text, names, "time to verify");
  return name == "batch" ? Verify::batch : name == "every" ? Verify::every : Verify::off;
}

Access parse_access(const std::string& text) {
  const char* const names[] = {"write", "read", "send"};
  const std::string name = one_of(text, names, "side that moves the data");
  return name == "write" ? Access::write : name == "read" ? Access::read : Access::send;
}

device::Handles parse_handles(const std::string& text) {
  using device::Handles;
  const char* const names[] = {"ipc", "vmm", "fabric"};
  const std::string name = one_of(text, names, "kind of handle");
  return name == "ipc" ? Handles::ipc : name == "vmm" ? Handles::vmm : Handles::fabric;
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
  for (const std::string& part : split(text, separator)) {
    ranks.push_back(parse_rank(part));
    if (std::count(ranks.begin(), ranks.end(), ranks.back()) > 1)
      throw InputError("the list '" + text + "' has rank " + part + " twice");
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

// What the numbers of options may be, in the order of their names.
struct NumberRow {
  const char* option;
  const char* what;
  std::int64_t least;
  std::int64_t most;
};
constexpr std::int64_t kMostRanks = 1 << 24;
constexpr std::int64_t kMostIterations = 10'000'000;
constexpr std::int64_t kLongestSeconds = 10'000'000;
constexpr std::int64_t kLongestTrain = 256;  // the queues of some devices hold so many at least
const NumberRow kNumbers[] = {
    {"expect-nodes", "a number of nodes", 1, kMostRanks},
    {"expect-ranks", "a number of ranks", 1, kMostRanks},
    {"group-size", "a number of ranks", 1, kMostRanks},
    {"iterations", "a number of iterations", 1, kMostIterations},
    {"list-pairs", "a number of ranks", 2, 1 << 16},
    {"max-iterations", "a greatest number of iterations", 8, kMostIterations},
    {"min-iterations", "a least number of iterations", 8, kMostIterations},
    {"product-order", "a number of rows", 1, product::kMostOrder},
    {"ranks-per-device", "a number of ranks", 1, kMostRanks},
    {"train", "a number of operations of a train", 2, kLongestTrain},
    {"turns", "a number of turns", 1, kMostRanks},
    {"warmup", "a number of warm-up iterations", 1, 1'000'000},
};

std::int64_t number_of(const std::string& option, const std::string& text) {
  for (const NumberRow& row : kNumbers) {
    if (row.option != option) continue;
    const std::int64_t number = parse_integer(text, row.least, row.what);
    if (number <= row.most) return number;
    throw InputError("'" + text + "' is too large for --" + option + ": give " + std::to_string(row.most) + " at most");
  }
  throw InputError("--" + option + " has no number");
}

double parse_seconds(const std::string& text) {
  const double seconds = parse_positive(text, "a time in seconds");
  if (seconds > kLongestSeconds)
    throw InputError("'" + text + "' is too long: give " + std::to_string(kLongestSeconds) + " seconds at most");
  return seconds;
}

std::uint64_t parse_order(const std::string& text) {
  const auto order = static_cast<std::uint64_t>(number_of("product-order", text));
  if (order % product::kOrderStep != 0) {
    throw InputError("'" + text + "' is not an order of a product: choose a multiple of " +
                     std::to_string(product::kOrderStep) + ", " + std::to_string(product::kMostOrder) + " at most");
  }
  return order;
}

// An option: its name, whether it takes a value, and what it sets.
struct OptionRow {
  const char* name;
  bool has_value;
  void (*set)(Options& options, const std::string& text);
};

const OptionRow kOptions[] = {
    {"transport", true,
     [](Options& o, const std::string& text) { o.transport = one_of(text, kTransports, "transport"); }},
    {"step-transports", true,
     [](Options& o, const std::string& text) {
       o.step_transports.clear();
       for (const std::string& name : split(text, ','))
         o.step_transports.push_back(one_of(name, kTransports, "transport"));
       if (o.step_transports.size() != 3)
         throw InputError("'" + text + "' is not a transport for each of split, translate and assemble: write a,b,c");
     }},
    {"ccl-mode", true, [](Options& o, const std::string& text) { o.ccl = parse_ccl_modes(text); }},
    {"operations", true,
     [](Options& o, const std::string& text) {
       o.operations.clear();
       for (const std::string& name : split(text, ',')) o.operations.push_back(parse_operation(name));
     }},
    {"implementation", true,
     [](Options& o, const std::string& text) { o.implementation = parse_implementation(text); }},
    {"schedules", true,
     [](Options& o, const std::string& text) {
       o.schedules.clear();
       for (const std::string& name : split(text, ',')) o.schedules.push_back(parse_schedule(name));
     }},
    {"pairs", true,
     [](Options& o, const std::string& text) {
       o.pairs.clear();
       o.rails = text == "rails";
       if (text != "all" && !o.rails) {
         for (const std::string& pair : split(text, ',')) o.pairs.push_back(parse_pair(pair));
       }
     }},
    {"rounds", true, [](Options& o, const std::string& text) { o.rounds_file = parse_file_name(text, "--rounds"); }},
    {"groups", true, [](Options& o, const std::string& text) { o.shapes = parse_shapes(text); }},
    {"group-size", true,
     [](Options& o, const std::string& text) { o.group_size = static_cast<int>(number_of("group-size", text)); }},
    {"split", true,
     [](Options& o, const std::string& text) {
       parse_split(text, 2, 1);
       o.split = text;
     }},
    {"matrix", true, [](Options& o, const std::string& text) { o.matrix_files = parse_file_name(text, "--matrix"); }},
    {"victims", true, [](Options& o, const std::string& text) { o.victims = parse_ranks(text, ','); }},
    {"aggressor-size", true, [](Options& o, const std::string& text) { o.aggressor_size = parse_size(text); }},
    {"together", true,
     [](Options& o, const std::string& text) {
       o.together.clear();
       for (const std::string& set : split(text, ',')) o.together.push_back(parse_ranks(set, '+'));
     }},
    {"buffers", true, [](Options& o, const std::string& text) { o.ends = parse_ends(text); }},
    {"in-place", true,
     [](Options& o, const std::string& text) {
       const char* const answers[] = {"yes", "no"};
       o.in_place = one_of(text, answers, "answer to --in-place") == "yes";
     }},
    {"datatype", true, [](Options& o, const std::string& text) { o.data_type = parse_data_type(text); }},
    {"access", true, [](Options& o, const std::string& text) { o.access = parse_access(text); }},
    {"handles", true, [](Options& o, const std::string& text) { o.handles = parse_handles(text); }},
    {"nic", true,
     [](Options& o, const std::string& text) {
       if (text.empty()) throw InputError("--nic needs near, all, or NICs by name or number");
       o.nic = text;
     }},
    {"host-memory", true, [](Options& o, const std::string& text) { o.host_memory = parse_host_kind(text); }},
    {"host-numa", true, [](Options& o, const std::string& text) { o.host_placement = parse_placement(text); }},
    {"sizes", true,
     [](Options& o, const std::string& text) {
       o.sizes = parse_sizes(text);
       o.sizes_given = true;
     }},
    {"iterations", true,
     [](Options& o, const std::string& text) { o.fixed_iterations = number_of("iterations", text); }},
    {"min-iterations", true,
     [](Options& o, const std::string& text) { o.minimum_iterations = number_of("min-iterations", text); }},
    {"max-iterations", true,
     [](Options& o, const std::string& text) { o.maximum_iterations = number_of("max-iterations", text); }},
    {"budget", true, [](Options& o, const std::string& text) { o.budget_s = parse_seconds(text); }},
    {"warmup", true, [](Options& o, const std::string& text) { o.warmup = number_of("warmup", text); }},
    {"train", true, [](Options& o, const std::string& text) { o.train = number_of("train", text); }},
    {"burn-in", true, [](Options& o, const std::string& text) { o.burn_in_s = parse_seconds(text); }},
    {"compute-only", false, [](Options& o, const std::string&) { o.compute_only = true; }},
    {"product", true, [](Options& o, const std::string& text) { o.product = product::parse_type(text); }},
    {"product-order", true, [](Options& o, const std::string& text) { o.product_order = parse_order(text); }},
    {"product-by", true,
     [](Options& o, const std::string& text) {
       const char* const names[] = {"library", "kernel"};
       o.product_by_library = one_of(text, names, "way to multiply") == "library";
     }},
    {"verify", true, [](Options& o, const std::string& text) { o.verify = parse_verify(text); }},
    {"timeout", true, [](Options& o, const std::string& text) { o.timeout_s = parse_seconds(text); }},
    {"time-limit", true, [](Options& o, const std::string& text) { o.limit_s = parse_seconds(text); }},
    {"plans", true, [](Options& o, const std::string& text) { o.plans = text; }},
    {"share-devices", false, [](Options& o, const std::string&) { o.share_devices = true; }},
    {"ranks-per-device", true,
     [](Options& o, const std::string& text) { o.ranks_per_device = number_of("ranks-per-device", text); }},
    {"devices", true, [](Options& o, const std::string& text) { o.devices = parse_devices(text); }},
    {"case", true, [](Options& o, const std::string& text) { o.case_name = text; }},
    {"output", true, [](Options& o, const std::string& text) { o.output = text; }},
    {"expect-ranks", true,
     [](Options& o, const std::string& text) { o.expected_ranks = number_of("expect-ranks", text); }},
    {"expect-nodes", true,
     [](Options& o, const std::string& text) { o.expected_nodes = number_of("expect-nodes", text); }},
    {"library-settings", false, [](Options& o, const std::string&) { o.library_settings = true; }},
    {"quiet", false, [](Options& o, const std::string&) { o.quiet = true; }},
    {"inject", true,
     [](Options& o, const std::string& text) {
       const auto parts = split(text, ':');
       o.injected = one_of(parts[0], kDefects, "planted defect");
       if (parts.size() > 1) o.injected_rank = parse_rank(parts[1]);
     }},
    {"help", false, [](Options& o, const std::string&) { o.show_help = true; }},
    {"turns", true, [](Options& o, const std::string& text) { o.turns = static_cast<int>(number_of("turns", text)); }},
    {"list-operations", false, [](Options& o, const std::string&) { o.show_operations = true; }},
    {"list-pairs", true,
     [](Options& o, const std::string& text) { o.list_pairs = static_cast<int>(number_of("list-pairs", text)); }},
    {"version", false, [](Options& o, const std::string&) { o.show_version = true; }},
};

constexpr int kFirstOption = 256;  // beyond all characters, which stand for short options

// The table as getopt_long takes it.
std::vector<option> long_options() {
  std::vector<option> result;
  for (const OptionRow& row : kOptions) {
    result.push_back({row.name, row.has_value ? required_argument : no_argument, nullptr,
                      kFirstOption + static_cast<int>(result.size())});
  }
  result.push_back({nullptr, 0, nullptr, 0});
  return result;
}

// What can follow one another without a wait.
void check_train(const Options& options) {
  for (const Operation operation : options.operations) {
    const bool pair = is_pair_operation(operation) && !is_round_trip(operation);
    if (!pair && !is_collective(operation) && !is_memory_path(operation))
      throw InputError("--train needs operations without an answer: leave out " + to_string(operation));
  }
  if (options.transport == "staging" || !options.step_transports.empty() || options.ccl.graph_calls > 0)
    throw InputError("--train is for the transports copy, kernel, ccl, mpi and fabric, without steps and graphs");
  const bool waits = options.host_memory == device::HostKind::pageable && options.transport == "copy";
  if (waits || options.host_memory == device::HostKind::migrated)
    throw InputError("copies of such host memory are synchronous: --train needs --host-memory pinned");
}

void check_in_place(const Options& options) {
  for (const Operation operation : options.operations) {
    if (!describe(operation).has(kInPlace))
      throw InputError(to_string(operation) + " has no form in place: leave it out, or leave out --in-place");
  }
  if (options.train > 0 || options.ccl.graph_calls > 0)
    throw InputError("in place each operation overwrites its input: --in-place has no --train and no --ccl-mode graph");
}

// What each option allows and all of them together do not.
void check_together(const Options& options) {
  if (!options.rounds_file.empty() && (options.rails || !options.pairs.empty())) {
    throw InputError("--rounds and --pairs exclude each other: give one of them");
  }
  if (!options.rounds_file.empty() &&
      std::none_of(options.operations.begin(), options.operations.end(), is_pair_operation)) {
    throw InputError("--rounds has pairs, and no operation of --operations is between two ranks");
  }
  if (options.handles &&
      ((options.transport != "copy" && options.transport != "kernel") || !options.step_transports.empty()))
    throw InputError("--handles is for --transport copy and kernel, without steps: leave out one of the two");
  if (options.transport != "fabric" && (options.nic != kNearNic || options.access == Access::send))
    throw InputError("--nic and --access send are for --transport fabric: leave out one of them");
  if (options.ccl.any() && (options.transport != "ccl" || !options.step_transports.empty()))
    throw InputError("--ccl-mode needs --transport ccl without --step-transports: leave out one of them");
  const bool pipelined =
      std::count(options.operations.begin(), options.operations.end(), Operation::striping_pipelined) > 0;
  if (!options.step_transports.empty() && pipelined) {
    throw InputError(
        "striping_pipelined runs its steps at the same time, by one transport: leave it out, or "
        "leave out --step-transports");
  }
  if (options.train > 0) check_train(options);
  if (!options.split.empty() && !std::all_of(options.operations.begin(), options.operations.end(), is_collective))
    throw InputError("--split is for collectives: leave the other operations out, or leave out --split");
  if (options.in_place) check_in_place(options);
  if (options.data_type != DataType::float32 &&
      (options.transport != "ccl" || !options.step_transports.empty() ||
       std::none_of(options.operations.begin(), options.operations.end(), is_reduction)))
    throw InputError("--datatype is for reductions by --transport ccl: leave it out, or choose such an operation");
  if (options.burn_in_s > 0 && (options.train > 0 || options.ccl.graph_calls > 0))
    throw InputError("--burn-in repeats an operation by itself: leave out --train and --ccl-mode graph");
  if (options.burn_in_s == 0 &&
      (options.compute_only || options.product || options.product_order || !options.product_by_library))
    throw InputError(
        "--compute-only, --product, --product-order and --product-by are of a burn-in: add --burn-in, or leave them "
        "out");
  if (options.minimum_iterations > options.maximum_iterations) {
    throw InputError("--min-iterations is above --max-iterations (" + std::to_string(options.maximum_iterations) + ")");
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
  if (number > kMostRanks) throw InputError("'" + text + "' is not " + what + ": it is too large");
  return static_cast<int>(number);
}

int parse_rank(const std::string& text) { return parse_count(text, 0, "a rank"); }

std::vector<int> parse_devices(const std::string& text) {
  std::vector<int> devices;
  for (const std::string& word : split(text, ',')) devices.push_back(parse_count(word, 0, "a device"));
  return devices;
}

std::vector<Shape> parse_shapes(const std::string& text) {
  constexpr std::size_t kMostShapes = 4096;
  std::vector<Shape> shapes;
  for (const std::string& word : split(text, ',')) {
    const auto parts = split(word, 'x');
    if (parts.size() != 3) throw InputError("'" + word + "' is not a shape of groups: write NxGxK, such as 2x4x1-4");
    const int size = parse_count(parts[1], 1, "a number of ranks in a group");
    const auto [fewest, most] = parse_span(parts[0], 2, "a number of groups");
    const auto [least, greatest] = parse_span(parts[2], 1, "a number of active ranks");
    if (greatest > size) {
      throw InputError("'" + word + "' has " + std::to_string(greatest) + " active ranks in groups of " +
                       std::to_string(size) + ": K is at most G in NxGxK");
    }
    if (most > kMostRanks / size) throw InputError("'" + word + "' has more ranks than any run");
    for (int groups = fewest; groups <= most; ++groups) {
      for (int active = least; active <= greatest; ++active) {
        const Shape shape{groups, size, active};
        if (std::find(shapes.begin(), shapes.end(), shape) != shapes.end())
          throw InputError("--groups has '" + word + "' twice");
        if (shapes.size() == kMostShapes)
          throw InputError("--groups has more than " + std::to_string(kMostShapes) + " shapes: give fewer");
        shapes.push_back(shape);
      }
    }
  }
  return shapes;
}

Split parse_split(const std::string& text, int ranks, int group_size) {
  if (text == "nodes") return {group_size, 1};
  if (text == "rails") return {ranks / group_size, group_size};
  const auto parts = split(text, 'x');
  if (parts.size() != 2)
    throw InputError("'" + text + "' is not a way to split the ranks: choose nodes, rails, or NxS, N ranks S apart");
  return {parse_count(parts[0], 2, "a number of ranks"), parse_count(parts[1], 1, "a distance between ranks")};
}

std::pair<int, int> parse_pair(const std::string& text) {
  const auto ends = split(text, '-');
  if (ends.size() != 2) throw InputError("'" + text + "' is not a pair of ranks: write 0-1");
  const int a = parse_rank(ends[0]);
  const int b = parse_rank(ends[1]);
  if (a == b) throw InputError("the pair '" + text + "' has the same rank twice");
  return {a, b};
}

std::string to_string(Access access) {
  return access == Access::write ? "write" : access == Access::read ? "read" : "send";
}

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

std::string to_string(device::Handles handles) {
  using device::Handles;
  return handles == Handles::ipc ? "ipc" : handles == Handles::vmm ? "vmm" : "fabric";
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
  const std::vector<option> known = long_options();
  opterr = 0;
  optind = 0;  // glibc: from the start
  for (;;) {
    const int here = std::max(optind, 1);
    const int option = getopt_long(count, arguments, "+:h", known.data(), nullptr);
    if (option == -1) break;
    if (option == '?')
      throw InputError("unknown option '" + std::string(arguments[here]) + "', or it takes no value: see --help");
    if (option == ':') throw InputError("the option '" + std::string(arguments[here]) + "' needs a value");
    if (option == 'h') {
      options.show_help = true;
    } else {
      kOptions[option - kFirstOption].set(options, optarg == nullptr ? "" : optarg);
    }
  }
  if (optind < count) throw InputError("unexpected argument '" + std::string(arguments[optind]) + "': see --help");
  if (options.sizes.empty()) options.sizes = parse_sizes("1B:1GiB");
  check_together(options);
  return options;
}

}  // namespace fabricbench
