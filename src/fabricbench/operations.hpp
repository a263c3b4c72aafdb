// The operations: one table, from which their names, the help text, the checks of names and all properties follow. What
// moves in an operation is in patterns.cpp. The package has the same table (fabricheck/records/operations.py), and a
// test compares the two.
#pragma once

#include <string>
#include <vector>

namespace fabricbench {

// Who takes part: a pair of ranks, all of them, groups of them (rail, asymmetric and symmetric: CommBench, ICS'24,
// section 4.3; striping: section 4.2), groups and those of the same place in them at once (training), who a matrix says
// (section 4.4), victims beside an aggressor, or each rank alone with its memories.
enum class Kind { pair, collective, rail, asymmetric, symmetric, striping, training, sparse, victim, memory };
enum class Direction { none, unidirectional, bidirectional, omnidirectional };

// Properties, of which an operation may have several.
enum Property : unsigned {
  kPlain = 0,
  kReduces = 1,    // it adds numbers, and so is not just a list of transfers
  kDivides = 2,    // the buffer is divided among the ranks
  kRoundTrip = 4,  // what is timed is there and back
  kSymmetric = 8,  // both directions of a pair are one and the same measurement
  kIncast = 16,    // the aggressor is an incast; else it is an alltoall
  kRooted = 32,    // a collective with one root, the first rank
  kInPlace = 64,   // libraries know it with its result where its input was
  kByCores = 128   // processors alone do it
};

// Name, kind, direction, properties; in the order in which they are shown.
// clang-format off
#define FABRICBENCH_OPERATIONS(X) \
  X(pingpong, pair, none, kRoundTrip | kSymmetric) \
  X(unidirectional, pair, none, kPlain) \
  X(bidirectional, pair, none, kSymmetric) \
  X(alltoall, collective, none, kDivides) \
  X(allreduce, collective, none, kReduces | kInPlace) \
  X(allgather, collective, none, kDivides | kInPlace) \
  X(reduce_scatter, collective, none, kReduces | kDivides | kInPlace) \
  X(broadcast, collective, none, kRooted) \
  X(reduce, collective, none, kReduces | kRooted | kInPlace) \
  X(rail_unidirectional, rail, unidirectional, kPlain) \
  X(rail_bidirectional, rail, bidirectional, kPlain) \
  X(rail_omnidirectional, rail, omnidirectional, kPlain) \
  X(asymmetric_unidirectional, asymmetric, unidirectional, kPlain) \
  X(asymmetric_bidirectional, asymmetric, bidirectional, kPlain) \
  X(symmetric_unidirectional, symmetric, unidirectional, kPlain) \
  X(symmetric_bidirectional, symmetric, bidirectional, kPlain) \
  X(symmetric_omnidirectional, symmetric, omnidirectional, kPlain) \
  X(striping, striping, none, kPlain) \
  X(striping_pipelined, striping, none, kPlain) \
  X(striping_split, striping, none, kPlain) \
  X(striping_translate, striping, none, kPlain) \
  X(striping_assemble, striping, none, kPlain) \
  X(striping_direct, striping, none, kPlain) \
  X(training_step, training, none, kReduces) \
  X(sparse, sparse, none, kPlain) \
  X(sparse_intra, sparse, none, kPlain) \
  X(sparse_inter, sparse, none, kPlain) \
  X(sparse_alltoallv, sparse, none, kPlain) \
  X(victim_pingpong_alltoall, victim, none, kRoundTrip) \
  X(victim_pingpong_incast, victim, none, kRoundTrip | kIncast) \
  X(victim_alltoall_alltoall, victim, none, kDivides) \
  X(victim_alltoall_incast, victim, none, kDivides | kIncast) \
  X(host_to_device, memory, none, kDivides) \
  X(device_to_host, memory, none, kDivides) \
  X(host_bidirectional, memory, none, kDivides) \
  X(host_read, memory, none, kDivides | kByCores) \
  X(host_stream, memory, none, kDivides) \
  X(host_triad, memory, none, kDivides | kByCores) \
  X(local_copy, memory, none, kDivides)
// clang-format on

enum class Operation {
#define FABRICBENCH_NAME(name, kind, direction, properties) name,
  FABRICBENCH_OPERATIONS(FABRICBENCH_NAME)
#undef FABRICBENCH_NAME
};

struct Description {
  Operation operation;
  const char* name;
  Kind kind;
  Direction direction;
  unsigned properties;

  bool has(Property property) const { return (properties & property) != 0; }
};

// The whole table, and one row of it.
const std::vector<Description>& all_operations();
const Description& describe(Operation operation);

std::string to_string(Operation operation);
std::string to_string(Kind kind);
std::string to_string(Direction direction);
Operation parse_operation(const std::string& name);

// An operation between two ranks, the first of which begins.
bool is_pair_operation(Operation operation);
// A pattern of groups of ranks, which has a shape.
bool has_shape(Operation operation);
// One message from rank to rank in stripes, or a part of that, over the ranks of two groups.
bool is_striping(Operation operation);
// Collectives of groups of ranks, and at the same time others of those ranks that have the same place in their groups.
bool is_training(Operation operation);
// The messages of matrices that the user hands in.
bool is_sparse(Operation operation);
// A pattern that is measured alone and beside an aggressor, interleaved.
bool is_victim(Operation operation);
// A path between memories that one rank uses by itself, or several ranks at once, each for itself.
bool is_memory_path(Operation operation);
// What libraries have an implementation of their own for.
bool is_collective(Operation operation);
bool is_reduction(Operation operation);
bool is_round_trip(Operation operation);
bool is_symmetric(Operation operation);

}  // namespace fabricbench
