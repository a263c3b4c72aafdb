// How often the device and the MPI library are called, by stand-ins that count: what costs a call for each message
// shows in no result at two ranks, and in all of them at 512.
#include <cstring>
#include <vector>

#include "check.hpp"
#include "fabricbench/device/content.hpp"
#include "fabricbench/transports/mpi_steps.hpp"
#include "fabricbench/verify.hpp"

namespace {

struct Calls {
  int allocations = 0;
  int synchronisations = 0;
  int copies = 0;
  int checks = 0;
  int waits = 0;
  int outstanding = 0;       // messages that were begun and not waited for
  int most_outstanding = 0;  // when a wait began
  int answers = 0;           // messages without data

  int of_device() const { return allocations + synchronisations + copies + checks; }
};
Calls calls;

int begin_message(MPI_Request* request) {
  ++calls.outstanding;
  *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}

int whole_message(int count) {
  if (count == 0) ++calls.answers;
  if (count != 0) ++calls.waits;
  return MPI_SUCCESS;
}

}  // namespace

extern "C" {
int MPI_Isend(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request* request) {
  return begin_message(request);
}
int MPI_Irecv(void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request* request) { return begin_message(request); }
int MPI_Waitall(int, MPI_Request*, MPI_Status*) {
  ++calls.waits;
  calls.most_outstanding = std::max(calls.most_outstanding, std::exchange(calls.outstanding, 0));
  return MPI_SUCCESS;
}
// Of one rank.
int MPI_Allreduce(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm) { return MPI_SUCCESS; }
int MPI_Send(const void*, int count, MPI_Datatype, int, int, MPI_Comm) { return whole_message(count); }
int MPI_Recv(void*, int count, MPI_Datatype, int, int, MPI_Comm, MPI_Status*) { return whole_message(count); }
}

namespace fabricbench {

void mpi_check(int, const char*) {}
std::int64_t now_ns() { return 0; }
World::World() = default;
Members::Members(const World&, const std::vector<int>&) : communicator(MPI_COMM_NULL), rank(0), size(1), all(true) {}
Members::~Members() = default;
NodeShared::NodeShared(const World& world) : world_(world) {}
NodeShared::~NodeShared() = default;
std::unique_ptr<Transport> make_cores() { return nullptr; }
std::unique_ptr<Transport> make_fabric(const std::string&, bool) { return nullptr; }

namespace device {

bool present() { return false; }
Memory::Memory(std::size_t bytes)
    : data_(bytes == 0 ? nullptr : new std::byte[bytes]()), release_([](std::byte* data) { delete[] data; }) {
  ++calls.allocations;
}
HostMemory::~HostMemory() = default;
Stream::Stream() = default;
Stream::~Stream() = default;
void Stream::copy(void* destination, const void* source, std::size_t bytes) {
  ++calls.copies;
  std::memcpy(destination, source, bytes);
}
void Stream::fill(const pattern::Stretch& stretch, const pattern::Pattern& pattern, Content content, bool inverted,
                  bool stamps_only) {
  fill_on_host(stretch, pattern, content, inverted, stamps_only);
}
void Stream::set_byte(void* destination, std::size_t bytes, int value) { std::memset(destination, value, bytes); }
void Stream::synchronize() { ++calls.synchronisations; }
void Stream::count_wrong(const pattern::Check& check, std::size_t, std::uint64_t* total) {
  ++calls.checks;
  *total += count_wrong_on_host(check);
}

}  // namespace device
}  // namespace fabricbench

using namespace fabricbench;

namespace {

const pattern::Ring kOneSlot;

// Rank 0 of a run of `ranks`, with buffers for `bytes`.
struct Rank {
  Rank(int ranks, std::uint64_t bytes) : send(bytes), receive(bytes), buffer_bytes(bytes) { world.size = ranks; }
  Context context(bool in_place = false) {
    return {world,
            members,
            shared,
            stream,
            send,
            in_place ? send : receive,
            buffer_bytes,
            host,
            host,
            device::HostKind::pageable,
            Access::write,
            true,
            DataType::float32};
  }

  World world;
  Members members{world, {}};
  NodeShared shared{world};
  device::Stream stream;
  device::Memory send;
  device::Memory receive;
  device::HostMemory host;
  std::uint64_t buffer_bytes;
};

// Those of the device for the stamps and the checks of ten iterations of an alltoall.
Calls calls_of_checks(int ranks) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(ranks) * 1024;
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
  Rank rank(ranks, bytes);
  const Context context = rank.context();
  const Group group{all, transfers(Operation::alltoall, all, bytes, {}, 0)};
  const Measurement measurement{
      Operation::alltoall, Implementation::transfers, Schedule::uncontended, -1, bytes, {group}, {}, {}, 0};
  Verifier verifier(context, measurement, &group, kOneSlot);
  verifier.fill();
  calls = {};
  for (int i = 0; i < 10; ++i) {
    verifier.stamp(i == 9);
    verifier.check(i == 9);
  }
  const Calls counted = calls;
  // Of an alltoall that did not happen.
  CHECK(verifier.wrong_bytes() >= bytes);
  return counted;
}

}  // namespace

TEST(a_check_is_as_many_calls_of_the_device_for_many_ranks_as_for_few) {
  const Calls of_many = calls_of_checks(64);
  CHECK_EQUAL(of_many.of_device(), calls_of_checks(2).of_device());
  CHECK_EQUAL(of_many.allocations, 0);
  CHECK_EQUAL(of_many.checks, 10);
}

