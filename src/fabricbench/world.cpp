#include "fabricbench/world.hpp"

#include <sched.h>

#include <algorithm>

#include "fabricbench/cores.hpp"
#include "fabricbench/device/device.hpp"
#include "fabricbench/environment.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {

void mpi_check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw RunError("library", std::string(call) + " failed: " + text);
}

World::World() {
  mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Comm_rank(all, &rank);
  MPI_Comm_size(all, &size);
  // Not MPI_Comm_split_type: MPICH with MPIR_CVAR_NOLOCAL, which its CUDA transport needs, says that each rank is
  // alone.
  const std::vector<std::string> nodes = gather_strings(node_identity(), all);
  const auto first = std::find(nodes.begin(), nodes.end(), nodes[static_cast<std::size_t>(rank)]) - nodes.begin();
  mpi_check(MPI_Comm_split(all, static_cast<int>(first), rank, &node), "MPI_Comm_split");
  MPI_Comm_rank(node, &node_rank);
  MPI_Comm_size(node, &node_size);
  mpi_check(MPI_Comm_split(all, node_rank == 0 ? 0 : MPI_UNDEFINED, rank, &leaders), "MPI_Comm_split");
  if (node_rank == 0) MPI_Comm_size(leaders, &node_count);
  mpi_check(MPI_Bcast(&node_count, 1, MPI_INT, 0, node), "MPI_Bcast");
  node_ranks.resize(static_cast<std::size_t>(node_size));
  mpi_check(MPI_Allgather(&rank, 1, MPI_INT, node_ranks.data(), 1, MPI_INT, node), "MPI_Allgather");
  first_on_node.resize(static_cast<std::size_t>(size));
  mpi_check(MPI_Allgather(&node_ranks.front(), 1, MPI_INT, first_on_node.data(), 1, MPI_INT, all), "MPI_Allgather");
  std::vector<std::vector<int>> allowed;
  for (const std::string& cpus : gather_strings(format_ranges(allowed_cpus()), node))
    allowed.push_back(parse_ranges(cpus));
  shares_cores = !have_a_core_each(allowed);
  const std::vector<std::vector<int>> ranks = allowed;
  allowed.insert(allowed.end(), ranks.begin(), ranks.end());
  lacks_cores = device::present() && node_count > 1 && !have_a_core_each(allowed);
}

void World::complete(MPI_Request request) const {
  if (!lacks_cores) return mpi_check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  for (int done = 0; done == 0;) {
    mpi_check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) sched_yield();
  }
}

void World::barrier(MPI_Comm ranks) const {
  if (!lacks_cores) return mpi_check(MPI_Barrier(ranks), "MPI_Barrier");
  MPI_Request done = MPI_REQUEST_NULL;
  mpi_check(MPI_Ibarrier(ranks, &done), "MPI_Ibarrier");
  complete(done);
}

bool World::on_this_node(int world_rank) const {
  return first_on_node[static_cast<std::size_t>(world_rank)] == node_ranks.front();
}

bool World::on_one_node(const std::vector<int>& ranks) const {
  const auto node_of = [&](int other) { return first_on_node[static_cast<std::size_t>(other)]; };
  return std::all_of(ranks.begin(), ranks.end(), [&](int other) { return node_of(other) == node_of(ranks.front()); });
}

int World::node_rank_of(int world_rank) const {
  return static_cast<int>(std::find(node_ranks.begin(), node_ranks.end(), world_rank) - node_ranks.begin());
}

std::string World::from_first(const std::string& mine) const {
  std::string text = mine;
  auto length = static_cast<std::int64_t>(text.size());
  mpi_check(MPI_Bcast(&length, 1, MPI_INT64_T, 0, all), "MPI_Bcast");
  text.resize(static_cast<std::size_t>(length));
  mpi_check(MPI_Bcast(text.data(), static_cast<int>(length), MPI_CHAR, 0, all), "MPI_Bcast");
  return text;
}

namespace {

std::vector<std::string> cut(const std::string& joined, const std::vector<int>& lengths) {
  std::vector<std::string> result;
  std::size_t start = 0;
  for (const int length : lengths) {
    result.push_back(joined.substr(start, static_cast<std::size_t>(length)));
    start += static_cast<std::size_t>(length);
  }
  return result;
}

std::vector<int> starts_of(const std::vector<int>& lengths) {
  std::vector<int> starts(lengths.size(), 0);
  for (std::size_t i = 1; i < lengths.size(); ++i) starts[i] = starts[i - 1] + lengths[i - 1];
  return starts;
}

}  // namespace

std::vector<std::string> World::strings_at_first(const std::string& mine) const {
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(rank == 0 ? static_cast<std::size_t>(size) : 0);
  mpi_check(MPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, all), "MPI_Gather");
  const std::vector<int> starts = starts_of(lengths);
  std::string joined(rank == 0 ? static_cast<std::size_t>(starts.back() + lengths.back()) : 0, '\0');
  mpi_check(MPI_Gatherv(mine.data(), length, MPI_CHAR, joined.data(), lengths.data(), starts.data(), MPI_CHAR, 0, all),
            "MPI_Gatherv");
  return cut(joined, lengths);
}

std::string World::first_said(const std::string& mine) const {
  const std::vector<std::string> said = strings_at_first(mine);
  const auto first = std::find_if(said.begin(), said.end(), [](const std::string& text) { return !text.empty(); });
  return from_first(first != said.end() ? *first : "");
}

std::vector<std::string> World::gather_strings(const std::string& mine, MPI_Comm ranks) {
  int size = 0;
  mpi_check(MPI_Comm_size(ranks, &size), "MPI_Comm_size");
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(static_cast<std::size_t>(size));
  mpi_check(MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, ranks), "MPI_Allgather");
  const std::vector<int> starts = starts_of(lengths);
  std::string joined(static_cast<std::size_t>(starts.back() + lengths.back()), '\0');
  mpi_check(
      MPI_Allgatherv(mine.data(), length, MPI_CHAR, joined.data(), lengths.data(), starts.data(), MPI_CHAR, ranks),
      "MPI_Allgatherv");
  return cut(joined, lengths);
}

Members::Members(const World& world, const std::vector<int>& group)
    : communicator(world.all),
      rank(world.rank),
      size(world.size),
      all(group.empty() || group.size() == static_cast<std::size_t>(world.size)),
      ranks_(group) {
  if (all) return;
  rank = place_of(world.rank);
  size = static_cast<int>(group.size());
  mpi_check(MPI_Comm_split(world.all, group.front(), world.rank, &communicator), "MPI_Comm_split");
}

Members::~Members() {
  if (!all) MPI_Comm_free(&communicator);
}

int Members::place_of(int world_rank) const {
  if (all) return world_rank;
  return static_cast<int>(std::lower_bound(ranks_.begin(), ranks_.end(), world_rank) - ranks_.begin());
}

}  // namespace fabricbench
