#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "ccl/log.hpp"
#include "ccl/meeting.hpp"
#include "ccl/network.hpp"
#include "ccl/operations.hpp"
#include "core/description.hpp"
#include "core/ending.hpp"
#include "core/prompt.hpp"

namespace emulation::ccl {
namespace {

using Phase = std::vector<Flow>;

// What an operation is made of, in bytes.
struct Plan {
  Call call;
  std::size_t element;
  std::size_t total;  // of the buffer: of all ranks together for an allgather and a reduce_scatter
  std::uint32_t sequence;
  Gathering* gathering = nullptr;
  TaskId held = kNoTask;
};

// Part `index` of `parts` of a number of elements: begin and length in bytes.
struct Part {
  std::size_t begin;
  std::size_t bytes;
};
Part part_of(std::size_t bytes, std::size_t element, int parts, int index) {
  const std::size_t elements = bytes / element;
  const auto number = static_cast<std::size_t>(parts);
  const std::size_t begin = elements * static_cast<std::size_t>(index) / number * element;
  const std::size_t end = elements * static_cast<std::size_t>(index + 1) / number * element;
  return {begin, end - begin};
}

// Times: flows over the node's links ---------------------------------------------------------------------------------

int gpu_at(const Communicator& communicator, int local) {
  return communicator.member(communicator.placement.neighbours()[static_cast<std::size_t>(local)]).gpu;
}

Flow flow(const Communicator& communicator, int from, int to, double bytes) {
  return flow_between(gpu_at(communicator, from), gpu_at(communicator, to), static_cast<std::uint64_t>(bytes),
                      Mover::ccl);
}

// Every rank of the node to every other one. A root has its own share of what is sent (`out`) or received.
Phase all_pairs(const Communicator& communicator, double bytes) {
  Phase phase;
  const int ranks = communicator.placement.local_count();
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (from != to) phase.push_back(flow(communicator, from, to, bytes));
    }
  }
  return phase;
}

// The rings of the description, where this communicator has all its GPUs.
std::vector<std::vector<int>> rings(const Communicator& communicator) {
  std::vector<std::vector<int>> result;
  const int ranks = communicator.placement.local_count();
  for (const Json& ring : description().content["ccl"]["rings"].items()) {
    std::vector<int> order;
    for (const Json& each : ring.items()) {
      for (int local = 0; local < ranks; ++local) {
        if (gpu_at(communicator, local) == static_cast<int>(each.integer())) order.push_back(local);
      }
    }
    if (static_cast<int>(order.size()) == ranks && ranks == static_cast<int>(ring.items().size()))
      result.push_back(order);
  }
  return result;
}

// Both directions of each ring; none into `not_into` and none out of `not_from`.
Phase along_rings(const Communicator& communicator, const std::vector<std::vector<int>>& orders, double bytes,
                  int not_into = -1, int not_from = -1) {
  Phase phase;
  const double share = bytes / (2.0 * static_cast<double>(orders.size()));
  for (const auto& order : orders) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      const int ends[] = {order[i], order[(i + 1) % order.size()]};
      for (const auto& [from, to] : {std::pair(ends[0], ends[1]), std::pair(ends[1], ends[0])}) {
        if (to != not_into && from != not_from) phase.push_back(flow(communicator, from, to, share));
      }
    }
  }
  return phase;
}

// From the root to all, each of which passes its part on; or the other way round.
Phase from_root(const Communicator& communicator, double bytes, int root, bool reversed) {
  Phase phase;
  const int ranks = communicator.placement.local_count();
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (from == to || to == root) continue;
      const double part = bytes / (ranks - 1);
      phase.push_back(reversed ? flow(communicator, to, from, part) : flow(communicator, from, to, part));
    }
  }
  return phase;
}

std::vector<Phase> phases(const Communicator& communicator, const Plan& plan) {
  const int ranks = communicator.placement.local_count();
  if (ranks < 2) return {};
  const auto total = static_cast<double>(plan.total);
  const auto orders = rings(communicator);
  const double around = (ranks - 1.0) / ranks;
  const auto& near = communicator.placement.neighbours();
  const auto found = std::find(near.begin(), near.end(), plan.call.root);
  const int root = found == near.end() ? -1 : static_cast<int>(found - near.begin());
  switch (plan.call.kind) {
    case Collective::allreduce:
      if (!orders.empty()) return {along_rings(communicator, orders, 2 * around * total)};
      return {all_pairs(communicator, total / ranks), all_pairs(communicator, total / ranks)};
    case Collective::reduce_scatter:
    case Collective::allgather:
      if (!orders.empty()) return {along_rings(communicator, orders, around * total)};
      return {all_pairs(communicator, total / ranks)};
    case Collective::broadcast:
      if (root < 0) return {all_pairs(communicator, total / ranks)};
      if (!orders.empty()) return {along_rings(communicator, orders, total, root, -1)};
      return {from_root(communicator, total, root, false)};
    case Collective::reduce:
      if (root < 0) return {all_pairs(communicator, total / ranks)};
      if (!orders.empty()) return {along_rings(communicator, orders, total, -1, root)};
      return {from_root(communicator, total, root, true)};
  }
  return {};
}

