#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
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

// The groups of each round of a plan, written out.
std::vector<std::pair<Schedule, std::vector<std::vector<int>>>> all_rounds(const std::vector<Series>& plan) {
  std::vector<std::pair<Schedule, std::vector<std::vector<int>>>> result;
  for (const Series& series : plan) {
    for (std::size_t round = 0; round < series.rounds(); ++round) {
      auto& groups = result.emplace_back(series.schedule, std::vector<std::vector<int>>{}).second;
      for (const Group& group : series.at(series.sizes[0], 0, round).groups) groups.push_back(group.ranks);
    }
  }
  return result;
}

// How much a function, which says whether all went well, adds to the memory of a process that does nothing else: bytes.
template <typename Function>
long growth_of_memory(Function&& function) {
  int ends[2];
  CHECK_EQUAL(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto most = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return usage.ru_maxrss * 1024;
    };
    const long before = most();
    const bool fine = function();
    const long grown = most() - before;
    _exit(fine && write(ends[1], &grown, sizeof grown) == sizeof grown ? 0 : 1);
  }
  long grown = -1;
  close(ends[1]);
  CHECK_EQUAL(read(ends[0], &grown, sizeof grown), static_cast<ssize_t>(sizeof grown));
  close(ends[0]);
  int status = 0;
  CHECK_EQUAL(waitpid(child, &status, 0), child);
  CHECK_EQUAL(status, 0);
  return grown;
}

}  // namespace

TEST(plan_measures_all_ordered_pairs_alone_and_in_rounds) {
  const auto plan = make_plan(options_for({Operation::unidirectional}, "8,64"), 4, as_transfers);
  CHECK_EQUAL(record_count(plan), (12u + 12u) * 2);
  std::set<std::vector<int>> contended;
  std::set<std::vector<int>> uncontended;
  for (const auto& [schedule, groups] : all_rounds(plan)) {
    for (const auto& group : groups) (schedule == Schedule::contended ? contended : uncontended).insert(group);
    CHECK_EQUAL(groups.size(), schedule == Schedule::contended ? 2u : 1u);
  }
  CHECK_EQUAL(contended.size(), 12u);
  CHECK_EQUAL(uncontended.size(), 12u);
}

TEST(plan_measures_a_symmetric_pair_once) {
  for (const Operation operation : {Operation::pingpong, Operation::bidirectional})
    CHECK_EQUAL(record_count(make_plan(options_for({operation}, "8"), 4, as_transfers)), 6u + 6u);
}

TEST(plan_leaves_out_rounds_of_a_single_pair) {
  const auto plan = make_plan(options_for({Operation::unidirectional}, "8"), 3, as_transfers);
  for (const Series& series : plan) CHECK(series.schedule == Schedule::uncontended);
  CHECK_EQUAL(record_count(plan), 6u);
}

TEST(plan_pairs_the_ports_of_nodes_rail_by_rail) {
  Options options = options_for({Operation::unidirectional}, "8");
  options.rails = true;
  options.group_size = 2;
  for (const int nodes : {2, 3, 4}) {
    std::map<Schedule, std::set<std::vector<int>>> met;
    for (const auto& [schedule, pairs] : all_rounds(make_plan(options, 2 * nodes, as_transfers))) {
      std::set<int> busy;
      for (const auto& pair : pairs) {
        met[schedule].insert(pair);
        CHECK_EQUAL(pair[0] % 2, pair[1] % 2);
        for (const int rank : pair) CHECK(busy.insert(rank).second);
      }
      // Both rails of two nodes at once.
      if (schedule == Schedule::contended) CHECK_EQUAL(pairs.size(), static_cast<std::size_t>(nodes / 2 * 2));
    }
    CHECK_EQUAL(met[Schedule::contended].size(), static_cast<std::size_t>(2 * nodes * (nodes - 1)));
    CHECK(met[Schedule::contended] == met[Schedule::uncontended]);
  }
  options.group_size = 1;
  for (const Series& series : make_plan(options, 3, as_transfers)) CHECK(series.schedule == Schedule::uncontended);
  const auto message = [&](int size, int ranks) {
    options.group_size = size;
    return check::message_of<InputError>([&] { make_plan(options, ranks, as_transfers); });
  };
  CHECK(message(kNoCommonSize, 4).find("cannot use a node as a group") != std::string::npos);
  for (const int size : {0, 3, 4}) CHECK(message(size, 4).find("--pairs rails is for ranks of") != std::string::npos);
}

