#include "fabricbench/patterns.hpp"

#include <algorithm>

#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

struct Description {
  Operation operation;
  const char* name;
  bool pair;
  bool reduction;
  bool divided;  // the buffer is divided among the ranks
};

constexpr Description kDescriptions[] = {
    {Operation::pingpong, "pingpong", true, false, false},
    {Operation::unidirectional, "unidirectional", true, false, false},
    {Operation::bidirectional, "bidirectional", true, false, false},
    {Operation::alltoall, "alltoall", false, false, true},
    {Operation::allreduce, "allreduce", false, true, false},
    {Operation::allgather, "allgather", false, false, true},
    {Operation::reduce_scatter, "reduce_scatter", false, true, true},
    {Operation::broadcast, "broadcast", false, false, false},
    {Operation::reduce, "reduce", false, true, false},
    {Operation::host_to_device, "host_to_device", false, false, true},
    {Operation::device_to_host, "device_to_host", false, false, true},
    {Operation::host_bidirectional, "host_bidirectional", false, false, true},
    {Operation::host_stream, "host_stream", false, false, true},
    {Operation::local_copy, "local_copy", false, false, true},
};

const Description& describe(Operation operation) {
  return *std::find_if(std::begin(kDescriptions), std::end(kDescriptions),
                       [&](const Description& each) { return each.operation == operation; });
}

// The transfers of a memory path on one rank, which all go at the same time.
Step memory_path(Operation operation, int rank, std::uint64_t bytes) {
  const auto from = [&](Place source, Place destination) {
    return Transfer{rank, rank, bytes, 0, 0, source, destination};
  };
  switch (operation) {
    case Operation::host_to_device:
      return {from(Place::host, Place::device)};
    case Operation::device_to_host:
      return {from(Place::device, Place::host)};
    case Operation::host_bidirectional:
      return {from(Place::host, Place::device), from(Place::device, Place::host)};
    case Operation::host_stream:
      return {from(Place::host, Place::host)};
    default:
      return {from(Place::device, Place::device)};
  }
}

}  // namespace

const std::vector<Operation>& all_operations() {
  static const std::vector<Operation> operations = [] {
    std::vector<Operation> result;
    for (const Description& each : kDescriptions) result.push_back(each.operation);
    return result;
  }();
  return operations;
}

std::string to_string(Operation operation) { return describe(operation).name; }

Operation parse_operation(const std::string& name) {
  std::vector<std::string> names;
  for (const Description& each : kDescriptions) {
    if (name == each.name) return each.operation;
    names.emplace_back(each.name);
  }
  throw InputError("there is no operation '" + name + "': choose from " + join(names, ", "));
}

bool is_pair_operation(Operation operation) { return describe(operation).pair; }
bool is_memory_path(Operation operation) {
  return operation == Operation::host_to_device || operation == Operation::device_to_host ||
         operation == Operation::host_bidirectional || operation == Operation::host_stream ||
         operation == Operation::local_copy;
}
bool is_collective(Operation operation) { return !is_pair_operation(operation) && !is_memory_path(operation); }
bool is_reduction(Operation operation) { return describe(operation).reduction; }
bool is_symmetric(Operation operation) { return operation == Operation::bidirectional; }

std::uint64_t granularity(Operation operation, std::size_t ranks) {
  const Description& description = describe(operation);
  return (description.divided ? ranks : 1) * (description.reduction ? sizeof(float) : 1);
}

std::vector<Step> transfers(Operation operation, const std::vector<int>& ranks, std::uint64_t bytes) {
  const std::uint64_t share = bytes / ranks.size();
  Step step;
  switch (operation) {
    case Operation::pingpong:
      return {{{ranks[0], ranks[1], bytes}}, {{ranks[1], ranks[0], bytes}}};
    case Operation::unidirectional:
      return {{{ranks[0], ranks[1], bytes}}};
    case Operation::bidirectional:
      return {{{ranks[0], ranks[1], bytes}, {ranks[1], ranks[0], bytes}}};
    case Operation::alltoall:
    case Operation::reduce_scatter:
      for (std::size_t s = 0; s < ranks.size(); ++s) {
        // Beginning with the next rank, so that the first transfers do not all go to the same one.
        for (std::size_t k = 1; k <= ranks.size(); ++k) {
          const std::size_t d = (s + k) % ranks.size();
          const std::uint64_t destination_offset = operation == Operation::alltoall ? s * share : 0;
          step.push_back({ranks[s], ranks[d], share, d * share, destination_offset});
        }
      }
      return {step};
    case Operation::allgather:
      for (std::size_t s = 0; s < ranks.size(); ++s) {
        for (std::size_t k = 1; k <= ranks.size(); ++k) {
          step.push_back({ranks[s], ranks[(s + k) % ranks.size()], share, 0, s * share});
        }
      }
      return {step};
    case Operation::allreduce:
      for (const int source : ranks) {
        for (const int destination : ranks) step.push_back({source, destination, bytes});
      }
      return {step};
    case Operation::broadcast:
      for (const int destination : ranks) {
        if (destination != ranks[0]) step.push_back({ranks[0], destination, bytes});
      }
      return {step};
    case Operation::reduce:
      for (const int source : ranks) step.push_back({source, ranks[0], bytes});
      return {step};
    case Operation::host_to_device:
    case Operation::device_to_host:
    case Operation::host_bidirectional:
    case Operation::host_stream:
    case Operation::local_copy:
      for (const int rank : ranks) {
        for (const Transfer& each : memory_path(operation, rank, share)) step.push_back(each);
      }
      return {step};
  }
  return {};
}

std::vector<Step> placed(std::vector<Step> steps, const std::vector<int>& ranks, const Ends& ends) {
  const auto place_of = [&](int rank) { return rank == ranks[0] ? ends.first : ends.second; };
  for (Step& step : steps) {
    for (Transfer& transfer : step) {
      transfer.source_place = place_of(transfer.source);
      transfer.destination_place = place_of(transfer.destination);
    }
  }
  return steps;
}

std::vector<std::vector<std::pair<int, int>>> pair_rounds(const std::vector<int>& ranks) {
  constexpr int kBye = -1;
  std::vector<int> circle = ranks;
  if (circle.size() % 2 == 1) circle.push_back(kBye);
  std::vector<std::vector<std::pair<int, int>>> rounds;
  for (std::size_t turn = 0; turn + 1 < circle.size(); ++turn) {
    std::vector<std::pair<int, int>> round;
    for (std::size_t i = 0; i < circle.size() / 2; ++i) {
      const int a = circle[i];
      const int b = circle[circle.size() - 1 - i];
      if (a != kBye && b != kBye) round.emplace_back(std::min(a, b), std::max(a, b));
    }
    std::sort(round.begin(), round.end());
    rounds.push_back(std::move(round));
    std::rotate(circle.begin() + 1, circle.end() - 1, circle.end());
  }
  return rounds;
}

}  // namespace fabricbench