// Adds the flows of all phases after `begun`; the task that ends with the last of them.
TaskId add_phases(Timeline::Change& change, const std::vector<Phase>& all, TaskId begun) {
  TaskId last = begun;
  for (const Phase& phase : all) {
    std::vector<TaskId> parts;
    for (const Flow& each : phase) parts.push_back(change.task({last}, 0, &each));
    const TaskId next = change.task(parts, 0);
    for (const TaskId part : parts) change.release(part);
    change.release(last);
    last = next;
  }
  return last;
}

// Data ---------------------------------------------------------------------------------------------------------------

void meet_all(const Communicator& communicator, Plan& plan, int when) {
  std::atomic<std::uint32_t>& arrived = plan.gathering->arrived[when];
  const auto ranks = static_cast<std::uint32_t>(communicator.placement.local_count());
  Timeline::wake(arrived);  // counts this one
  await(arrived, ranks);
}

char* mapped(const Place& place) { return static_cast<char*>(map_place(place)); }

// out = what all ranks of the node have at `begin` of their send buffers, combined.
void combine_near(const Communicator& communicator, const Plan& plan, char* out, std::size_t begin, std::size_t bytes) {
  if (bytes == 0) return;
  const int ranks = communicator.placement.local_count();
  std::vector<const char*> inputs;
  for (int local = 0; local < ranks; ++local) inputs.push_back(mapped(plan.gathering->send[local]) + begin);
  // Whatever of the inputs lies where the result goes is read first.
  std::stable_partition(inputs.begin(), inputs.end(), [&](const char* each) { return each == out; });
  const auto combine_part = [&](std::size_t at, std::size_t length) {
    char* to = out + at;
    if (inputs[0] != out) std::memcpy(to, inputs[0] + at, length);
    for (std::size_t i = 1; i < inputs.size(); ++i)
      combine(to, to, inputs[i] + at, length / plan.element, plan.call.type, plan.call.operation);
  };
  // Sums are made whole each time: stamps of a message lie where they like in a rank's part of it.
  wrote(out, bytes);
  combine_part(0, bytes);
}

// Sums of the nodes' sums: each node adds its part, and has the others' added parts where it wants them.
void combine_far(Communicator& communicator, const Plan& plan, char* data, std::size_t bytes, int only_node) {
  const Placement& where = communicator.placement;
  const int nodes = where.nodes_count();
  if (nodes < 2 || bytes == 0) return;
  wrote(data, bytes);
  const Part own = part_of(bytes, plan.element, nodes, where.node);
  std::vector<std::vector<char>> arriving;
  std::vector<Message> sent;
  std::vector<Message> received;
  for (int node = 0; node < nodes; ++node) {
    if (node == where.node) continue;
    const Part theirs = part_of(bytes, plan.element, nodes, node);
    sent.push_back({where.counterpart(node), data + theirs.begin, theirs.bytes});
    arriving.emplace_back(own.bytes);
    received.push_back({where.counterpart(node), nullptr, own.bytes});
  }
  for (std::size_t i = 0; i < received.size(); ++i) received[i].data = arriving[i].data();
  exchange(communicator, sent, received);
  for (const auto& each : arriving)
    combine(data + own.begin, data + own.begin, each.data(), own.bytes / plan.element, plan.call.type,
            plan.call.operation);
  sent.clear();
  received.clear();
  for (int node = 0; node < nodes; ++node) {
    if (node == where.node) continue;
    const Part theirs = part_of(bytes, plan.element, nodes, node);
    if (only_node < 0 || only_node == node) sent.push_back({where.counterpart(node), data + own.begin, own.bytes});
    if (only_node < 0 || only_node == where.node)
      received.push_back({where.counterpart(node), data + theirs.begin, theirs.bytes});
  }
  exchange(communicator, sent, received);
}

void move_reduction(Communicator& communicator, Plan& plan) {
  const Placement& where = communicator.placement;
  const int ranks = where.local_count();
  const Part mine = part_of(plan.total, plan.element, ranks, where.local);
  char* result = mapped(plan.gathering->result[where.local]);
  combine_near(communicator, plan, result + mine.begin, mine.begin, mine.bytes);
  int root_node = -1;
  for (int node = 0; plan.call.kind == Collective::reduce && node < where.nodes_count(); ++node) {
    const auto& near = where.nodes[static_cast<std::size_t>(node)];
    if (std::find(near.begin(), near.end(), plan.call.root) != near.end()) root_node = node;
  }
  combine_far(communicator, plan, result + mine.begin, mine.bytes, root_node);
  meet_all(communicator, plan, 1);
  if (plan.call.kind == Collective::reduce && plan.call.root != communicator.rank) return;
  for (int local = 0; local < ranks; ++local) {
    const Part theirs = part_of(plan.total, plan.element, ranks, local);
    if (local == where.local || theirs.bytes == 0) continue;
    move_bytes(result + theirs.begin, mapped(plan.gathering->result[local]) + theirs.begin, theirs.bytes);
  }
}

