#include <set>

#include "check.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/plan.hpp"
#include "fabricbench/text.hpp"

using namespace fabricbench;

namespace {

Options options_for(std::vector<Operation> operations, const char* sizes) {
  Options options;
  options.operations = std::move(operations);
  options.schedules = {Schedule::uncontended, Schedule::contended};
  options.sizes = parse_sizes(sizes);
  return options;
}

Implementation as_transfers(Operation, Implementation) { return Implementation::transfers; }

}  // namespace

TEST(plan_measures_all_ordered_pairs_alone_and_in_rounds) {
  const auto plan = make_plan(options_for({Operation::pingpong}, "8,64"), 4, as_transfers);
  CHECK_EQUAL(record_count(plan), (12u + 12u) * 2);
  std::set<std::vector<int>> contended;
  std::set<std::vector<int>> uncontended;
  for (const Series& series : plan) {
    for (const auto& group : series.groups)
      (series.schedule == Schedule::contended ? contended : uncontended).insert(group);
    CHECK_EQUAL(series.groups.size(), series.schedule == Schedule::contended ? 2u : 1u);
  }
  CHECK_EQUAL(contended.size(), 12u);
  CHECK_EQUAL(uncontended.size(), 12u);
}

TEST(plan_measures_a_symmetric_pair_once) {
  CHECK_EQUAL(record_count(make_plan(options_for({Operation::bidirectional}, "8"), 4, as_transfers)), 6u + 6u);
}

TEST(plan_leaves_out_rounds_of_a_single_pair) {
  const auto plan = make_plan(options_for({Operation::pingpong}, "8"), 3, as_transfers);
  for (const Series& series : plan) CHECK(series.schedule == Schedule::uncontended);
  CHECK_EQUAL(record_count(plan), 6u);
}

TEST(plan_rounds_sizes_down_to_whole_shares) {
  const auto plan = make_plan(options_for({Operation::alltoall, Operation::reduce_scatter}, "1:64"), 3, as_transfers);
  CHECK_EQUAL(plan[0].sizes, (std::vector<std::uint64_t>{3, 6, 15, 30, 63}));
  CHECK_EQUAL(plan[1].sizes, (std::vector<std::uint64_t>{12, 24, 60}));
  CHECK_EQUAL(largest_size(plan), 63u);
}

TEST(plan_takes_the_pairs_that_were_asked_for) {
  Options options = options_for({Operation::pingpong, Operation::bidirectional}, "8");
  options.pairs = {{2, 1}};
  const auto plan = make_plan(options, 4, as_transfers);
  CHECK_EQUAL(record_count(plan), 4u);
}

TEST(plan_refuses_what_cannot_be_measured) {
  const auto message = [](const Options& options, int ranks) {
    return check::message_of<InputError>([&] { make_plan(options, ranks, as_transfers); });
  };
  CHECK(message(options_for({Operation::pingpong}, "8"), 1).find("at least 2 ranks") != std::string::npos);
  CHECK(message(options_for({Operation::alltoall}, "1,2"), 4).find("at least 4 B") != std::string::npos);
  Options options = options_for({Operation::pingpong}, "8");
  options.pairs = {{0, 9}};
  CHECK(message(options, 4).find("no rank 9") != std::string::npos);
  options.pairs.clear();
  options.schedules = {Schedule::contended};
  CHECK(message(options, 2).find("nothing is left to measure") != std::string::npos);
}

TEST(plan_measures_memory_paths_of_each_rank_and_of_several_at_once) {
  const auto plan = make_plan(options_for({Operation::host_to_device}, "1024"), 3, as_transfers);
  std::vector<std::vector<int>> groups;
  for (const Series& series : plan) {
    CHECK_EQUAL(series.schedule == Schedule::contended, series.groups[0].size() > 1);
    groups.push_back(series.groups[0]);
  }
  CHECK_EQUAL(groups, (std::vector<std::vector<int>>{{0}, {1}, {2}, {0, 1}, {0, 1, 2}}));
  CHECK_EQUAL(plan.back().sizes, (std::vector<std::uint64_t>{1023}));
}

TEST(plan_measures_memory_paths_of_a_single_rank_and_of_the_sets_that_were_asked_for) {
  Options options = options_for({Operation::local_copy}, "8");
  CHECK_EQUAL(record_count(make_plan(options, 1, as_transfers)), 1u);
  options.together = {{0, 2}};
  CHECK_EQUAL(make_plan(options, 3, as_transfers).back().groups[0], (std::vector<int>{0, 2}));
  CHECK(check::message_of<InputError>([&] { make_plan(options, 2, as_transfers); }).find("no rank 2") !=
        std::string::npos);
}

TEST(plan_knows_how_much_host_memory_it_needs) {
  const auto needs = [](Operation operation, Ends ends) {
    Options options = options_for({operation}, "8,64");
    options.ends = ends;
    const HostBufferBytes bytes = host_buffer_bytes(make_plan(options, 2, as_transfers));
    return std::vector<std::uint64_t>{bytes.send, bytes.receive};
  };
  CHECK_EQUAL(needs(Operation::host_to_device, {}), (std::vector<std::uint64_t>{64, 0}));
  CHECK_EQUAL(needs(Operation::device_to_host, {}), (std::vector<std::uint64_t>{0, 64}));
  CHECK_EQUAL(needs(Operation::local_copy, {}), (std::vector<std::uint64_t>{0, 0}));
  CHECK_EQUAL(needs(Operation::pingpong, {}), (std::vector<std::uint64_t>{0, 0}));
  CHECK_EQUAL(needs(Operation::pingpong, {Place::host, Place::device}), (std::vector<std::uint64_t>{64, 64}));
}

TEST(plan_refuses_host_buffers_for_collectives) {
  Options options = options_for({Operation::alltoall}, "64");
  options.ends = {Place::host, Place::device};
  CHECK(check::message_of<InputError>([&] { make_plan(options, 2, as_transfers); }).find("--buffers") !=
        std::string::npos);
}
