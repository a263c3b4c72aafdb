// Makes an MPI library of this machine GPU-aware on an emulated node: loaded before it, it takes the place of the calls
// that move messages (MPI's profiling interface). A message inside a node with a buffer in device memory takes the time
// that its route gives it, by the copy engine; between nodes the library itself moves it over the emulated NICs. The
// receiver knows both ends: the sender's place comes ahead of each message.
#include <mpi.h>

#include <map>
#include <vector>

#include "core/memory.hpp"
#include "core/runtime.hpp"
#include "core/timeline.hpp"

namespace {

using emulation::Timeline;

struct Expected {
  int place = -1;                        // of the sender's buffer, as it says
  MPI_Request ahead = MPI_REQUEST_NULL;  // of the message that says so; none where the sender is on another node
  int own_place = -1;
  void* buffer = nullptr;
  std::uint64_t bytes = 0;
};

struct Node {
  MPI_Comm ahead = MPI_COMM_NULL;  // for what comes ahead of messages
  std::vector<int> is_local;       // by rank of MPI_COMM_WORLD
  std::map<MPI_Request, Expected> expected;
};

Node& node() {
  static Node the_node;
  return the_node;
}

void find_neighbours() {
  Node& own = node();
  if (own.ahead != MPI_COMM_NULL) return;
  PMPI_Comm_dup(MPI_COMM_WORLD, &own.ahead);
  int size = 0;
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm shared = MPI_COMM_NULL;
  PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared);
  int local = 0;
  PMPI_Comm_size(shared, &local);
  MPI_Group world_group;
  MPI_Group shared_group;
  PMPI_Comm_group(MPI_COMM_WORLD, &world_group);
  PMPI_Comm_group(shared, &shared_group);
  std::vector<int> here(static_cast<std::size_t>(local));
  for (int rank = 0; rank < local; ++rank) here[static_cast<std::size_t>(rank)] = rank;
  std::vector<int> ranks(here.size());
  PMPI_Group_translate_ranks(shared_group, local, here.data(), world_group, ranks.data());
  own.is_local.assign(static_cast<std::size_t>(size), 0);
  for (const int rank : ranks) own.is_local[static_cast<std::size_t>(rank)] = 1;
  PMPI_Group_free(&world_group);
  PMPI_Group_free(&shared_group);
  PMPI_Comm_free(&shared);
}

// The rank in MPI_COMM_WORLD of a rank of `comm`; -1 for none.
int world_rank(MPI_Comm comm, int rank) {
  if (rank < 0) return -1;
  static std::map<MPI_Comm, std::vector<int>> known;
  std::vector<int>& ranks = known[comm];
  if (ranks.empty()) {
    int size = 0;
    PMPI_Comm_size(comm, &size);
    std::vector<int> all(static_cast<std::size_t>(size));
    for (int each = 0; each < size; ++each) all[static_cast<std::size_t>(each)] = each;
    MPI_Group one;
    MPI_Group world;
    PMPI_Comm_group(comm, &one);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    ranks.resize(all.size());
    PMPI_Group_translate_ranks(one, size, all.data(), world, ranks.data());
    PMPI_Group_free(&one);
    PMPI_Group_free(&world);
  }
  return ranks[static_cast<std::size_t>(rank)];
}

// The peer's rank in MPI_COMM_WORLD where it is another process of this node; else -1.
int neighbour(MPI_Comm comm, int rank) {
  const int world = world_rank(comm, rank);
  if (world < 0 || node().is_local.empty() || node().is_local[static_cast<std::size_t>(world)] == 0) return -1;
  return world;
}

int place_of(const void* buffer) {
  return emulation::place_of(buffer, emulation::description().gpus.empty() ? -1 : emulation::current_gpu().host);
}

bool is_device(int place) { return place >= 0 && place < static_cast<int>(emulation::description().gpus.size()); }

std::uint64_t bytes_of(int count, MPI_Datatype type) {
  int size = 0;
  PMPI_Type_size(type, &size);
  return static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(size);
}

// Begins to move a message over the links; kNoTask where no device has a part in it.
emulation::TaskId begin(const Expected& message) {
  if (!is_device(message.place) && !is_device(message.own_place)) return emulation::kNoTask;
  const emulation::Flow flow =
      emulation::flow_between(message.place, message.own_place, message.bytes, emulation::Mover::copy);
  Timeline::Change change(Timeline::of_node());
  return change.task({}, emulation::description().latency_ns[0], &flow);
}

void finish(emulation::TaskId task) {
  if (task == emulation::kNoTask) return;
  Timeline& timeline = Timeline::of_node();
  timeline.wait(task);
  Timeline::Change change(timeline);
  change.release(task);
}

void tell_place(const void* buffer, int world, int tag) {
  const int place = place_of(buffer);
  PMPI_Send(&place, 1, MPI_INT, world, tag, node().ahead);
}

}  // namespace