TEST(plan_rounds_sizes_down_to_whole_shares) {
  const auto plan = make_plan(options_for({Operation::alltoall, Operation::reduce_scatter}, "1:64"), 3, as_transfers);
  CHECK_EQUAL(plan[0].sizes, (std::vector<std::uint64_t>{3, 6, 15, 30, 63}));
  CHECK_EQUAL(plan[1].sizes, (std::vector<std::uint64_t>{12, 24, 60}));
  CHECK_EQUAL(buffer_bytes(plan), 63u);
}

TEST(plan_of_registered_buffers_has_collectives_of_the_library_before_sends_and_receives) {
  Options options =
      options_for({Operation::alltoall, Operation::allreduce, Operation::pingpong, Operation::allgather}, "1MiB");
  const auto order = [&] {
    std::vector<std::string> names;
    const auto choose = [](Operation operation, Implementation) {
      const bool library = operation == Operation::allreduce || operation == Operation::allgather;
      return library ? Implementation::library : Implementation::transfers;
    };
    for (const Series& series : make_plan(options, 2, choose)) names.push_back(to_string(series.operation));
    return join(names, " ");
  };
  CHECK_EQUAL(order(), "alltoall allreduce pingpong allgather");
  options.ccl.buffers = CclBuffers::registered;
  CHECK_EQUAL(order(), "allreduce allgather alltoall pingpong");
}

TEST(plan_takes_the_pairs_that_were_asked_for) {
  Options options = options_for({Operation::pingpong, Operation::bidirectional}, "8");
  options.pairs = {{2, 1}};
  const auto plan = make_plan(options, 4, as_transfers);
  CHECK_EQUAL(record_count(plan), 4u);
}

TEST(plan_measures_the_rounds_that_were_written_down) {
  Options options = options_for({Operation::pingpong, Operation::bidirectional}, "8");
  options.rounds = {{{0, 1}, {3, 2}}, {{2, 0}}, {{0, 1}}};
  const auto plan = make_plan(options, 4, as_transfers);
  CHECK_EQUAL(plan.size(), 6u);
  CHECK_EQUAL(record_count(plan), 8u);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    CHECK(plan[i].schedule == Schedule::contended);
    CHECK_EQUAL(plan[i].round, static_cast<int>(i % 3));
  }
  CHECK_EQUAL(plan[0].groups, (std::vector<std::vector<int>>{{0, 1}, {3, 2}}));
}

TEST(plan_takes_a_node_for_a_group_and_every_number_of_active_ranks) {
  Options options = options_for({Operation::rail_bidirectional}, "8:64:8");
  options.group_size = 2;
  std::vector<Shape> shapes;
  for (const Series& series : make_plan(options, 8, as_transfers)) shapes.push_back(series.shape);
  CHECK_EQUAL(shapes, (std::vector<Shape>{{2, 2, 1}, {2, 2, 2}, {4, 2, 2}}));
  options.group_size = 0;  // halves
  CHECK_EQUAL(make_plan(options, 9, as_transfers).size(), 4u);
  CHECK_EQUAL(make_plan(options, 9, as_transfers)[0].groups[0].size(), 8u);
}

TEST(plan_rounds_sizes_of_group_patterns_to_whole_messages) {
  Options options = options_for({Operation::symmetric_unidirectional}, "1,8,64");
  options.shapes = {{2, 3, 3}};
  const auto plan = make_plan(options, 6, as_transfers);
  CHECK_EQUAL(plan[0].sizes, (std::vector<std::uint64_t>{63}));
  CHECK_EQUAL(plan[0].at(63).groups[0].steps[0].size(), 9u);
  CHECK_EQUAL(plan[0].at(63).shape, (Shape{2, 3, 3}));
}