// Those that are found wrong of a collective in place of rank 1 of `ranks` that does not happen, in the second
// iteration.
std::uint64_t wrong_in_place(Operation operation, int ranks, std::uint64_t bytes) {
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
  Rank rank(ranks, bytes);
  rank.world.rank = 1;
  const Context context = rank.context(true);
  const Group group{all, in_place(transfers(operation, all, bytes, {}, 1), operation)};
  const Measurement measurement{operation, Implementation::library, Schedule::uncontended, -1, bytes, {group}, {}, {},
                                0};
  Verifier verifier(context, measurement, &group, kOneSlot);
  verifier.fill();
  // The result of the iteration before, as it would be taken for that of the next one.
  verifier.stamp(false);
  verifier.stamp(false);
  verifier.check(true);
  return verifier.wrong_bytes();
}

TEST(in_place_what_does_not_happen_is_wrong_in_every_byte_but_the_own_ones) {
  CHECK_EQUAL(wrong_in_place(Operation::allgather, 4, 4096), 3072u);
}

TEST(in_place_a_reduction_that_does_not_happen_leaves_wrong_sums) {
  // Half of the bytes of such floats are zeros, in each of them and in their sum.
  CHECK(wrong_in_place(Operation::allreduce, 4, 4096) > 1024);
  CHECK(wrong_in_place(Operation::reduce_scatter, 4, 4096) > 256);
}

// Of what a rank sends to itself so many stamps arrive, and nothing else.
void bring_stamps(const Context& context, std::uint64_t stamps) {
  for (std::uint64_t at = 0; at < stamps * pattern::kLongestStride; at += pattern::kLongestStride)
    std::memcpy(context.receive.data() + at, context.send.data() + at, 8);
}

TEST(of_a_read_the_stamps_that_arrived_show_whether_it_happened) {
  const std::uint64_t bytes = 4 * pattern::kLongestStride;
  Rank rank(1, bytes);
  const Context context = rank.context();
  const Group group{{0}, {{{0, 0, bytes}}}};
  const Measurement measurement{
      Operation::host_read, Implementation::transfers, Schedule::uncontended, -1, bytes, {group}, {}, {}, 0};
  for (const std::uint64_t stamps : {std::uint64_t{4}, std::uint64_t{3}}) {
    Verifier verifier(context, measurement, &group, kOneSlot);
    verifier.fill();
    verifier.stamp(true);
    bring_stamps(context, stamps);
    verifier.check(true);
    CHECK_EQUAL(verifier.wrong_bytes() > 0, stamps < 4);
  }
}

TEST(where_every_byte_is_looked_at_every_byte_has_to_arrive) {
  const std::uint64_t bytes = 4 * pattern::kLongestStride;
  Rank rank(1, bytes);
  const Context context = rank.context();
  const Group group{{0}, {{{0, 0, bytes}}}};
  const Measurement measurement{
      Operation::local_copy, Implementation::transfers, Schedule::uncontended, -1, bytes, {group}, {}, {}, 0};
  Verifier verifier(context, measurement, &group, kOneSlot);
  verifier.fill();
  for (int i = 0; i < 20; ++i) {
    verifier.stamp(i % 3 == 0);
    std::memcpy(context.receive.data(), context.send.data(), bytes);
    verifier.check(i % 3 == 0);
  }
  verifier.ns_of_all_bytes();
  CHECK_EQUAL(verifier.wrong_bytes(), 0u);
  // Of the next iteration the stamps alone arrive.
  verifier.stamp(true);
  bring_stamps(context, bytes / pattern::kLongestStride);
  verifier.check(true);
  // One byte of 256 is as it was spoilt.
  CHECK(verifier.wrong_bytes() > bytes / 100 * 99);
}

TEST(every_byte_is_looked_at_as_often_as_it_may_take_and_without_a_period) {
  const Rank rank(1, 8);
  FullChecks checks;
  int before = 0;
  for (int i = 0; i < 10000; ++i) before += checks.draw() ? 1 : 0;
  CHECK_EQUAL(before, 0);
  // A look takes as long as 1.5 iterations.
  checks.share_out(1500, 1000, rank.world);
  CHECK_EQUAL(checks.each(), 75);
  std::vector<int> drawn;
  for (int i = 0; i < 10000; ++i) {
    if (checks.draw()) drawn.push_back(i);
  }
  CHECK(drawn.size() > 85 && drawn.size() < 182);
  // A fault that comes each `period`th time is seen.
  for (int period = 2; period <= 20; ++period) {
    int seen = 0;
    for (const int i : drawn) seen += i % period == 0 ? 1 : 0;
    CHECK(seen > 0);
  }
}

TEST(a_window_has_all_its_messages_outstanding_before_it_waits) {
  for (const int source : {0, 1}) {
    Rank rank(2, 4096);
    const Context context = rank.context();
    MpiStep step({{source, 1 - source, 8}}, context, context.send.data(), context.receive.data());
    calls = {};
    step.run_window({64, 1, 0, 0});
    CHECK_EQUAL(calls.most_outstanding, 64);
    CHECK_EQUAL(calls.waits, 1);
    CHECK_EQUAL(calls.answers, 1);
    CHECK_EQUAL(calls.outstanding, 0);
  }
}
