#include <mpi.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>

extern "C" int MPI_Gatherv(const void* send, int n, MPI_Datatype type, void* receive, const int counts[],
                           const int places[], MPI_Datatype types, int root, MPI_Comm comm) {
  static bool waited = false;
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int seconds = std::atoi(std::getenv("SLOW_S"));
  if (rank == 1 && !waited && seconds < 0) raise(SIGSTOP);
  if (rank == 1 && !waited && seconds > 0) sleep(seconds);
  waited = true;
  return PMPI_Gatherv(send, n, type, receive, counts, places, types, root, comm);
}