TEST(plan_refuses_groups_that_do_not_fit) {
  Options options = options_for({Operation::asymmetric_unidirectional}, "64");
  const auto message = [&](int ranks) {
    return check::message_of<InputError>([&] { make_plan(options, ranks, as_transfers); });
  };
  options.shapes = {{3, 2, 2}};
  CHECK(message(5).find("3 groups of 2 ranks and this run has 5 ranks") != std::string::npos);
  CHECK(message(6).find("between two groups") != std::string::npos);
  options.shapes = {};
  options.group_size = 4;
  CHECK(message(6).find("needs two groups") != std::string::npos);
  options.group_size = kNoCommonSize;
  CHECK(message(6).find("different numbers of ranks") != std::string::npos);
  options.group_size = 0;
  options.sizes = {2};
  CHECK(message(6).find("no size is large enough") != std::string::npos);
}

TEST(plan_stripes_over_whole_groups_of_two_or_more) {
  Options options = options_for({Operation::striping, Operation::striping_direct}, "100");
  const auto plan = make_plan(options, 6, as_transfers);
  CHECK_EQUAL(plan.size(), 2u);
  CHECK_EQUAL(plan[0].shape, (Shape{2, 3, 3}));
  CHECK_EQUAL(plan[0].sizes, plan[1].sizes);
  CHECK_EQUAL(plan[0].sizes, (std::vector<std::uint64_t>{96}));
  const auto message = check::message_of<InputError>([&] { make_plan(options, 2, as_transfers); });
  CHECK(message.find("two active ranks at least") != std::string::npos);
}

TEST(plan_tells_messages_inside_a_group_from_those_between) {
  Options options = options_for({Operation::sparse, Operation::sparse_intra, Operation::sparse_inter}, "1:64:8");
  const auto message = [&] { return check::message_of<InputError>([&] { make_plan(options, 4, as_transfers); }); };
  CHECK(message().find("needs a --matrix") != std::string::npos);
  options.matrices = {{4, {{0, 1, 100}, {2, 3, 20}, {0, 3, 30}, {1, 1, 9}}}};
  options.group_size = 2;
  auto plan = make_plan(options, 4, as_transfers);
  CHECK_EQUAL(plan.size(), 3u);  // the entries as they stand
  CHECK_EQUAL(plan[0].sizes, (std::vector<std::uint64_t>{150}));
  CHECK_EQUAL(plan[1].sizes, (std::vector<std::uint64_t>{120}));
  CHECK_EQUAL(plan[2].at(30).groups[0].steps, (std::vector<Step>{{{0, 3, 30}}}));
  CHECK_EQUAL(buffer_bytes(plan), 130u);
  options.sizes_given = true;  // scaled to totals of 1, 8 and 64, of which nothing is left of the first
  plan = make_plan(options, 4, as_transfers);
  CHECK_EQUAL(plan[0].sizes, (std::vector<std::uint64_t>{7}));
  CHECK_EQUAL(plan[1].sizes, (std::vector<std::uint64_t>{62}));
  options.group_size = 4;
  CHECK(message().find("sparse_inter sends nothing") != std::string::npos);
}

TEST(plan_has_a_step_for_each_matrix_that_sends_something) {
  Options options = options_for({Operation::sparse, Operation::sparse_inter}, "1:64:8");
  options.matrices = {{2, {{0, 1, 100}}}, {2, {{1, 1, 3}}}, {2, {{1, 0, 20}}}};
  options.group_size = 1;
  const auto plan = make_plan(options, 2, as_transfers);
  CHECK_EQUAL(plan.size(), 2u);
  CHECK_EQUAL(plan[0].steps, (std::vector<Step>{{{0, 1, 100}}, {{1, 0, 20}}}));
  CHECK_EQUAL(plan[1].sizes, (std::vector<std::uint64_t>{120}));
}

