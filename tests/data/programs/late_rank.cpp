#include <mpi.h>
#include <cstdlib>
#include <ctime>

static int late(int result) {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == std::atoi(std::getenv("LATE_RANK"))) {
    timespec delay{0, DELAY_MS * 1000000L};
    nanosleep(&delay, nullptr);
  }
  return result;
}

extern "C" int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return late(PMPI_Allreduce(send, receive, count, type, op, comm));
}
extern "C" int MPI_Recv(void* data, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
  return late(PMPI_Recv(data, n, type, from, tag, comm, status));
}
