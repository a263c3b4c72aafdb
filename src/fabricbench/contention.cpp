#include "fabricbench/contention.hpp"

#include <algorithm>

#include "fabricbench/environment.hpp"

namespace fabricbench {
namespace {

constexpr int kUnderWayTag = 78;
constexpr int kDoneTag = 79;
constexpr int kReadyTag = 80;
// Messages that a rank has under way at least.
constexpr std::size_t kOutstanding = 16;

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
      first_aggressor_(measurement.aggressor->ranks[0]),
      window_(static_cast<std::int64_t>(std::max<std::size_t>(2, kOutstanding / measurement.aggressor->ranks.size()))) {
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

void Contention::await_attack() {
  if (world_.rank == first_victim_) hear(world_, first_aggressor_, kUnderWayTag);
}

void Contention::end_attack() {
  meet();
  if (world_.rank == first_victim_) say(world_, first_aggressor_, kDoneTag);
}

void Contention::meet() { mpi_check(MPI_Barrier(victims_), "MPI_Barrier"); }

void Contention::begin() {
  meet();
  for (const int rank : notify_) say(world_, rank, kReadyTag);
  for (const int rank : wait_for_) hear(world_, rank, kReadyTag);
}

std::int64_t Contention::attack(Work& work) {
  const bool leads = world_.rank == first_aggressor_;
  const std::int64_t begin = now_ns();
  pattern::Ring window;
  window.operations = static_cast<std::uint64_t>(window_);
  work.run_train(window);
  MPI_Request done = MPI_REQUEST_NULL;
  if (leads) {
    say(world_, first_victim_, kUnderWayTag);
    mpi_check(MPI_Irecv(nullptr, 0, MPI_BYTE, first_victim_, kDoneTag, world_.all, &done), "MPI_Irecv");
  }
  const std::int64_t start = now_ns();
  std::int64_t windows = 0;
  for (int over = 0; over == 0; ++windows) {
    if (leads) mpi_check(MPI_Test(&done, &over, MPI_STATUS_IGNORE), "MPI_Test");
    // All learn of it while a window goes, so that nothing pauses.
    MPI_Request told = MPI_REQUEST_NULL;
    mpi_check(MPI_Ibcast(&over, 1, MPI_INT, 0, aggressors_, &told), "MPI_Ibcast");
    work.run_train(window);
    shared_.advance();
    mpi_check(MPI_Wait(&told, MPI_STATUS_IGNORE), "MPI_Wait");
  }
  const std::int64_t end = now_ns();
  if (leads) repetition_ns_.push_back(std::max<std::int64_t>((end - start) / (windows * window_), 1));
  return end - begin;
}

std::vector<std::int64_t> Contention::repetition_times() {
  auto count = static_cast<int>(repetition_ns_.size());
  mpi_check(MPI_Bcast(&count, 1, MPI_INT, first_aggressor_, world_.all), "MPI_Bcast");
  repetition_ns_.resize(static_cast<std::size_t>(count));
  mpi_check(MPI_Bcast(repetition_ns_.data(), count, MPI_INT64_T, first_aggressor_, world_.all), "MPI_Bcast");
  return repetition_ns_;
}

}  // namespace fabricbench
