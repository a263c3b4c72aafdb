#include <map>
#include <numeric>
#include <set>
#include <stdexcept>

#include "check.hpp"
#include "fabricbench/patterns.hpp"

using namespace fabricbench;

namespace {

std::vector<int> ranks(int count) {
  std::vector<int> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

}  // namespace

TEST(pingpong_answers_after_it_was_asked) {
  const auto steps = transfers(Operation::pingpong, {2, 5}, 64);
  CHECK_EQUAL(steps.size(), 2u);
  CHECK_EQUAL(steps[0], (Step{{2, 5, 64}}));
  CHECK_EQUAL(steps[1], (Step{{5, 2, 64}}));
}

TEST(bidirectional_goes_both_ways_at_once) {
  const auto steps = transfers(Operation::bidirectional, {0, 1}, 8);
  CHECK_EQUAL(steps.size(), 1u);
  CHECK_EQUAL(steps[0].size(), 2u);
}

// Every byte of every receive buffer is written exactly once, whatever the operation, and nothing lies outside a
// buffer.
TEST(divided_operations_fill_each_receive_buffer_exactly_once) {
  for (const Operation operation : {Operation::alltoall, Operation::allgather}) {
    for (int count = 2; count <= 9; ++count) {
      const std::uint64_t bytes = 24 * static_cast<std::uint64_t>(count);
      const auto steps = transfers(operation, ranks(count), bytes);
      std::map<int, std::multiset<std::uint64_t>> written;
      for (const Transfer& transfer : steps[0]) {
        CHECK(transfer.source_offset + transfer.bytes <= bytes &&
              transfer.destination_offset + transfer.bytes <= bytes);
        for (std::uint64_t i = 0; i < transfer.bytes; ++i)
          written[transfer.destination].insert(transfer.destination_offset + i);
      }
      for (int rank = 0; rank < count; ++rank) {
        CHECK_EQUAL(written[rank].size(), bytes);
        CHECK_EQUAL(std::set<std::uint64_t>(written[rank].begin(), written[rank].end()).size(), bytes);
      }
    }
  }
}

TEST(alltoall_transposes) {
  const auto steps = transfers(Operation::alltoall, ranks(4), 64);
  for (const Transfer& transfer : steps[0]) {
    CHECK_EQUAL(transfer.source_offset, static_cast<std::uint64_t>(transfer.destination) * 16);
    CHECK_EQUAL(transfer.destination_offset, static_cast<std::uint64_t>(transfer.source) * 16);
  }
}

// The ranks of a node share what it sends to others: what they send away first, second, … goes to as many places.
TEST(ranks_of_a_node_never_send_to_the_same_rank_of_another_at_first) {
  for (int nodes = 2; nodes <= 6; ++nodes) {
    for (int of_node = 2; of_node <= 6; ++of_node) {
      std::map<int, std::vector<int>> away;  // places on their nodes, by source
      const auto steps = transfers(Operation::alltoall, ranks(nodes * of_node), 1 << 10);
      for (const Transfer& transfer : steps[0]) {
        if (transfer.source / of_node != transfer.destination / of_node)
          away[transfer.source].push_back(transfer.destination % of_node);
      }
      for (int node = 0; node < nodes; ++node) {
        for (std::size_t k = 0; k < away[0].size(); ++k) {
          std::set<int> places;
          for (int i = 0; i < of_node; ++i) places.insert(away[node * of_node + i][k]);
          CHECK_EQUAL(places.size(), static_cast<std::size_t>(of_node));
        }
      }
    }
  }
}

TEST(in_place_a_rank_has_its_part_where_it_is_in_the_whole) {
  const auto steps_of = [](Operation operation) {
    return in_place(transfers(operation, ranks(4), 64, {}, 2), operation)[0];
  };
  for (const Transfer& transfer : steps_of(Operation::allgather)) {
    CHECK_EQUAL(transfer.source_offset, static_cast<std::uint64_t>(transfer.source) * 16);
    CHECK_EQUAL(transfer.destination_offset, transfer.source_offset);
  }
  for (const Transfer& transfer : steps_of(Operation::reduce_scatter)) {
    CHECK_EQUAL(transfer.destination_offset, static_cast<std::uint64_t>(transfer.destination) * 16);
    CHECK_EQUAL(transfer.source_offset, transfer.destination_offset);
  }
}

TEST(reductions_take_a_contribution_of_every_rank) {
  for (const Operation operation : {Operation::allreduce, Operation::reduce, Operation::reduce_scatter}) {
    std::map<int, std::set<int>> sources;
    const auto steps = transfers(operation, ranks(5), 100);
    for (const Transfer& transfer : steps[0]) sources[transfer.destination].insert(transfer.source);
    CHECK_EQUAL(sources.size(), operation == Operation::reduce ? 1u : 5u);
    for (const auto& [destination, from] : sources) CHECK_EQUAL(from.size(), 5u);
  }
}

TEST(broadcast_leaves_the_root_alone) {
  const auto steps = transfers(Operation::broadcast, {3, 0, 1}, 8);
  const Step& step = steps[0];
  CHECK_EQUAL(step.size(), 2u);
  for (const Transfer& transfer : step) CHECK(transfer.source == 3 && transfer.destination != 3);
}

namespace {

using Matrix = std::map<std::pair<int, int>, std::uint64_t>;

// Bytes from rank to rank; checks that no two messages share bytes of a buffer.
Matrix communication_matrix(const Step& step) {
  Matrix matrix;
  std::map<int, std::set<std::uint64_t>> sent;
  std::map<int, std::set<std::uint64_t>> received;
  for (const Transfer& transfer : step) {
    matrix[{transfer.source, transfer.destination}] += transfer.bytes;
    for (std::uint64_t i = 0; i < transfer.bytes; ++i) {
      CHECK(sent[transfer.source].insert(transfer.source_offset + i).second);
      CHECK(received[transfer.destination].insert(transfer.destination_offset + i).second);
    }
  }
  return matrix;
}

// CommBench, section 4.3, as it is written there: which GPU i of group a sends to which GPU j of group b.
bool communicates(const std::string& name, const Shape& shape, int a, int i, int b, int j) {
  const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (a == b) return false;
  if (is("unidirectional") && a != 0) return false;
  if (is("bidirectional") && a != 0 && b != 0) return false;
  if (is("rail")) return i == j && i < shape.active;
  if (is("symmetric_") && !is("asymmetric_")) return i < shape.active && j < shape.active;
  return a == 0 ? i < shape.active : j < shape.active;  // asymmetric: k limits the first group only
}

std::vector<Operation> group_operations() {
  std::vector<Operation> result;
  for (const Description& row : all_operations()) {
    const Operation operation = row.operation;
    if (row.direction != Direction::none) result.push_back(operation);
  }
  return result;
}

}  // namespace

TEST(group_patterns_are_those_of_the_paper) {
  for (const Operation operation : group_operations()) {
    for (int groups = 2; groups <= (can_have(operation, {3, 2, 2}) ? 4 : 2); ++groups) {
      for (int size = 1; size <= 4; ++size) {
        for (int active = 1; active <= size; ++active) {
          const Shape shape{groups, size, active};
          const std::uint64_t bytes = 3 * granularity(operation, 0, shape);
          const auto steps = transfers(operation, ranks(shape.ranks()), bytes, shape);
          CHECK_EQUAL(steps.size(), 1u);
          CHECK(buffer_extent(steps) <= bytes);
          Matrix wanted;
          std::uint64_t from_first_group = 0;
          for (int s = 0; s < shape.ranks(); ++s) {
            for (int d = 0; d < shape.ranks(); ++d) {
              if (!communicates(to_string(operation), shape, s / size, s % size, d / size, d % size)) continue;
              wanted[{s, d}] = 3;
              from_first_group += s < size ? 3 : 0;
            }
          }
          CHECK(communication_matrix(steps[0]) == wanted);
          CHECK_EQUAL(from_first_group, bytes);
        }
      }
    }
  }
}

// "Selecting k = 1 for the rail pattern recovers exactly an inter-node P2P pattern"; "when k = g, the asymmetric
// pattern converges to the symmetric pattern" (section 4.3.1).
TEST(group_patterns_have_the_limits_that_the_paper_names) {
  CHECK_EQUAL(transfers(Operation::rail_unidirectional, ranks(6), 8, {2, 3, 1}), (std::vector<Step>{{{0, 3, 8}}}));
  CHECK_EQUAL(transfers(Operation::asymmetric_bidirectional, ranks(6), 18, {2, 3, 3}),
              transfers(Operation::symmetric_bidirectional, ranks(6), 18, {2, 3, 3}));
}

TEST(who_begins_waits_for_those_that_it_sends_to) {
  const auto pingpong = transfers(Operation::pingpong, {2, 5}, 8);
  CHECK_EQUAL(awaited_by(2, pingpong), std::vector<int>{5});
  CHECK(awaited_by(5, pingpong).empty());
  CHECK(awaited_by(0, transfers(Operation::bidirectional, {0, 1}, 8)).empty());
  const auto asymmetric = transfers(Operation::asymmetric_unidirectional, ranks(6), 18, {2, 3, 2});
  CHECK_EQUAL(awaited_by(1, asymmetric), (std::vector<int>{3, 4, 5}));
  CHECK(awaited_by(3, asymmetric).empty() && awaited_by(2, asymmetric).empty());
}

TEST(members_of_a_group_do_not_all_begin_with_the_same_receiver) {
  const auto steps = transfers(Operation::symmetric_unidirectional, ranks(6), 9, {2, 3, 3});
  std::map<int, int> first;
  for (const Transfer& transfer : steps[0]) first.try_emplace(transfer.source, transfer.destination);
  CHECK_EQUAL(first, (std::map<int, int>{{0, 3}, {1, 4}, {2, 5}}));
}

// What every rank's receive buffer holds after each step, as (origin, position) of each byte.
TEST(striping_brings_every_byte_of_the_message_to_its_place) {
  for (const Operation operation : {Operation::striping, Operation::striping_pipelined}) {
    for (int size = 2; size <= 4; ++size) {
      for (int active = 2; active <= size; ++active) {
        const Shape shape{2, size, active};
        const std::uint64_t bytes = 2 * granularity(operation, 0, shape);
        const auto steps = transfers(operation, ranks(shape.ranks()), bytes, shape);
        CHECK_EQUAL(steps.size(), operation == Operation::striping ? 3u : kStripingPieces + 2u);
        CHECK_EQUAL(buffer_extent(steps), bytes);
        std::map<int, std::map<std::uint64_t, std::pair<int, std::uint64_t>>> held;
        for (std::size_t step = 0; step < steps.size(); ++step) {
          auto next = held;
          for (std::size_t i = 0; i < steps[step].size(); ++i) {
            const Transfer& transfer = steps[step][i];
            const Origin origin = origin_of(steps, step, i);
            for (std::uint64_t b = 0; b < transfer.bytes; ++b) {
              const std::uint64_t at = transfer.source_offset + b;
              // What is relayed was there before this step.
              const auto from = transfer.relayed ? held[transfer.source].at(at) : std::pair{transfer.source, at};
              CHECK(from.first == origin.rank && from.second == origin.offset + b);
              CHECK(next[transfer.destination].emplace(transfer.destination_offset + b, from).second);
            }
          }
          held = next;
        }
        CHECK_EQUAL(held[size].size(), bytes);
        for (const auto& [at, from] : held[size]) CHECK(from.first == 0 && from.second == at);
      }
    }
  }
}

TEST(parts_of_striping_stand_alone) {
  const Shape shape{2, 4, 3};
  const auto part = [&](Operation operation) { return transfers(operation, ranks(8), 48, shape)[0]; };
  CHECK_EQUAL(part(Operation::striping_split), (Step{{0, 1, 16, 16, 16}, {0, 2, 16, 32, 32}}));
  CHECK_EQUAL(part(Operation::striping_translate), (Step{{0, 4, 16, 0, 0}, {1, 5, 16, 16, 16}, {2, 6, 16, 32, 32}}));
  CHECK_EQUAL(part(Operation::striping_assemble), (Step{{5, 4, 16, 16, 16}, {6, 4, 16, 32, 32}}));
  CHECK_EQUAL(part(Operation::striping_direct), (Step{{0, 4, 48}}));
}

TEST(what_is_relayed_without_being_brought_is_a_mistake) {
  const std::vector<Step> steps{{{0, 1, 8}}, {{1, 2, 8, 4, 4, true}}};
  CHECK(check::message_of<std::logic_error>([&] { origin_of(steps, 1, 0); }).find("relays") != std::string::npos);
}

TEST(messages_of_matrices_lie_apart_and_begin_with_the_next_rank) {
  const Messages messages{{{0, 1}, 5}, {{1, 0}, 2}, {{1, 2}, 3}, {{3, 1}, 4}};
  const std::vector<Step> steps = sparse_steps({messages, {{{1, 0}, 7}}});
  const Step& step = steps[0];
  CHECK(communication_matrix(step) == messages);
  CHECK_EQUAL(step[1], (Transfer{1, 2, 3, 0, 0}));
  CHECK_EQUAL(step[2], (Transfer{1, 0, 2, 3, 0}));
  CHECK_EQUAL(buffer_extent({step}), 9u);
  CHECK_EQUAL(steps[1], (Step{{1, 0, 7, 5, 2}}));
  CHECK_EQUAL(buffer_extent(steps), 12u);
}

TEST(a_training_step_has_collectives_of_a_group_and_across_groups_in_buffers_of_their_own) {
  const Shape shape{3, 2, 2};
  const std::uint64_t share = granularity(Operation::training_step, 6, shape) / 22;
  const auto parts = training_parts(shape, 3, 22 * share);
  CHECK_EQUAL(parts.size(), 3u);
  CHECK_EQUAL(parts[0].ranks, (std::vector<int>{2, 3}));
  CHECK_EQUAL(parts[1].ranks, (std::vector<int>{1, 3, 5}));
  CHECK_EQUAL(parts[2].ranks, parts[1].ranks);
  CHECK_EQUAL(parts[0].bytes, 4 * share);
  CHECK_EQUAL(parts[2].offset, 13 * share);
  for (const TrainingPart& part : parts) {
    CHECK_EQUAL(part.bytes % granularity(part.operation, part.ranks.size()), 0u);
    for (const Transfer& transfer : part.steps.front()) {
      CHECK(transfer.source == 3 || transfer.destination == 3);
      CHECK(transfer.source_offset >= part.offset && transfer.destination_offset >= part.offset);
    }
  }
  CHECK_EQUAL(buffer_extent(parts[2].steps), buffer_extent(Operation::training_step, ranks(6), 22 * share, shape));
  CHECK(can_have(Operation::training_step, shape) && !can_have(Operation::training_step, {3, 2, 1}));
}

TEST(aggressors_do_alltoall_or_send_all_to_the_first) {
  const auto incast = aggressor_transfers(Operation::victim_pingpong_incast, {5, 1, 3}, 8);
  CHECK_EQUAL(incast, (std::vector<Step>{{{1, 5, 8, 0, 0}, {3, 5, 8, 0, 8}}}));
  CHECK_EQUAL(aggressor_transfers(Operation::victim_pingpong_alltoall, {5, 1}, 8),
              transfers(Operation::alltoall, {5, 1}, 8));
}

TEST(names_are_those_of_the_result_format) {
  for (const Description& row : all_operations()) {
    CHECK(parse_operation(row.name) == row.operation);
    CHECK_EQUAL(to_string(describe(row.operation).operation), row.name);
  }
}

TEST(a_memory_path_stays_on_its_rank_and_shares_the_bytes_out) {
  for (const Description& row : all_operations()) {
    const Operation operation = row.operation;
    if (!is_memory_path(operation)) continue;
    const auto steps = transfers(operation, {1, 3}, 64);
    CHECK_EQUAL(steps.size(), 1u);
    CHECK_EQUAL(steps[0].size(), operation == Operation::host_bidirectional ? 4u : 2u);
    for (const Transfer& transfer : steps[0]) CHECK(transfer.source == transfer.destination && transfer.bytes == 32);
  }
  const Transfer down = transfers(Operation::device_to_host, {0}, 8)[0][0];
  CHECK(down.source_place == Place::device && down.destination_place == Place::host);
}

TEST(buffers_of_a_pair_lie_where_they_were_put) {
  const auto steps = placed(transfers(Operation::pingpong, {2, 5}, 8), {2, 5}, {Place::host, Place::device});
  CHECK_EQUAL(steps[0], (Step{{2, 5, 8, 0, 0, false, Place::host, Place::device}}));
  CHECK_EQUAL(steps[1], (Step{{5, 2, 8, 0, 0, false, Place::device, Place::host}}));
}

TEST(the_transfers_of_one_rank_are_its_part_of_those_of_all) {
  const std::vector<int> some{3, 0, 7, 5, 1, 4};
  const auto check_own = [&](const Step& all, const auto& own_of) {
    for (const int rank : some) {
      Step own;
      for (const Transfer& transfer : all) {
        if (transfer.source == rank || transfer.destination == rank) own.push_back(transfer);
      }
      CHECK_EQUAL(own_of(rank)[0], own);
    }
  };
  for (const Description& row : all_operations()) {
    const bool grouped = row.direction != Direction::none;
    if (row.kind != Kind::collective && row.kind != Kind::memory && !grouped) continue;
    const Shape shape = grouped ? Shape{2, 3, 2} : Shape{};
    const auto of = [&](std::optional<int> only) { return transfers(row.operation, some, 48, shape, only); };
    check_own(of(std::nullopt)[0], of);
    if (grouped) CHECK_EQUAL(buffer_extent(row.operation, some, 48, shape), buffer_extent(of(std::nullopt)));
    CHECK(of(6).empty());
  }
  for (const Operation operation : {Operation::victim_pingpong_incast, Operation::victim_pingpong_alltoall}) {
    const auto of = [&](std::optional<int> only) { return aggressor_transfers(operation, some, 48, only); };
    check_own(of(std::nullopt)[0], of);
    CHECK_EQUAL(aggressor_extent(operation, some.size(), 48), buffer_extent(of(std::nullopt)));
  }
}
