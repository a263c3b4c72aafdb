// What *CCL finds between nodes: the NIC of each GPU, which is an interface of the node, and sockets over it.
#pragma once

#include <netinet/in.h>

#include <string>

#include "ccl/communicator.hpp"
#include "core/description.hpp"

namespace emulation::ccl {

// An address of an interface; port 0.
sockaddr_in listening_address(const std::string& interface);
// Listens there; the address gets its port.
int listen_at(sockaddr_in& address);
// A connection from an interface's address (null: any); -1 where nobody listens.
int connect_to(const sockaddr_in& address, const sockaddr_in* from);
std::string text_of(const sockaddr_in& address);

// The interface over which ranks meet: by NCCL_SOCKET_IFNAME, else the first that is up.
std::string bootstrap_interface();
// The interface of a GPU's NIC where the network is not Socket.
std::string data_interface(const Gpu& gpu);
int nic_number(const Gpu& gpu);

// IB, OFI or Socket.
std::string network_kind();
// Whether NIC and GPU reach each other's memory.
bool has_gdr(const Gpu& gpu);
// The GPU of this node over whose NIC data for a peer leave: on rails that nothing joins one on the peer's rail, which
// has them from this rank's GPU (PXN). Else this rank's own.
const Gpu& leaving_gpu(const Communicator& communicator, int peer);
// "NET/IB/0/GDRDMA": the way of that GPU's data to other nodes.
std::string network_path(const Communicator& communicator, const Gpu& gpu);
void log_network(int device);

}  // namespace emulation::ccl