extern "C" {

int MPI_Init(int* argc, char*** argv) {
  const int result = PMPI_Init(argc, argv);
  if (result == MPI_SUCCESS) find_neighbours();
  return result;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int result = PMPI_Init_thread(argc, argv, required, provided);
  if (result == MPI_SUCCESS) find_neighbours();
  return result;
}

int MPI_Finalize() {
  if (node().ahead != MPI_COMM_NULL) PMPI_Comm_free(&node().ahead);
  return PMPI_Finalize();
}

int MPI_Send(const void* buffer, int count, MPI_Datatype type, int destination, int tag, MPI_Comm comm) {
  const int world = neighbour(comm, destination);
  if (world >= 0) tell_place(buffer, world, tag);
  return PMPI_Send(buffer, count, type, destination, tag, comm);
}

int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int destination, int tag, MPI_Comm comm,
              MPI_Request* request) {
  const int world = neighbour(comm, destination);
  if (world >= 0) tell_place(buffer, world, tag);
  return PMPI_Isend(buffer, count, type, destination, tag, comm, request);
}

int MPI_Recv(void* buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status* status) {
  const int world = neighbour(comm, source);
  if (world >= 0) {
    Expected message;
    message.own_place = place_of(buffer);
    message.bytes = bytes_of(count, type);
    PMPI_Recv(&message.place, 1, MPI_INT, world, tag, node().ahead, MPI_STATUS_IGNORE);
    finish(begin(message));
  }
  const int result = PMPI_Recv(buffer, count, type, source, tag, comm, status);
  emulation::wrote(buffer, bytes_of(count, type));
  return result;
}

int MPI_Irecv(void* buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request* request) {
  const int world = neighbour(comm, source);
  const int result = world < 0 ? PMPI_Irecv(buffer, count, type, source, tag, comm, request)
                               : PMPI_Recv_init(buffer, count, type, source, tag, comm, request);
  if (result != MPI_SUCCESS) return result;
  Expected& message = node().expected[*request];
  message.own_place = place_of(buffer);
  message.buffer = buffer;
  message.bytes = bytes_of(count, type);
  if (world < 0) return result;
  return PMPI_Irecv(&message.place, 1, MPI_INT, world, tag, node().ahead, &message.ahead);
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
  // Each message starts to move as soon as its sender has said where it lies; it is received when it has arrived.
  std::vector<Expected> received;
  std::vector<int> moving;  // of `requests`, beside `ahead`
  std::vector<MPI_Request> ahead;
  for (int i = 0; i < count; ++i) {
    const auto known = requests[i] == MPI_REQUEST_NULL ? node().expected.end() : node().expected.find(requests[i]);
    if (known == node().expected.end()) continue;
    received.push_back(known->second);
    if (known->second.ahead == MPI_REQUEST_NULL) {
      node().expected.erase(known);
      continue;
    }
    moving.push_back(i);
    ahead.push_back(known->second.ahead);
  }
  std::vector<emulation::TaskId> tasks(moving.size(), emulation::kNoTask);
  for (std::size_t told = 0; told < moving.size(); ++told) {
    int which = 0;
    PMPI_Waitany(static_cast<int>(ahead.size()), ahead.data(), &which, MPI_STATUS_IGNORE);
    const auto k = static_cast<std::size_t>(which);
    tasks[k] = begin(node().expected.at(requests[moving[k]]));
  }
  std::vector<MPI_Request> started;
  for (std::size_t k = 0; k < moving.size(); ++k) {
    finish(tasks[k]);
    MPI_Request& request = requests[moving[k]];
    started.push_back(request);
    PMPI_Start(&request);
  }
  const int result = PMPI_Waitall(count, requests, statuses);
  for (std::size_t k = 0; k < moving.size(); ++k) {
    node().expected.erase(started[k]);
    PMPI_Request_free(&started[k]);
    requests[moving[k]] = MPI_REQUEST_NULL;
  }
  for (const Expected& message : received) emulation::wrote(message.buffer, message.bytes);
  return result;
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) { return MPI_Waitall(1, request, status); }

// Of a message that has begun it waits for the rest, which the sender has sent already.
int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  const auto known = *request == MPI_REQUEST_NULL ? node().expected.end() : node().expected.find(*request);
  if (known == node().expected.end()) return PMPI_Test(request, flag, status);
  if (known->second.ahead != MPI_REQUEST_NULL) {
    const int result = PMPI_Request_get_status(known->second.ahead, flag, MPI_STATUS_IGNORE);
    return result != MPI_SUCCESS || *flag == 0 ? result : MPI_Wait(request, status);
  }
  const Expected message = known->second;
  const MPI_Request before = *request;
  const int result = PMPI_Test(request, flag, status);
  if (*flag != 0) {
    node().expected.erase(before);
    emulation::wrote(message.buffer, message.bytes);
  }
  return result;
}

}  // extern "C"
