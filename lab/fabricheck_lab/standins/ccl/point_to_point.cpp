#include <algorithm>
#include <memory>

#include "ccl/meeting.hpp"
#include "ccl/network.hpp"
#include "ccl/operations.hpp"
#include "core/description.hpp"
#include "core/prompt.hpp"

namespace emulation::ccl {
namespace {

// A transfer of this rank with one of its own node.
struct Near {
  Channel* channel;
  std::uint32_t number;
  PointToPoint what;
};

struct Group {
  std::vector<Near> near;
  std::vector<Message> sent;
  std::vector<Message> received;
  TaskId held = kNoTask;  // waits for the data that go to and come from other nodes
};

Flow flow_of(const Communicator& communicator, int source, int destination, std::uint64_t bytes) {
  const int from = communicator.member(source).gpu;
  const int to = communicator.member(destination).gpu;
  const int other = source == communicator.rank ? destination : source;
  if (communicator.path_to(other) == Path::p2p) return flow_between(from, to, bytes, Mover::ccl);
  // Through the host's memory, in and out at the same time.
  const Description& node = description();
  Flow flow{8.0 * static_cast<double>(bytes), {}};
  add_route(flow, from, node.gpus[static_cast<std::size_t>(from)].host, Mover::ccl);
  add_route(flow, node.gpus[static_cast<std::size_t>(to)].host, to, Mover::ccl);
  return flow;
}

// What the NIC has to do with it; without GPUDirect RDMA it takes twice as long, by way of the host's memory.
Flow nic_flow(const Communicator& communicator, int peer, bool sends, std::uint64_t bytes) {
  const Description& node = description();
  const Gpu& own = node.gpus[static_cast<std::size_t>(communicator.self().gpu)];
  const Gpu& gpu = sends ? leaving_gpu(communicator, peer) : own;
  Flow flow{8.0 * static_cast<double>(bytes), {}};
  if (gpu.nic.empty()) return flow;
  if (gpu.vertex != own.vertex) add_route(flow, own.vertex, gpu.vertex, Mover::ccl);
  const int nic = node.vertex(gpu.nic);
  add_route(flow, sends ? gpu.vertex : nic, sends ? nic : gpu.vertex, Mover::ccl, has_gdr(gpu) ? 1.0 : 2.0);
  return flow;
}

void post_near(Timeline::Change& change, Communicator& communicator, const PointToPoint& each, TaskId begin, TaskId end,
               Group& group) {
  const int own = communicator.rank;
  const int source = each.sends ? own : each.peer;
  const int destination = each.sends ? each.peer : own;
  Channel& pair = channel(communicator, source, destination);
  std::uint32_t& mine = each.sends ? pair.posted_sends : pair.posted_receives;
  const std::uint32_t others = each.sends ? pair.posted_receives : pair.posted_sends;
  const std::uint32_t number = mine++;
  const std::uint32_t slot = number % kDepth;
  if (each.sends) {
    pair.places[slot] = each.bytes > 0 ? place_of_buffer(each.data) : Place{};
    pair.bytes[slot] = each.bytes;
  }
  if (others <= number) {
    const Flow flow = flow_of(communicator, source, destination, each.bytes);
    pair.flows[slot] = change.task({begin}, 0, &flow, 1);
    change.join(pair.flows[slot], end);
  } else {
    change.join(begin, pair.flows[slot]);
    change.join(pair.flows[slot], end);
    change.release(pair.flows[slot]);
  }
  group.near.push_back({&pair, number, each});
}

void move(Communicator& communicator, const Group& group) {
  const Prompt prompt;
  for (const Near& each : group.near) {
    if (!each.what.sends) continue;
    // The data of earlier sends have gone, since operations of a stream follow one another.
    post(each.channel->ready, each.number + 1);
  }
  for (const Message& each : group.received) wrote(each.data, each.bytes);
  exchange(communicator, group.sent, group.received, [&] {
    for (const Near& each : group.near) {
      if (each.what.sends) continue;
      await(each.channel->ready, each.number + 1);
      const std::uint32_t slot = each.number % kDepth;
      const std::size_t bytes = std::min<std::size_t>(each.what.bytes, each.channel->bytes[slot]);
      if (bytes > 0) move_bytes(each.what.data, map_place(each.channel->places[slot]), bytes);
      post(each.channel->consumed, each.number + 1);
    }
  });
  for (const Near& each : group.near) {
    if (each.what.sends) await(each.channel->consumed, each.number + 1);
  }
  if (group.held == kNoTask) return;
  Timeline::Change change(Timeline::of_node());
  change.unhold(group.held);
}

}  // namespace

void enqueue_group(Communicator& communicator, Stream& stream, const std::vector<PointToPoint>& transfers) {
  auto group = std::make_shared<Group>();
  std::vector<PointToPoint> near;
  std::vector<Flow> far;
  for (const PointToPoint& each : transfers) {
    communicator.log_path(each.peer, each.sends);
    if (communicator.path_to(each.peer) != Path::net) {
      near.push_back(each);
      // No more than a channel holds may be under way.
      std::uint32_t& count =
          (each.sends ? communicator.sent : communicator.received)[static_cast<std::size_t>(each.peer)];
      if (++count % (kDepth / 2) == 0) stream.move_all();
      continue;
    }
    (each.sends ? group->sent : group->received).push_back({each.peer, each.data, each.bytes});
    far.push_back(nic_flow(communicator, each.peer, each.sends, each.bytes));
  }
  const std::int64_t latency = description().latency_ns[static_cast<std::size_t>(Mover::ccl)];
  stream.enqueue(
      [&](Timeline::Change& change, TaskId before) {
        const TaskId begin = change.task({before}, latency);
        std::vector<TaskId> parts{begin};
        for (const Flow& flow : far) parts.push_back(change.task({begin}, 0, &flow));
        const int holds = static_cast<int>(near.size()) + (far.empty() ? 0 : 1);
        const TaskId end = change.task(parts, 0, nullptr, holds);
        for (const PointToPoint& each : near) post_near(change, communicator, each, begin, end, *group);
        for (const TaskId part : parts) change.release(part);
        if (!far.empty()) group->held = end;
        return end;
      },
      [&communicator, group] { move(communicator, *group); });
}

}  // namespace emulation::ccl