void move_reduce_scatter(Communicator& communicator, Plan& plan) {
  const Placement& where = communicator.placement;
  const std::size_t share = plan.total / static_cast<std::size_t>(communicator.size);
  char* out = mapped(plan.gathering->result[where.local]);  // as its send buffer is, which it may be a part of
  const auto begin_of = [&](int node) { return share * static_cast<std::size_t>(where.counterpart(node)); };
  combine_near(communicator, plan, out, begin_of(where.node), share);
  meet_all(communicator, plan, 1);
  if (where.nodes_count() < 2) return;
  std::vector<std::vector<char>> leaving;
  std::vector<std::vector<char>> arriving;
  std::vector<Message> sent;
  std::vector<Message> received;
  for (int node = 0; node < where.nodes_count(); ++node) {
    if (node == where.node) continue;
    leaving.emplace_back(share);
    arriving.emplace_back(share);
    combine_near(communicator, plan, leaving.back().data(), begin_of(node), share);
    sent.push_back({where.counterpart(node), leaving.back().data(), share});
    received.push_back({where.counterpart(node), arriving.back().data(), share});
  }
  exchange(communicator, sent, received);
  wrote(out, share);
  for (const auto& each : arriving)
    combine(out, out, each.data(), share / plan.element, plan.call.type, plan.call.operation);
}

void move_allgather(Communicator& communicator, Plan& plan) {
  const Placement& where = communicator.placement;
  const std::size_t share = plan.total / static_cast<std::size_t>(communicator.size);
  char* result = mapped(plan.gathering->result[where.local]);
  const auto at = [&](int rank) { return share * static_cast<std::size_t>(rank); };
  const char* own = mapped(plan.gathering->send[where.local]);
  if (own != result + at(communicator.rank)) move_bytes(result + at(communicator.rank), own, share);
  std::vector<Message> sent;
  std::vector<Message> received;
  for (int node = 0; node < where.nodes_count(); ++node) {
    if (node == where.node) continue;
    const int other = where.counterpart(node);
    wrote(result + at(other), share);
    sent.push_back({other, result + at(communicator.rank), share});
    received.push_back({other, result + at(other), share});
  }
  exchange(communicator, sent, received);
  meet_all(communicator, plan, 1);
  for (int local = 0; local < where.local_count(); ++local) {
    if (local == where.local) continue;
    const char* theirs = mapped(plan.gathering->result[local]);
    for (const auto& node : where.nodes) {
      const std::size_t begin = at(node[static_cast<std::size_t>(local)]);
      move_bytes(result + begin, theirs + begin, share);
    }
  }
}

void move_broadcast(Communicator& communicator, Plan& plan) {
  const Placement& where = communicator.placement;
  const int ranks = where.local_count();
  const Part mine = part_of(plan.total, plan.element, ranks, where.local);
  char* result = mapped(plan.gathering->result[where.local]);
  int root_node = 0;
  int root_local = 0;
  for (int node = 0; node < where.nodes_count(); ++node) {
    const auto& near = where.nodes[static_cast<std::size_t>(node)];
    const auto found = std::find(near.begin(), near.end(), plan.call.root);
    if (found == near.end()) continue;
    root_node = node;
    root_local = static_cast<int>(found - near.begin());
  }
  std::vector<Message> sent;
  std::vector<Message> received;
  if (where.node == root_node) {
    const char* source = mapped(plan.gathering->send[root_local]) + mine.begin;
    if (source != result + mine.begin) move_bytes(result + mine.begin, source, mine.bytes);
    for (int node = 0; node < where.nodes_count(); ++node) {
      if (node != root_node) sent.push_back({where.counterpart(node), result + mine.begin, mine.bytes});
    }
  } else {
    wrote(result + mine.begin, mine.bytes);
    received.push_back({where.counterpart(root_node), result + mine.begin, mine.bytes});
  }
  exchange(communicator, sent, received);
  meet_all(communicator, plan, 1);
  const bool is_there = communicator.rank == plan.call.root && mapped(plan.gathering->send[where.local]) == result;
  for (int local = 0; local < ranks && !is_there; ++local) {
    const Part theirs = part_of(plan.total, plan.element, ranks, local);
    if (local == where.local || theirs.bytes == 0) continue;
    move_bytes(result + theirs.begin, mapped(plan.gathering->result[local]) + theirs.begin, theirs.bytes);
  }
}

