// The ranks of this run, and how calls to MPI fail.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fabricbench {

// Throws RunError where an MPI call did not succeed.
void mpi_check(int result, const char* call);

struct World {
  World();

  int rank = 0;
  int size = 1;
  MPI_Comm all = MPI_COMM_WORLD;
  MPI_Comm node = MPI_COMM_NULL;     // the ranks that share memory with this one
  MPI_Comm leaders = MPI_COMM_NULL;  // the first rank of each node; MPI_COMM_NULL elsewhere
  int node_rank = 0;
  int node_size = 1;
  int node_count = 1;
  std::vector<int> node_ranks;     // world ranks of this node
  std::vector<int> first_on_node;  // of each rank the node, by the first rank there
  bool shares_cores = false;       // some ranks of this node have to share a core
  // A rank of this node has no core for the threads with which libraries send what lies on its GPU to other nodes. So
  // it gives up its own while it waits.
  bool lacks_cores = false;
  // Waits as `lacks_cores` says. Throws RunError where MPI fails.
  void complete(MPI_Request request) const;
  void barrier(MPI_Comm ranks) const;
  bool on_this_node(int world_rank) const;
  // Whether these ranks are on the same node, this one or another.
  bool on_one_node(const std::vector<int>& ranks) const;
  // The place of a rank of this node among those of the node.
  int node_rank_of(int world_rank) const;

  // The string of rank 0, on every rank.
  std::string from_first(const std::string& mine) const;

  // One string of every rank, in rank order, on rank 0; nothing on the others, of which there may be thousands.
  std::vector<std::string> strings_at_first(const std::string& mine) const;

  // The first of these that is not empty, on every rank; empty where all are.
  std::string first_said(const std::string& mine) const;

  // One string of every rank of `ranks`, on each of them.
  static std::vector<std::string> gather_strings(const std::string& mine, MPI_Comm ranks);
};

// The ranks with which this one has collectives: those of a group, or all of the world.
struct Members {
  // All ranks of the world call it. `group` is in ascending order; empty: all.
  Members(const World& world, const std::vector<int>& group);
  ~Members();
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  MPI_Comm communicator;
  int rank;  // of this one among them
  int size;
  bool all;
  // The place of a rank of the world among them.
  int place_of(int world_rank) const;
  // The first of them, in the world.
  int first() const { return all ? 0 : ranks_.front(); }

 private:
  std::vector<int> ranks_;
};

}  // namespace fabricbench
