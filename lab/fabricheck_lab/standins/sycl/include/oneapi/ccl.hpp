// oneCCL's C++ interface, as far as the ccl transport of the sycl backend uses it (uxlfoundation/oneCCL,
// include/oneapi).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <sycl/sycl.hpp>

namespace ccl {

enum class datatype { int8, float32 };
enum class reduction { sum };

struct library_version {
  unsigned major;
  unsigned minor;
  unsigned update;
};
library_version get_library_version();
void init();

template <typename Type>
using shared_ptr_class = std::shared_ptr<Type>;

class kvs {
 public:
  using address_type = std::array<char, 256>;
  explicit kvs(const address_type& address) : address_(address) {}
  address_type get_address() const { return address_; }

 private:
  address_type address_;
};
shared_ptr_class<kvs> create_main_kvs();
shared_ptr_class<kvs> create_kvs(const kvs::address_type& address);

struct device {
  sycl::device native;
};
struct context {};
inline device create_device(const sycl::device& native) { return {native}; }
inline context create_context(const sycl::context&) { return {}; }

struct stream {
  sycl::queue native;
};
inline stream create_stream(const sycl::queue& native) { return {native}; }

struct communicator {
  std::shared_ptr<void> native;
};
communicator create_communicator(int size, int rank, const device&, const context&, const shared_ptr_class<kvs>&);

// The host's part in an operation ends with the call; the rest is of the stream.
struct event {
  bool wait() { return true; }
};

void group_start();
void group_end();
event send(const void* data, std::size_t count, datatype, int peer, const communicator&, const stream&);
event recv(void* data, std::size_t count, datatype, int peer, const communicator&, const stream&);
event allreduce(const void* send, void* receive, std::size_t count, datatype, reduction, const communicator&,
                const stream&);
event reduce(const void* send, void* receive, std::size_t count, datatype, reduction, int root, const communicator&,
             const stream&);
event reduce_scatter(const void* send, void* receive, std::size_t count, datatype, reduction, const communicator&,
                     const stream&);
event allgather(const void* send, void* receive, std::size_t count, datatype, const communicator&, const stream&);
event alltoall(const void* send, void* receive, std::size_t count, datatype, const communicator&, const stream&);
event broadcast(void* data, std::size_t count, datatype, int root, const communicator&, const stream&);

}  // namespace ccl
