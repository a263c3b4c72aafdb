#include "fabricbench/help.hpp"

#include <cstdio>
#include <vector>

#include "fabricbench/json.hpp"
#include "fabricbench/patterns.hpp"
#include "fabricbench/plan.hpp"

namespace fabricbench {
namespace {

constexpr std::size_t kColumn = 26;  // where what an option does begins
constexpr std::size_t kWidth = 92;

// What the operations of a kind are, as a line of the help text begins with it.
struct Family {
  const char* title;
  std::vector<Kind> kinds;
};

const std::vector<Family>& families() {
  static const std::vector<Family> all = {{"of pairs", {Kind::pair}},
                                          {"of all ranks", {Kind::collective}},
                                          {"between groups", {Kind::rail, Kind::asymmetric, Kind::symmetric}},
                                          {"over two groups", {Kind::striping}},
                                          {"of groups and across them", {Kind::training}},
                                          {"of a matrix", {Kind::sparse}},
                                          {"of victims", {Kind::victim}},
                                          {"of each GPU (host_stream: host to host)", {Kind::memory}}};
  return all;
}

// "title: a, b, c", broken where a line is full, each line but the first behind a margin.
std::string family_text(const Family& family) {
  const std::string margin(kColumn, ' ');
  std::string text;
  std::string line = std::string(family.title) + ":";
  std::string separator = " ";
  for (const Kind kind : family.kinds) {
    for (const Description& row : all_operations()) {
      if (row.kind != kind) continue;
      const std::string next = separator + row.name;
      separator = ", ";
      if (kColumn + line.size() + next.size() < kWidth) {
        line += next;
        continue;
      }
      text += line + (next[0] == ',' ? "," : "") + "\n" + margin;
      line = row.name;
    }
  }
  return text + line + "\n";
}

std::string operations_text() {
  std::string text = "  --operations LIST       ";
  for (const Family& family : families()) {
    text += text.back() == '\n' ? std::string(kColumn, ' ') : "";
    text += family_text(family);
  }
  const std::size_t end = text.find('\n');
  text.insert(end, std::string(kWidth - end, ' ') + "[pingpong]");
  return text;
}

bool needs_host_memory(const Description& row) {
  if (row.kind != Kind::memory) return false;
  const std::vector<Step> steps = transfers(row.operation, {0}, 8);
  for (const Transfer& transfer : steps[0]) {
    if (transfer.source_place == Place::host || transfer.destination_place == Place::host) return true;
  }
  return false;
}

// Whose transfers are asked for where only who takes part is of interest.
constexpr int kNoRank = -1;

constexpr char kBefore[] =
    R"(fabricbench: measures the paths between the ranks of an MPI job and between their devices.

