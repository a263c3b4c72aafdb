#include <map>
#include <numeric>
#include <set>

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
      for (const Transfer& each : steps[0]) {
        CHECK(each.source_offset + each.bytes <= bytes && each.destination_offset + each.bytes <= bytes);
        for (std::uint64_t i = 0; i < each.bytes; ++i) written[each.destination].insert(each.destination_offset + i);
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
  for (const Transfer& each : steps[0]) {
    CHECK_EQUAL(each.source_offset, static_cast<std::uint64_t>(each.destination) * 16);
    CHECK_EQUAL(each.destination_offset, static_cast<std::uint64_t>(each.source) * 16);
  }
}

TEST(reductions_take_a_contribution_of_every_rank) {
  for (const Operation operation : {Operation::allreduce, Operation::reduce, Operation::reduce_scatter}) {
    std::map<int, std::set<int>> sources;
    const auto steps = transfers(operation, ranks(5), 100);
    for (const Transfer& each : steps[0]) sources[each.destination].insert(each.source);
    CHECK_EQUAL(sources.size(), operation == Operation::reduce ? 1u : 5u);
    for (const auto& [destination, from] : sources) CHECK_EQUAL(from.size(), 5u);
  }
}

TEST(broadcast_leaves_the_root_alone) {
  const auto steps = transfers(Operation::broadcast, {3, 0, 1}, 8);
  const Step& step = steps[0];
  CHECK_EQUAL(step.size(), 2u);
  for (const Transfer& each : step) CHECK(each.source == 3 && each.destination != 3);
}

TEST(pair_rounds_meet_every_pair_once_and_no_rank_twice) {
  for (int count = 2; count <= 17; ++count) {
    const auto rounds = pair_rounds(ranks(count));
    CHECK_EQUAL(rounds.size(), static_cast<std::size_t>(count % 2 == 0 ? count - 1 : count));
    std::set<std::pair<int, int>> met;
    for (const auto& round : rounds) {
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        CHECK(a < b);
        CHECK(busy.insert(a).second && busy.insert(b).second);
        CHECK(met.insert({a, b}).second);
      }
    }
    CHECK_EQUAL(met.size(), static_cast<std::size_t>(count * (count - 1) / 2));
  }
}

TEST(names_are_those_of_the_result_format) {
  for (const Operation operation : all_operations()) CHECK(parse_operation(to_string(operation)) == operation);
  CHECK_EQUAL(all_operations().size(), 14u);
}

TEST(a_memory_path_stays_on_its_rank_and_shares_the_bytes_out) {
  for (const Operation operation : all_operations()) {
    if (!is_memory_path(operation)) continue;
    const auto steps = transfers(operation, {1, 3}, 64);
    CHECK_EQUAL(steps.size(), 1u);
    CHECK_EQUAL(steps[0].size(), operation == Operation::host_bidirectional ? 4u : 2u);
    for (const Transfer& each : steps[0]) CHECK(each.source == each.destination && each.bytes == 32);
  }
  const Transfer down = transfers(Operation::device_to_host, {0}, 8)[0][0];
  CHECK(down.source_place == Place::device && down.destination_place == Place::host);
}

TEST(buffers_of_a_pair_lie_where_they_were_put) {
  const auto steps = placed(transfers(Operation::pingpong, {2, 5}, 8), {2, 5}, {Place::host, Place::device});
  CHECK_EQUAL(steps[0], (Step{{2, 5, 8, 0, 0, Place::host, Place::device}}));
  CHECK_EQUAL(steps[1], (Step{{5, 2, 8, 0, 0, Place::device, Place::host}}));
}
