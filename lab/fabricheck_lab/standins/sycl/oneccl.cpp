// libccl: oneCCL's calls, each by the one of NCCL that does the same (ccl/calls.cpp).
#include <oneapi/ccl.hpp>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "ccl/api.hpp"
#include "ccl/communicator.hpp"
#include "core/runtime.hpp"

using emulation::ccl::Communicator;

extern "C" {
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclSend(const void*, std::size_t, ncclDataType_t, int, Communicator*, void*);
ncclResult_t ncclRecv(void*, std::size_t, ncclDataType_t, int, Communicator*, void*);
ncclResult_t ncclAllReduce(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, Communicator*, void*);
ncclResult_t ncclReduce(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, int, Communicator*, void*);
ncclResult_t ncclReduceScatter(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, Communicator*, void*);
ncclResult_t ncclAllGather(const void*, void*, std::size_t, ncclDataType_t, Communicator*, void*);
ncclResult_t ncclAllToAll(const void*, void*, std::size_t, ncclDataType_t, Communicator*, void*);
ncclResult_t ncclBcast(void*, std::size_t, ncclDataType_t, int, Communicator*, void*);
}

namespace ccl {
namespace {

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

event done(ncclResult_t result) {
  if (result != ncclSuccess) throw std::runtime_error("oneCCL: error " + std::to_string(result));
  return {};
}

ncclDataType_t type_of(datatype type) { return type == datatype::int8 ? ncclInt8 : ncclFloat32; }

Communicator* native(const communicator& communicator) { return static_cast<Communicator*>(communicator.native.get()); }

// The lines by which its log tells how data go, as oneCCL 2021.17 prints them.
void log_paths(const Communicator& communicator) {
  const std::string level = variable("CCL_LOG_LEVEL", "warn");
  if (communicator.rank != 0 || (level != "info" && level != "debug" && level != "trace")) return;
  const auto& near = communicator.placement.neighbours();
  const bool reach = std::all_of(near.begin(), near.end(),
                                 [&](int other) { return communicator.path_to(other) == emulation::ccl::Path::p2p; });
  std::printf("|CCL_INFO| emulated node: %s in miniature; no GPU is used\n", emulation::description().system.c_str());
  std::printf("|CCL_INFO| atl-%s:\n{\n}\n", variable("CCL_ATL_TRANSPORT", "mpi").c_str());
  std::printf("|CCL_INFO| topo_manager:\n{\n  comm_size: %d\n  single_node: %d\n  p2p_access: %d\n}\n",
              communicator.size, communicator.placement.nodes_count() == 1 ? 1 : 0, reach ? 1 : 0);
  std::fflush(stdout);
}

}  // namespace

library_version get_library_version() {
  const auto number = static_cast<unsigned>(emulation::version("ccl").integer());
  return {number / 10000, number / 100 % 100, number % 100};
}
void init() {}

shared_ptr_class<kvs> create_main_kvs() {
  const ncclUniqueId id = emulation::ccl::make_id();
  kvs::address_type address{};
  std::memcpy(address.data(), &id, sizeof id);
  return std::make_shared<kvs>(address);
}
shared_ptr_class<kvs> create_kvs(const kvs::address_type& address) { return std::make_shared<kvs>(address); }

communicator create_communicator(int size, int rank, const device& device, const context&,
                                 const shared_ptr_class<kvs>& store) {
  ncclUniqueId id{};
  const kvs::address_type address = store->get_address();
  std::memcpy(&id, address.data(), sizeof id);
  emulation::set_current(emulation::ordinal_of(device.native.tile()));
  Communicator* met = emulation::ccl::meet(id, size, rank);
  if (met == nullptr) throw std::runtime_error("oneCCL: the address is none of a key-value store");
  log_paths(*met);
  return {std::shared_ptr<void>(met, [](void* known) { emulation::ccl::leave(static_cast<Communicator*>(known)); })};
}

void group_start() { done(ncclGroupStart()); }
void group_end() { done(ncclGroupEnd()); }
event send(const void* data, std::size_t count, datatype type, int peer, const communicator& all, const stream& on) {
  return done(ncclSend(data, count, type_of(type), peer, native(all), on.native.stream()));
}
event recv(void* data, std::size_t count, datatype type, int peer, const communicator& all, const stream& on) {
  return done(ncclRecv(data, count, type_of(type), peer, native(all), on.native.stream()));
}
event allreduce(const void* send, void* receive, std::size_t count, datatype type, reduction, const communicator& all,
                const stream& on) {
  return done(ncclAllReduce(send, receive, count, type_of(type), ncclSum, native(all), on.native.stream()));
}
event reduce(const void* send, void* receive, std::size_t count, datatype type, reduction, int root,
             const communicator& all, const stream& on) {
  return done(ncclReduce(send, receive, count, type_of(type), ncclSum, root, native(all), on.native.stream()));
}
event reduce_scatter(const void* send, void* receive, std::size_t count, datatype type, reduction,
                     const communicator& all, const stream& on) {
  return done(ncclReduceScatter(send, receive, count, type_of(type), ncclSum, native(all), on.native.stream()));
}
event allgather(const void* send, void* receive, std::size_t count, datatype type, const communicator& all,
                const stream& on) {
  return done(ncclAllGather(send, receive, count, type_of(type), native(all), on.native.stream()));
}
event alltoall(const void* send, void* receive, std::size_t count, datatype type, const communicator& all,
               const stream& on) {
  return done(ncclAllToAll(send, receive, count, type_of(type), native(all), on.native.stream()));
}
event broadcast(void* data, std::size_t count, datatype type, int root, const communicator& all, const stream& on) {
  return done(ncclBcast(data, count, type_of(type), root, native(all), on.native.stream()));
}

}  // namespace ccl
