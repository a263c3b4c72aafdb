// What a rank takes at most, for benchmarks/rank_memory.py:
//
// rank_memory FILE RANKS_OF_A_NODE COMMAND...   as each rank of an MPI program: runs COMMAND on a node of its own for
// so
//                                               many ranks, and appends a line to FILE: the most memory it had, in KiB
// rank_memory bare PAIRS BYTES                  an MPI program that does what fabricbench has MPI do, and nothing else:
//                                               with PAIRS all, each rank has messages of BYTES with each other one
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

int bare(bool all_pairs, int bytes) {
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  // The communicators of fabricbench: the ranks of a node, and the first of each.
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  int node = 0;
  for (const char* each = host; *each != '\0'; ++each) node = (node * 31 + *each) & 0x7fffffff;
  MPI_Comm of_node = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, node, rank, &of_node);
  int node_rank = 0;
  MPI_Comm_rank(of_node, &node_rank);
  MPI_Comm leaders = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, node_rank == 0 ? 0 : MPI_UNDEFINED, rank, &leaders);
  const auto length = static_cast<std::size_t>(bytes);
  std::vector<float> send(length / sizeof(float));
  std::vector<float> receive(length / sizeof(float));
  const int partners = all_pairs ? size - 1 : 1;
  for (int away = 1; away <= partners; ++away) {
    const int to = (rank + away) % size;
    const int from = (rank + size - away) % size;
    MPI_Sendrecv(send.data(), bytes, MPI_BYTE, to, 1, receive.data(), bytes, MPI_BYTE, from, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  }
  if (all_pairs)
    MPI_Alltoall(send.data(), bytes / size, MPI_BYTE, receive.data(), bytes / size, MPI_BYTE, MPI_COMM_WORLD);
  MPI_Allreduce(send.data(), receive.data(), static_cast<int>(send.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Gather(send.data(), 1, MPI_FLOAT, receive.data(), 1, MPI_FLOAT, 0, MPI_COMM_WORLD);
  std::vector<int> lengths(static_cast<std::size_t>(size), 256);
  std::vector<int> starts(lengths.size());
  for (std::size_t each = 1; each < starts.size(); ++each) starts[each] = starts[each - 1] + 256;
  std::vector<char> text(256);
  std::vector<char> texts(rank == 0 ? 256 * lengths.size() : 0);
  MPI_Gatherv(text.data(), 256, MPI_CHAR, texts.data(), lengths.data(), starts.data(), MPI_CHAR, 0, MPI_COMM_WORLD);
  MPI_Bcast(send.data(), 1, MPI_FLOAT, 0, MPI_COMM_WORLD);
  if (node_rank == 0) MPI_Barrier(leaders);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}

// The launcher's own number of this rank.
int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

int measured(const char* file, int ranks_of_a_node, char** command) {
  const int rank = launched_rank();
  const pid_t child = fork();
  if (child == 0) {
    const std::string host = "nid" + std::to_string(rank / ranks_of_a_node);
    // As root; else all ranks are on one node.
    if (unshare(CLONE_NEWUTS) == 0 && sethostname(host.c_str(), host.size()) != 0) _exit(126);
    execv(command[0], command);
    _exit(127);
  }
  int status = 0;
  rusage used{};
  if (child < 0 || wait4(child, &status, 0, &used) != child) return 1;
  const std::string line = std::to_string(rank) + ' ' + std::to_string(used.ru_maxrss) + '\n';
  const int out = open(file, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (out < 0 || write(out, line.data(), line.size()) != static_cast<ssize_t>(line.size())) return 1;
  close(out);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 4 && std::strcmp(arguments[1], "bare") == 0)
    return bare(std::strcmp(arguments[2], "all") == 0, std::atoi(arguments[3]));
  if (count >= 4) return measured(arguments[1], std::atoi(arguments[2]), arguments + 3);
  std::fprintf(stderr, "rank_memory FILE RANKS_OF_A_NODE COMMAND... | rank_memory bare all|one BYTES\n");
  return 2;
}
