#include "fabricbench/contention.hpp"

#include <algorithm>

namespace fabricbench {
namespace {

constexpr int kUnderWayTag = 78;
constexpr int kDoneTag = 79;
constexpr int kReadyTag = 80;

bool has(const std::vector<int>& ranks, int rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }

void say(const World& world, int to, int tag) {
  mpi_check(MPI_Send(nullptr, 0, MPI_BYTE, to, tag, world.all), "MPI_Send");
}

void hear(const World& world, int from, int tag) {
  mpi_check(MPI_Recv(nullptr, 0, MPI_BYTE, from, tag, world.all, MPI_STATUS_IGNORE), "MPI_Recv");
}

}  // namespace

Contention::Contention(const World& world, NodeShared& shared, const Measurement& measurement)
    : world_(world),
      shared_(shared),
      first_victim_(measurement.groups[0].ranks[0]),
      first_aggressor_(measurement.aggressor->ranks[0]) {
  const Group& victims = measurement.groups[0];
  const bool victim = has(victims.ranks, world.rank);
  const bool aggressor = has(measurement.aggressor->ranks, world.rank);
  mpi_check(MPI_Comm_split(world.all, victim ? 0 : MPI_UNDEFINED, world.rank, &victims_), "MPI_Comm_split");
  mpi_check(MPI_Comm_split(world.all, aggressor ? 0 : MPI_UNDEFINED, world.rank, &aggressors_), "MPI_Comm_split");
  if (!victim) return;
  wait_for_ = awaited_by(world.rank, victims.steps);
  notify_ = awaiting(world.rank, victims.steps);
}

Contention::~Contention() {
  if (victims_ != MPI_COMM_NULL) MPI_Comm_free(&victims_);
  if (aggressors_ != MPI_COMM_NULL) MPI_Comm_free(&aggressors_);
}

void Contention::begin(bool beside) {
  if (beside && world_.rank == first_victim_) hear(world_, first_aggressor_, kUnderWayTag);
  mpi_check(MPI_Barrier(victims_), "MPI_Barrier");
  for (const int rank : notify_) say(world_, rank, kReadyTag);
  for (const int rank : wait_for_) hear(world_, rank, kReadyTag);
}

void Contention::end(bool beside) {
  if (!beside) return;
  mpi_check(MPI_Barrier(victims_), "MPI_Barrier");
  if (world_.rank == first_victim_) say(world_, first_aggressor_, kDoneTag);
}

void Contention::attack(Work& work) {
  const bool leads = world_.rank == first_aggressor_;
  work.run();
  MPI_Request done = MPI_REQUEST_NULL;
  if (leads) {
    say(world_, first_victim_, kUnderWayTag);
    mpi_check(MPI_Irecv(nullptr, 0, MPI_BYTE, first_victim_, kDoneTag, world_.all, &done), "MPI_Irecv");
  }
  for (int over = 0; over == 0;) {
    work.run();
    shared_.advance();
    if (leads) mpi_check(MPI_Test(&done, &over, MPI_STATUS_IGNORE), "MPI_Test");
    mpi_check(MPI_Bcast(&over, 1, MPI_INT, 0, aggressors_), "MPI_Bcast");
  }
}

}  // namespace fabricbench