void move(Communicator& communicator, Plan& plan) {
  const Prompt prompt;
  meet_all(communicator, plan, 0);
  switch (plan.call.kind) {
    case Collective::allreduce:
    case Collective::reduce:
      move_reduction(communicator, plan);
      break;
    case Collective::reduce_scatter:
      move_reduce_scatter(communicator, plan);
      break;
    case Collective::allgather:
      move_allgather(communicator, plan);
      break;
    case Collective::broadcast:
      move_broadcast(communicator, plan);
      break;
  }
  meet_all(communicator, plan, 2);
  if (plan.held == kNoTask) return;
  Timeline::Change change(Timeline::of_node());
  change.unhold(plan.held);
}

// --------------------------------------------------------------------------------------------------------------------

void check(const Communicator& communicator) {
  const auto& nodes = communicator.placement.nodes;
  if (std::any_of(nodes.begin(), nodes.end(), [&](const auto& each) { return each.size() != nodes[0].size(); }))
    end_run("the stand-in of *CCL has collectives for equal numbers of ranks on all nodes only");
  if (nodes[0].size() > kMostNeighbours) end_run("too many ranks of *CCL on this node");
}

void log_rings(Communicator& communicator) {
  if (communicator.logged_rings || communicator.is_between_windows) return;
  communicator.logged_rings = true;
  const int next = (communicator.rank + 1) % communicator.size;
  const int before = (communicator.rank + communicator.size - 1) % communicator.size;
  if (communicator.path_to(before) == Path::net) communicator.log_path(before, false);
  communicator.log_path(next, true);
  // Each rank of a node has a NIC of its own to the others.
  const Placement& where = communicator.placement;
  for (int node = 0; node < where.nodes_count(); ++node) {
    if (node == where.node) continue;
    communicator.log_path(where.counterpart(node), true);
    communicator.log_path(where.counterpart(node), false);
  }
}

// Where the result of this rank is put together, so that the others can fetch their parts from it.
void* result_of(Communicator& communicator, const Call& call, std::size_t total) {
  if (call.kind != Collective::reduce || call.root == communicator.rank) return call.receive;
  if (communicator.scratch_bytes < total) {
    if (communicator.scratch != nullptr) release(communicator.scratch);
    communicator.scratch_bytes = total;
    if (allocate_device(&communicator.scratch, total, communicator.self().gpu) != Result::success)
      end_run("no device memory for the buffers of *CCL");
  }
  return communicator.scratch;
}

}  // namespace

void enqueue_collective(Communicator& communicator, Stream& stream, const Call& call) {
  check(communicator);
  log_rings(communicator);
  auto plan = std::make_shared<Plan>();
  plan->call = call;
  plan->element = bytes_of(call.type);
  const bool is_shared = call.kind == Collective::reduce_scatter || call.kind == Collective::allgather;
  plan->total = call.count * plan->element * static_cast<std::size_t>(is_shared ? communicator.size : 1);
  plan->sequence = ++communicator.collectives;
  if (plan->total == 0) return;
  // What an earlier collective has in the same place is done with.
  if (plan->sequence % (kCollectives / 2) == 0) stream.move_all();
  void* result = result_of(communicator, call, plan->total);
  const Placement& where = communicator.placement;
  const auto ranks = static_cast<std::uint32_t>(where.local_count());
  const bool is_far = where.nodes_count() > 1;
  const std::int64_t latency = description().latency_ns[static_cast<std::size_t>(Mover::ccl)];
  stream.enqueue(
      [&](Timeline::Change& change, TaskId before) {
        Gathering& all = circle(communicator).gatherings[plan->sequence % kCollectives];
        plan->gathering = &all;
        if (all.sequence != plan->sequence) {
          all.sequence = plan->sequence;
          all.posted = 0;
          for (auto& each : all.arrived) each.store(0);
          all.begun = change.task({}, latency, nullptr, static_cast<int>(ranks));
          all.ended = change.task({}, 0, nullptr, 1);
        }
        all.send[where.local] = place_of_buffer(call.send == nullptr ? result : call.send);
        all.result[where.local] = place_of_buffer(result);
        const TaskId begin = change.task({before}, 0);
        change.join(begin, all.begun);
        change.release(begin);
        const TaskId end = change.task({}, 0, nullptr, is_far ? 2 : 1);
        change.join(all.ended, end);
        if (++all.posted == ranks) {
          const TaskId last = add_phases(change, phases(communicator, *plan), all.begun);
          change.join(last, all.ended);
          change.release(last);
          change.release(all.ended);
        }
        if (is_far) plan->held = end;
        return end;
      },
      [&communicator, plan] { move(communicator, *plan); });
}

}  // namespace emulation::ccl
