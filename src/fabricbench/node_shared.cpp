#include "fabricbench/node_shared.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "fabricbench/environment.hpp"
#include "fabricbench/errors.hpp"

namespace fabricbench {
namespace {

constexpr int kReadyTag = 77;
constexpr int kSignalTag = 78;

// Ranks in containers of their own number their processes each for itself.
std::uint64_t process_space() {
  struct stat status{};
  return stat("/proc/self/ns/pid", &status) == 0 ? static_cast<std::uint64_t>(status.st_ino) : 0;
}

}  // namespace

NodeShared::NodeShared(const World& world)
    : world_(world),
      sent_(static_cast<std::size_t>(world.node_size)),
      received_(static_cast<std::size_t>(world.node_size)) {
  const auto ranks = static_cast<std::size_t>(world.node_size);
  mapped_bytes_ = ranks * sizeof(Slot) + ranks * ranks * sizeof(Counter);
  // POSIX shared memory and not an MPI window: not every MPI library was built with one-sided communication.
  char name[64] = "";
  if (world.node_rank == 0) std::snprintf(name, sizeof name, "/fabricbench.%s", random_id().c_str());
  mpi_check(MPI_Bcast(name, sizeof name, MPI_CHAR, 0, world.node), "MPI_Bcast");
  if (world.node_rank == 0) map(name, O_RDWR | O_CREAT | O_EXCL);
  mpi_check(MPI_Barrier(world.node), "MPI_Barrier");
  if (world.node_rank != 0) map(name, O_RDWR);
  mpi_check(MPI_Barrier(world.node), "MPI_Barrier");
  if (world.node_rank == 0) shm_unlink(name);
  slots_ = static_cast<Slot*>(mapped_);
  flags_ = reinterpret_cast<Counter*>(slots_ + ranks);
  mine().process_space.store(process_space());
  mine().process.store(getpid());
  yields_ = world.shares_cores || world.lacks_cores;
}

void NodeShared::map(const char* name, int flags) {
  const int file = shm_open(name, flags, 0600);
  if (file < 0 || ((flags & O_CREAT) != 0 && ftruncate(file, static_cast<off_t>(mapped_bytes_)) != 0)) {
    throw RunError("memory", std::string("no shared memory between the ranks of a node (is /dev/shm writable?): ") +
                                 std::strerror(errno));
  }
  mapped_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped_ == MAP_FAILED)
    throw RunError("memory", std::string("the shared memory of the node cannot be mapped: ") + std::strerror(errno));
}

NodeShared::~NodeShared() { munmap(mapped_, mapped_bytes_); }

template <typename Condition>
void NodeShared::spin_until(Condition&& done) const {
  constexpr unsigned kSpinsBeforeProgress = 4096;
  for (unsigned spins = 1; !done(); ++spins) {
    if (yields_) sched_yield();
    // A send that is complete here may still need this rank to drive it: MPI promises no progress in the background.
    if (spins % kSpinsBeforeProgress == 0) {
      int flag = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world_.all, &flag, MPI_STATUS_IGNORE);
    }
  }
}

void NodeShared::barrier(const std::vector<int>& wait_for, const std::vector<int>& notify) {
  const std::uint64_t now = ++generation_;
  advance();
  mine().arrived.store(now, std::memory_order_release);
  if (world_.node_rank == 0) {
    for (int other = 1; other < world_.node_size; ++other) {
      spin_until([&] { return slots_[other].arrived.load(std::memory_order_acquire) >= now; });
    }
    if (world_.node_count > 1) world_.barrier(world_.leaders);
    slots_[0].released.store(now, std::memory_order_release);
  } else {
    spin_until([&] { return slots_[0].released.load(std::memory_order_acquire) >= now; });
  }
  mine().left.store(now, std::memory_order_release);
  for (const int rank : notify) {
    if (!world_.on_this_node(rank)) send_to(rank, kReadyTag);
  }
  for (const int rank : wait_for) {
    if (!world_.on_this_node(rank)) {
      receive_from(rank, kReadyTag);
      continue;
    }
    const int index = world_.node_rank_of(rank);
    spin_until([&] { return slots_[index].left.load(std::memory_order_acquire) >= now; });
  }
}

void NodeShared::send_to(int rank, int tag) const {
  mpi_check(MPI_Send(nullptr, 0, MPI_BYTE, rank, tag, world_.all), "MPI_Send");
}

void NodeShared::receive_from(int rank, int tag) const {
  MPI_Request arrival = MPI_REQUEST_NULL;
  mpi_check(MPI_Irecv(nullptr, 0, MPI_BYTE, rank, tag, world_.all, &arrival), "MPI_Irecv");
  world_.complete(arrival);
}

void NodeShared::signal(int destination) {
  if (!world_.on_this_node(destination)) return send_to(destination, kSignalTag);
  const int there = world_.node_rank_of(destination);
  flag(world_.node_rank, there).value.store(++sent_[static_cast<std::size_t>(there)], std::memory_order_release);
}

void NodeShared::await(int source) {
  if (!world_.on_this_node(source)) return receive_from(source, kSignalTag);
  const int there = world_.node_rank_of(source);
  const std::uint64_t wanted = ++received_[static_cast<std::size_t>(there)];
  spin_until([&] { return flag(there, world_.node_rank).value.load(std::memory_order_acquire) >= wanted; });
}

void NodeShared::leave_device(const std::string& text) {
  std::strncpy(mine().device, text.c_str(), sizeof mine().device - 1);
  mine().has_device.store(1, std::memory_order_release);
}

std::string NodeShared::device_of(int node_rank) const {
  const Slot& slot = slots_[node_rank];
  return slot.has_device.load(std::memory_order_acquire) == 0 ? "" : slot.device;
}

int NodeShared::process_of(int node_rank) const {
  const std::uint64_t space = slots_[world_.node_rank].process_space.load();
  return space != 0 && slots_[node_rank].process_space.load() == space ? slots_[node_rank].process.load() : 0;
}

int NodeShared::lost_rank() const {
  for (int other = 0; other < world_.node_size; ++other) {
    const Slot& slot = slots_[other];
    const int process = process_of(other);
    if (process == 0 || slot.told.load() != 0 || slot.has_message.load() != 0) continue;
    if (kill(process, 0) != 0 && errno == ESRCH) return world_.node_ranks[static_cast<std::size_t>(other)];
  }
  return -1;
}

bool NodeShared::is_stopped(int node_rank) const {
  std::ifstream file("/proc/" + std::to_string(process_of(node_rank)) + "/stat");
  std::string line;
  std::getline(file, line);
  // The state comes after the program's name, which may have blanks and brackets.
  const std::size_t end = line.rfind(')');
  return end != std::string::npos && line.compare(end, 3, ") T") == 0;
}

void NodeShared::leave_message(const char* kind, const char* text) {
  std::strncpy(mine().kind, kind, sizeof mine().kind - 1);
  std::strncpy(mine().message, text, sizeof mine().message - 1);
  mine().has_message.store(1, std::memory_order_release);
}

bool NodeShared::message_of(int node_rank, char* text, std::size_t length) const {
  const Slot& slot = slots_[node_rank];
  if (slot.has_message.load(std::memory_order_acquire) == 0) return false;
  std::snprintf(text, length, "%s", slot.message);
  return true;
}

}  // namespace fabricbench
