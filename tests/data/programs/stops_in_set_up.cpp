#include <mpi.h>
#include <csignal>

extern "C" int MPI_Gatherv(const void* send, int n, MPI_Datatype type, void* receive, const int counts[],
                           const int places[], MPI_Datatype types, int root, MPI_Comm comm) {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 1) raise(SIGSTOP);
  return PMPI_Gatherv(send, n, type, receive, counts, places, types, root, comm);
}