TEST(plan_of_a_training_step_is_of_all_ranks) {
  Options options = options_for({Operation::training_step}, "16384");
  options.group_size = 2;
  const Chooser library = [](Operation, Implementation) { return Implementation::library; };
  const auto plan = make_plan(options, 6, library);
  CHECK_EQUAL(plan.size(), 1u);
  CHECK_EQUAL(plan[0].shape, (Shape{3, 2, 2}));
  CHECK_EQUAL(plan[0].at(plan[0].sizes[0], 1).parts.size(), 3u);
  const auto mistake = [&](int ranks) {
    return check::message_of<InputError>([&] { make_plan(options, ranks, library); });
  };
  CHECK(mistake(7).find("full groups of two at least") != std::string::npos);
  options.group_size = 1;
  CHECK(mistake(4).find("full groups of two at least") != std::string::npos);
}

TEST(plan_splits_collectives_into_groups_that_go_alone_and_at_once) {
  using Groups = std::vector<std::vector<int>>;
  Options options = options_for({Operation::allgather}, "64");
  const auto groups = [&](const char* split, int ranks) {
    options.split = split;
    const auto rounds = all_rounds(make_plan(options, ranks, as_transfers));
    CHECK_EQUAL(rounds.size(), rounds.back().second.size() + 1);  // each by itself, then all
    CHECK(rounds.back().first == Schedule::contended);
    return rounds.back().second;
  };
  options.group_size = 4;
  CHECK_EQUAL(groups("nodes", 8), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  CHECK_EQUAL(groups("rails", 8), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  CHECK_EQUAL(groups("2x2", 8), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  const auto plan = make_plan(options, 8, as_transfers);
  CHECK_EQUAL(plan.back().round, 0);
  CHECK_EQUAL(plan.back().at(64, 6).groups[2].steps[0].size(), 3u);  // what rank 6 has to do with
  CHECK(plan.back().at(64, 6).groups[0].steps.empty());
  CHECK_EQUAL(buffer_bytes(plan), 64u);
  CHECK_EQUAL(members_of(plan, 6), (std::vector<int>{4, 6}));
  options.split = "nodes";
  options.group_size = 0;  // a single node: nothing to split
  CHECK_EQUAL(record_count(make_plan(options, 4, as_transfers)), 1u);
}

TEST(plan_refuses_splits_into_groups_that_are_not_full) {
  Options options = options_for({Operation::allreduce}, "64");
  const auto message = [&](const char* split, int size) {
    options.split = split;
    options.group_size = size;
    return check::message_of<InputError>([&] { make_plan(options, 6, as_transfers); });
  };
  for (const char* split : {"4x1", "2x2", "12x1"}) CHECK(message(split, 0).find("full groups") != std::string::npos);
  CHECK(message("nodes", 4).find("full groups") != std::string::npos);
  CHECK(message("rails", 0).find("groups of 1 ranks") != std::string::npos);
  CHECK(message("rails", kNoCommonSize).find("different numbers of ranks") != std::string::npos);
}

TEST(plan_measures_victims_alone_and_beside_the_others) {
  Options options = options_for({Operation::victim_pingpong_incast, Operation::victim_alltoall_alltoall}, "8");
  options.aggressor_size = 64;
  auto plan = make_plan(options, 6, as_transfers);
  CHECK_EQUAL(record_count(plan), 4u);
  CHECK_EQUAL(plan[0].groups[0], (std::vector<int>{0, 5}));
  CHECK_EQUAL(plan[0].aggressors, (std::vector<int>{1, 2, 3, 4}));
  CHECK_EQUAL(plan[0].schedules(), (std::vector<Schedule>{Schedule::uncontended, Schedule::contended}));
  CHECK_EQUAL(plan[1].groups[0], (std::vector<int>{0, 2, 4}));
  CHECK_EQUAL(buffer_bytes(plan), 192u);
  const auto message = [&](int ranks) {
    return check::message_of<InputError>([&] { make_plan(options, ranks, as_transfers); });
  };
  CHECK(message(3).find("needs two ranks besides its victims") != std::string::npos);
  options.victims = {0, 1, 2};
  CHECK(message(6).find("has two victims") != std::string::npos);
  options.victims = {0, 9};
  CHECK(message(6).find("no rank 9") != std::string::npos);
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
  CHECK(message(options, 2).find("no measurement is left") != std::string::npos);
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
    const HostBufferBytes bytes = host_buffer_bytes(make_plan(options, 2, as_transfers), options, false);
    return std::vector<std::uint64_t>{bytes.send, bytes.receive};
  };
  CHECK_EQUAL(needs(Operation::host_to_device, {}), (std::vector<std::uint64_t>{64, 0}));
  CHECK_EQUAL(needs(Operation::device_to_host, {}), (std::vector<std::uint64_t>{0, 64}));
  CHECK_EQUAL(needs(Operation::local_copy, {}), (std::vector<std::uint64_t>{0, 0}));
  CHECK_EQUAL(needs(Operation::pingpong, {}), (std::vector<std::uint64_t>{0, 0}));
  // Three round trips.
  CHECK_EQUAL(needs(Operation::pingpong, {Place::host, Place::device}), (std::vector<std::uint64_t>{192, 192}));
}

// Slots for all where they are small, for a share of the operations in each of the fewest iterations up to a bound.
TEST(a_ring_has_slots_for_all_operations_or_as_many_as_there_is_memory_for) {
  for (const RingMemory& memory : {kRingOnHost, kRingOnDevice}) {
    for (const std::uint64_t operations : {1u, 2u, 20u, 64u, 256u}) {
      for (std::uint64_t extent = 1; extent <= std::uint64_t{1} << 33; extent = extent * 3 + 1) {
        const pattern::Ring ring = ring_for(operations, extent, memory);
        CHECK(ring.slots <= operations && (ring.slots > 1 || operations == 1));
        CHECK(ring.slots == 1 || (ring.pitch >= extent && ring.pitch % 64 == 0));
        CHECK(ring.slots <= 3 || ring.slots * ring.pitch <= memory.most);
        if (operations * ring.pitch <= memory.for_all) CHECK_EQUAL(ring.slots, operations);
      }
    }
  }
}

TEST(plan_needs_no_more_for_memory_paths_than_the_share_of_a_rank) {
  Options options = options_for({Operation::host_to_device}, "1024");
  options.schedules = {Schedule::contended};
  options.together = {{0, 1, 2, 3}};
  const auto plan = make_plan(options, 4, as_transfers);
  CHECK_EQUAL(buffer_bytes(plan), 256u);
  CHECK_EQUAL(host_buffer_bytes(plan, options, false).send, 256u);
}

TEST(plan_puts_the_buffers_of_rounds_that_were_given) {
  Options options = options_for({Operation::unidirectional}, "8");
  options.rounds = {{{1, 0}}};
  options.ends = {Place::host, Place::device};
  const Transfer sent = make_plan(options, 2, as_transfers)[0].at(8).groups[0].steps[0][0];
  CHECK_EQUAL(sent, (Transfer{1, 0, 8, 0, 0, false, Place::host, Place::device}));
}

TEST(plan_refuses_to_put_the_buffers_of_anything_but_pairs) {
  for (const Operation operation : {Operation::alltoall, Operation::rail_unidirectional, Operation::local_copy}) {
    Options options = options_for({operation}, "64");
    options.ends = {Place::host, Place::device};
    CHECK(check::message_of<InputError>([&] { make_plan(options, 2, as_transfers); }).find("--buffers") !=
          std::string::npos);
  }
}

// Those of all ranks would be 17 million transfers of 800 MB on every rank.
TEST(plan_gives_a_rank_of_a_collective_its_own_transfers_only) {
  constexpr int kRanks = 4096;
  Options options = options_for({Operation::alltoall, Operation::allreduce, Operation::broadcast}, "64KiB");
  const auto library = [](Operation, Implementation) { return Implementation::library; };
  for (const Chooser& choose : {Chooser(library), Chooser(as_transfers)}) {
    const auto plan = make_plan(options, kRanks, choose);
    const auto step = [&](std::size_t series, int rank) {
      return plan[series].at(plan[series].sizes[0], rank).groups[0].steps[0];
    };
    const Step alltoall = step(0, 5);
    CHECK_EQUAL(alltoall.size(), 2u * kRanks - 1);
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (const Transfer& transfer : alltoall) {
      sent += transfer.source == 5 ? transfer.bytes : 0;
      received += transfer.destination == 5 ? transfer.bytes : 0;
    }
    CHECK_EQUAL(sent, 65536u);
    CHECK_EQUAL(received, 65536u);
    CHECK_EQUAL(step(1, 5).size(), 2u * kRanks - 1);
    CHECK_EQUAL(step(2, 5).size(), 1u);
    CHECK_EQUAL(step(2, 0).size(), kRanks - 1u);
  }
}

TEST(a_rule_has_every_pair_once_and_no_rank_twice_in_a_round) {
  for (int groups = 2; groups <= 9; ++groups) {
    for (const int size : {1, 3}) {
      for (const int directions : {1, 2}) {
        std::set<std::pair<int, int>> alone;
        const PairRule one_by_one{groups * size, size, directions, false};
        for (std::size_t round = 0; round < one_by_one.rounds(); ++round) {
          const auto pairs = one_by_one.pairs(round);
          CHECK_EQUAL(pairs.size(), 1u);
          CHECK(alone.empty() || *alone.rbegin() < pairs[0]);
          alone.insert(pairs[0]);
        }
        std::set<std::pair<int, int>> together;
        const PairRule rule{groups * size, size, directions, true};
        CHECK_EQUAL(rule.rounds(), static_cast<std::size_t>((groups - 1 + groups % 2) * directions));
        for (std::size_t round = 0; round < rule.rounds(); ++round) {
          std::set<int> busy;
          for (const auto& [a, b] : rule.pairs(round)) {
            CHECK(busy.insert(a).second && busy.insert(b).second);
            CHECK(together.insert({a, b}).second);
            CHECK_EQUAL(a % size, b % size);
          }
        }
        CHECK(alone == together);
        CHECK_EQUAL(alone.size(), rule.pair_count());
        CHECK(rule.hash() != one_by_one.hash());
      }
    }
  }
}

TEST(a_screen_has_turns_that_are_spread_over_all) {
  const PairRule all{24, 2, 2, true};
  CHECK(all.with_turns(11).turns == 0 && all.with_turns(99).turns == 0 && all.with_turns(0).turns == 0);
  const PairRule screen = all.with_turns(3);
  CHECK_EQUAL(screen.rounds(), 6u);
  CHECK_EQUAL(screen.pair_count(), 6u * 12u);
  for (std::size_t round = 0; round < 6; ++round)
    CHECK(screen.pairs(round) == all.pairs(round / 2 * 11 / 3 * 2 + round % 2));
  CHECK(screen.hash() != all.hash());
}

// What one of 4,096 ranks holds of plans that, written out, are 16 million pairs or messages.
TEST(plan_of_many_ranks_is_small) {
  constexpr int kRanks = 4096;
  constexpr long kMost = 50L << 20;
  for (const Operation operation : {Operation::pingpong, Operation::bidirectional, Operation::alltoall,
                                    Operation::symmetric_omnidirectional, Operation::victim_alltoall_alltoall}) {
    const long grown = growth_of_memory([&] {
      Options options = options_for({operation}, "8,1GiB");
      options.group_size = 8;
      options.shapes = {{kRanks / 8, 8, 8}};
      if (!has_shape(operation)) options.shapes.clear();
      const auto plan = make_plan(options, kRanks, as_transfers);
      bool fine = record_count(plan) > 0 && buffer_bytes(plan) > 0 && host_buffer_bytes(plan, options, false).send == 0;
      for (const Series& series : plan) {
        for (const std::size_t round : {std::size_t{0}, series.rounds() / 2, series.rounds() - 1})
          fine = fine && !series.at(series.sizes.back(), 5, round).groups.empty();
      }
      return fine;
    });
    CHECK(grown < kMost);
  }
}