  mpirun -n 4 fabricbench --transport ccl --operations pingpong,allreduce --output result.jsonl

What
  --transport NAME        staging, copy, kernel, ccl, mpi; fabric: a NIC by libfabric alone, also from
                          a rank to itself; or cores: host_read, host_stream and host_triad by all
                          cores of a NUMA node (host: mpi, fabric and cores)                [mpi]
  --step-transports A,B,C of the steps of striping: split, translate, assemble         [as --transport]
  --ccl-mode LIST         of ccl: registered, symmetric or copy-engine (buffers), graph-N (N calls
                          in a CUDA graph) or communicators-N (each has a part of a message)
)";
constexpr char kAfter[] =
    R"(  --implementation WHICH  of an operation: transfers, library, or automatic                 [automatic]
  --schedules LIST        of pairs: uncontended (one pair at a time), contended (rounds in
                          which every rank takes part once); of GPUs: alone, together       [uncontended,contended]
  --pairs LIST            pairs of ranks such as 0-1,2-3, or all; or rails, those of the first
                          ranks of two groups, of the second ones, and so on                [all]
  --turns N               only N of the rounds of all pairs, evenly spread; in a round each rank
                          (or group) has one partner, in both directions                    [all]
  --rounds FILE           the rounds of pairs to measure, in place of all pairs: a round a
                          line, such as 0-1 3-2; pairs of a round go at the same time
  --groups LIST           of patterns between groups: NxGxK, N groups of G consecutive ranks of
                          which K take part; N and K may be spans   [2xGx1-G, then more groups]
  --group-size G          ranks of a group                   [those of a node; half of one node]
  --split WHICH           the groups of collectives: nodes, rails (ranks of the same place in their
                          nodes), or NxS, N ranks that are S apart; uncontended: one group at a
                          time, contended: all groups at the same time                      [one of all]
  --matrix FILE,...       of sparse operations: bytes from each rank to each rank, in Matrix
                          Market's coordinate format; with --sizes, scaled to that total;
                          several files: one step after the other
  --victims RANKS         of victim operations                            [0,LAST; every other]
  --aggressor-size SIZE   of each message to an incast, of each rank's alltoall buffer      [1MiB]
  --buffers ENDS          where the buffers of the first and second rank of a pair lie, such
                          as host-device                                                    [device-device]
  --in-place yes          collectives with their result where their input was: allreduce,
                          allgather, reduce_scatter, reduce, by a library                   [no]
  --datatype NAME         of the numbers that reductions by ccl add up: float32, float16, bfloat16,
                          float8_e4m3, float8_e5m2                                          [float32]
  --access WHICH          who moves the data by copy, kernel or fabric: the source (write) or the
                          destination (read); fabric: or both, by a message (send)          [write]
  --nic WHICH             of fabric: near (to the rank's GPU or cores), all (messages in stripes),
                          or a list for the ranks of a node in their order, by name or number in
                          the order of names, such as 0,1 or mlx5_0; stripes: hsn0+hsn1     [near]
  --handles KIND          by which two ranks of copy or kernel reach each other's memory: ipc (CUDA's or
                          HIP's own), vmm (CUDA's virtual memory management) or fabric (that of an
                          NVLink domain)  [between nodes fabric; ipc; vmm where there is no ipc]
  --host-memory KIND      pageable, pinned, noncoherent (pinned, cached by the GPU: AMD),
                          managed (read and written where it lies), migrated (managed, whose
                          pages go to the device)                [pinned; host backend: pageable]
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
  --train N               an iteration is N operations in a row without waiting (over MPI N
                          messages outstanding, as osu_bw), fewer where 8 iterations would
                          take more than the budget; its time is that of one operation
  --warmup N              iterations that are not kept (fewer where they would take
                          more than a fifth of the budget)                                  [10]
Under load
  --burn-in SECONDS       after the plan, of one operation at one size: a product of matrices alone,
                          the operation alone, copies to and from the host alone, then all of them
                          together; clocks, power, temperature and errors in each window
  --compute-only          of it only the product, after any plan
  --product TYPE          bfloat16, float16, float32 or float64     [bfloat16; host, sycl: float32]
  --product-order N       rows of its square matrices, multiple of 128  [8192; sycl: 2048; host: 128;
                          fewer where a product would take more than 0.1 s]
  --product-by WHICH      library (cuBLAS or rocBLAS, where it is there) or kernel           [library]
Safeguards
  --verify WHEN           every byte: after the last iteration of each batch, and after others as
                          often as that takes 3% longer (batch), or after each iteration (every);
                          stamps in each 4 KiB after each iteration with both; or off       [batch]
  --timeout SECONDS       end the run if an iteration, or a part of the set-up, takes longer; the
                          set-up of each thousand ranks may take that much more            [60]
                          (ccl: with the report of NCCL's RAS, NCCL >= 2.24)
  --time-limit SECONDS    end the run after this time
  --expect-ranks N        refuse to run with another number of ranks
  --expect-nodes N        refuse to run on another number of nodes
  --share-devices         allow several ranks of a node on one device
  --devices LIST          of the ranks of a node in their order, such as 0,2,4,6            [0,1,2,3,…]
  --ranks-per-device N    N neighbouring ranks share one device                              [1]
Output
  --output FILE           JSON Lines: every sample, in order
  --case NAME             of the test that this run is, for the header, such as
                          PingPong,%transport=mpi,@SYSTEM:PARTITION+ENVIRONMENT
  --library-settings      how MPI, UCX, libfabric and NCCL are set, in the last line of the file
  --quiet                 no table and no progress
  --plans FILE            measure a plan for each line of FILE, a folder and then options: MPI starts
                          once. Its files and exit-status are left in the folder; a plan that an
                          earlier launch began is left out
  --inject DEFECT[:RANK]  plant a defect to test detection: wrong-byte, hang, kill, crash, no-footer,
                          wrong-product, slow-product (of a burn-in)
  --list-operations       the operations with their properties and the data types, in JSON
  --list-pairs N          the pairs that N ranks would measure, a round in each line, in JSON
  --version, --help

Exit status: 0 measured and right, 2 wrong arguments, 3 something failed, 4 a time-out, 5 wrong data,
6 this machine does not support what the measurement needs.
)";

}  // namespace

std::string help_text() { return kBefore + operations_text() + kAfter; }

std::string operations_json() {
  Json json;
  json.begin_object().key("operations").begin_array();
  for (const Description& row : all_operations()) {
    json.begin_object()
        .field("name", row.name)
        .field("family", row.direction == Direction::none ? to_string(row.kind) : "group")
        .field("round_trip", row.has(kRoundTrip))
        .field("rooted", row.has(kRooted))
        .field("in_place", row.has(kInPlace))
        .field("host", needs_host_memory(row))
        .field("victim", row.kind != Kind::victim ? ""
                         : row.has(kRoundTrip)    ? "pingpong"
                                                  : "alltoall")
        .field("pattern", row.direction == Direction::none
                              ? std::vector<std::string>{"", ""}
                              : std::vector<std::string>{to_string(row.kind), to_string(row.direction)})
        .end_object();
  }
  json.end_array().key("data_types").begin_object();
  for (const DataTypeRow& row : all_data_types()) json.field(row.name, row.format.bytes);
  return json.end_object().end_object().text();
}

void print_pairs(const Options& options) {
  const auto automatic = [](Operation, Implementation) { return Implementation::transfers; };
  for (const Series& series : make_plan(options, options.list_pairs, automatic)) {
    for (std::size_t round = 0, count = series.rounds(); round < count; ++round) {
      const Measurement measurement = series.at(series.sizes.front(), kNoRank, round);
      Json json;
      json.begin_object()
          .field("operation", to_string(series.operation))
          .field("schedule", to_string(series.schedule))
          .field("round", measurement.round)
          .key("pairs")
          .begin_array();
      for (const Group& group : measurement.groups) json.value(group.ranks);
      std::printf("%s\n", json.end_array().end_object().text().c_str());
    }
    if (series.rule) std::printf("\"%s\"\n", hash_text(*series.rule).c_str());
  }
}

}  // namespace fabricbench
