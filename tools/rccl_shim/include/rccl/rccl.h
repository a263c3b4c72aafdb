#pragma once
#include <nccl.h>

// The one call used here that RCCL has under a name of its own (rccl.h, ncclAllToAll).
extern "C" ncclResult_t ncclAllToAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                     ncclComm_t comm, hipStream_t stream);
