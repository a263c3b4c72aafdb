#include <cstdio>
#include <map>
#include <random>

#include "check.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/options.hpp"
#include "fabricbench/plan.hpp"
#include "fabricbench/text.hpp"

using namespace fabricbench;

namespace {

Options parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "fabricbench");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  return parse_options(static_cast<int>(arguments.size()), pointers.data());
}

std::string mistake(const std::vector<std::string>& arguments) {
  return check::message_of<InputError>([&] { parse(arguments); });
}

}  // namespace

TEST(sizes_are_powers_of_1024_with_a_unit) {
  CHECK_EQUAL(parse_size("8"), 8u);
  CHECK_EQUAL(parse_size("8B"), 8u);
  CHECK_EQUAL(parse_size("4KiB"), 4096u);
  CHECK_EQUAL(parse_size("1GiB"), 1u << 30);
  for (const char* wrong : {"", "0", "-1", "1kB", "1GB", "1.5MiB", "GiB", "18446744073709551615GiB", "1 KiB"}) {
    CHECK(check::message_of<InputError>([&] { parse_size(wrong); }).find("is not a size") != std::string::npos);
  }
}

TEST(size_ranges_and_lists) {
  CHECK_EQUAL(parse_sizes("1B:1GiB").size(), 31u);
  CHECK_EQUAL(parse_sizes("1:64:4"), (std::vector<std::uint64_t>{1, 4, 16, 64}));
  CHECK_EQUAL(parse_sizes("1MiB,8,8"), (std::vector<std::uint64_t>{8, 1u << 20}));
  CHECK(check::message_of<InputError>([] { parse_sizes("2:1"); }).find("empty") != std::string::npos);
  CHECK(check::message_of<InputError>([] { parse_sizes("1:2:1"); }).find("factor") != std::string::npos);
}

TEST(options_have_the_documented_defaults) {
  const Options options = parse({});
  CHECK_EQUAL(options.transport, "mpi");
  CHECK_EQUAL(options.operations, std::vector<Operation>{Operation::pingpong});
  CHECK_EQUAL(options.sizes.front(), 1u);
  CHECK_EQUAL(options.sizes.back(), 1u << 30);
  CHECK(!options.fixed_iterations);
}

TEST(options_are_read) {
  const Options options = parse({"--transport", "ccl", "--operations=alltoall,reduce", "--iterations", "100", "--pairs",
                                 "0-1,3-2", "--inject", "hang:1"});
  CHECK_EQUAL(options.transport, "ccl");
  CHECK_EQUAL(options.operations.size(), 2u);
  CHECK_EQUAL(*options.fixed_iterations, 100);
  CHECK_EQUAL(options.pairs[1].first, 3);
  CHECK_EQUAL(options.injected, "hang");
  CHECK_EQUAL(options.injected_rank, 1);
}

TEST(shapes_of_groups_are_read) {
  CHECK_EQUAL(parse_shapes("2x3x1-3,4x3x2"), (std::vector<Shape>{{2, 3, 1}, {2, 3, 2}, {2, 3, 3}, {4, 3, 2}}));
  CHECK_EQUAL(parse_shapes("2-4x1x1").size(), 3u);
  const auto message = [](const char* text) { return check::message_of<InputError>([&] { parse_shapes(text); }); };
  CHECK(message("2x3x4").find("4 active ranks in groups of 3") != std::string::npos);
  CHECK(message("2x3x1,2x3x1-2").find("twice") != std::string::npos);
  CHECK(message("2x3x3-1").find("is empty") != std::string::npos);
  for (const char* wrong : {"", "2x3", "1x3x1", "2x0x0", "2x3x0", "2x3x1-2-3", "axbxc", "2x3x1,", "2147483647x2x1"})
    CHECK(message(wrong) != "(nothing was thrown)");
}

TEST(mistakes_are_named_with_what_to_do) {
  CHECK(mistake({"--transport", "tcp"}).find("choose from staging, copy, kernel, ccl, mpi") != std::string::npos);
  CHECK(mistake({"--operations", "pingpong,gossip"}).find("'gossip'") != std::string::npos);
  CHECK(mistake({"--iterations", "0"}).find("at least 1") != std::string::npos);
  CHECK(mistake({"--iterations", "1e3"}).find("'1e3'") != std::string::npos);
  CHECK(mistake({"--budget", "nan"}).find("above 0") != std::string::npos);
  CHECK(mistake({"--nonsense"}).find("--nonsense") != std::string::npos);
  CHECK(mistake({"--sizes"}).find("needs a value") != std::string::npos);
  CHECK(mistake({"stray"}).find("'stray'") != std::string::npos);
  CHECK(mistake({"--pairs", "1-1"}).find("same rank twice") != std::string::npos);
  CHECK(mistake({"--step-transports", "copy,ccl"}).find("each of split, translate and assemble") != std::string::npos);
  CHECK(mistake({"--step-transports", "copy,tcp,copy"}).find("'tcp'") != std::string::npos);
  CHECK(mistake({"--step-transports", "mpi,mpi,mpi", "--operations", "striping_pipelined"}).find("by one transport") !=
        std::string::npos);
  CHECK(mistake({"--rounds", "f", "--pairs", "0-1"}).find("--pairs") != std::string::npos);
  CHECK(mistake({"--rounds", "f", "--pairs", "rails"}).find("--pairs") != std::string::npos);
  CHECK(mistake({"--devices", "0,,2"}).find("a device") != std::string::npos);
  CHECK(mistake({"--rounds", ""}).find("name of a file") != std::string::npos);
  CHECK(mistake({"--rounds", "f", "--operations", "alltoall"}).find("--rounds has pairs") != std::string::npos);
  CHECK(mistake({"--min-iterations", "10", "--max-iterations", "9"}).find("--max-iterations") != std::string::npos);
}

TEST(collectives_in_place_and_types_are_read_and_their_mistakes_named) {
  const Options options =
      parse({"--transport=ccl", "--operations=allreduce,reduce_scatter", "--in-place=yes", "--datatype=float8_e4m3"});
  CHECK(options.in_place);
  CHECK(options.data_type == DataType::float8_e4m3);
  CHECK(!parse({"--in-place=no"}).in_place);
  const auto says = [](const std::vector<std::string>& arguments, const char* what) {
    return mistake(arguments).find(what) != std::string::npos;
  };
  CHECK(says({"--operations=alltoall", "--in-place=yes"}, "alltoall has no form in place"));
  CHECK(says({"--operations=allreduce", "--in-place=yes", "--train=8"}, "overwrites its input"));
  CHECK(says({"--operations=pingpong", "--train=8"}, "train"));
  CHECK(says({"--operations=unidirectional", "--train=1"}, "train"));
  CHECK(says({"--transport=ccl", "--operations=allreduce", "--in-place=yes", "--ccl-mode=graph-4"}, "overwrites"));
  CHECK(says({"--operations=allreduce", "--datatype=bfloat16"}, "reductions by --transport ccl"));
  CHECK(says({"--transport=ccl", "--operations=allgather", "--datatype=bfloat16"}, "reductions by --transport ccl"));
  CHECK(says({"--datatype=int4"}, "float32, float16, bfloat16, float8_e4m3, float8_e5m2"));
}

TEST(options_of_memory_paths_are_read) {
  const Options options = parse({"--buffers", "host-device", "--access=read", "--host-memory", "migrated",
                                 "--host-numa=remote", "--together", "0+2,0+1+2", "--ranks-per-device", "2"});
  CHECK(options.ends == (Ends{Place::host, Place::device}));
  CHECK(options.access == Access::read);
  CHECK(options.host_memory == device::HostKind::migrated);
  CHECK(options.host_placement == HostPlacement::remote);
  CHECK_EQUAL(options.together, (std::vector<std::vector<int>>{{0, 2}, {0, 1, 2}}));
  CHECK_EQUAL(options.ranks_per_device, 2);
  CHECK_EQUAL(parse({"--devices", "0,2,4"}).devices, (std::vector<int>{0, 2, 4}));
  CHECK(parse({"--pairs", "rails"}).rails && parse({"--pairs", "rails"}).pairs.empty());
  for (const char* kind : {"pageable", "pinned", "noncoherent", "managed", "migrated"})
    CHECK_EQUAL(to_string(*parse({"--host-memory", kind}).host_memory), kind);
  for (const char* ends : {"device-device", "host-device", "device-host", "host-host"})
    CHECK_EQUAL(to_string(parse({"--buffers", ends}).ends), ends);
}

TEST(mistakes_about_memory_paths_are_named) {
  CHECK(mistake({"--buffers", "host"}).find("choose from device-device") != std::string::npos);
  CHECK(mistake({"--host-memory", "unified"}).find("choose from pageable") != std::string::npos);
  CHECK(mistake({"--together", "1"}).find("write 0+2") != std::string::npos);
  CHECK(mistake({"--together", "1+1"}).find("rank 1 twice") != std::string::npos);
}

TEST(nics_and_messages_are_of_the_transport_fabric) {
  const Options options = parse(
      {"--transport=fabric", "--nic=mlx5_0,mlx5_1", "--access=send", "--train=16", "--operations=unidirectional"});
  CHECK_EQUAL(options.nic, "mlx5_0,mlx5_1");
  CHECK(options.access == Access::send);
  CHECK_EQUAL(to_string(options.access), "send");
  CHECK_EQUAL(parse({"--transport=fabric"}).nic, "near");
  CHECK(mistake({"--nic=0"}).find("fabric") != std::string::npos);
  CHECK(mistake({"--access=send", "--transport=copy"}).find("fabric") != std::string::npos);
  CHECK(mistake({"--transport=fabric", "--nic="}).find("near, all") != std::string::npos);
}

TEST(a_burn_in_has_a_time_and_a_product) {
  const Options options = parse({"--burn-in=600", "--product=float64", "--product-order=256", "--product-by=kernel"});
  CHECK_EQUAL(options.burn_in_s, 600.0);
  CHECK(options.product == product::Type::float64);
  CHECK_EQUAL(*options.product_order, 256u);
  CHECK(!options.product_by_library);
  for (const char* wrong : {"--burn-in=0", "--burn-in=-1", "--burn-in=1e8", "--burn-in=nan", "--burn-in=x"})
    CHECK(mistake({wrong}).find("'") != std::string::npos);
  for (const char* wrong : {"--product-order=0", "--product-order=100", "--product-order=65536"})
    CHECK(mistake({"--burn-in=1", wrong}).find("' is ") != std::string::npos);
  CHECK(parse({"--burn-in=1", "--compute-only"}).compute_only);
  for (const char* alone : {"--product=float32", "--compute-only"})
    CHECK(mistake({alone}).find("add --burn-in") != std::string::npos);
  CHECK(mistake({"--burn-in=1", "--train=4", "--operations=unidirectional"}).find("--train") != std::string::npos);
}

TEST(every_number_has_bounds) {
  const std::map<std::string, std::vector<const char*>> beyond = {
      {"iterations", {"0", "10000001"}},
      {"min-iterations", {"7", "10000001"}},
      {"max-iterations", {"7", "10000001"}},
      {"warmup", {"0", "1000001", "9223372036854775807"}},
      {"train", {"1", "257"}},
      {"group-size", {"0", "16777217"}},
      {"ranks-per-device", {"0", "16777217", "4294967296"}},
      {"expect-ranks", {"0", "16777217"}},
      {"expect-nodes", {"0", "16777217"}},
      {"turns", {"0", "16777217"}},
      {"list-pairs", {"1", "65537"}},
      {"timeout", {"0", "10000001", "1e300", "inf"}},
      {"time-limit", {"-1", "1e8"}},
      {"budget", {"0", "1e8"}},
      {"burn-in", {"0", "1e8"}},
      {"sizes", {"0", "1048577GiB", "17592186044416GiB"}},
      {"aggressor-size", {"0", "1048577GiB"}},
      {"devices", {"-1", "16777217"}},
      {"inject", {"hang:-1", "hang:16777217"}},
      {"groups", {"2x8000000x1-8000000", "2-16777217x1x1", "2x4097x1-4097"}},
      {"split", {"1x1", "16777217x1", "1x16777217"}},
  };
  for (const auto& [option, values] : beyond) {
    for (const char* value : values) CHECK(mistake({"--" + option, value}) != "(nothing was thrown)");
  }
  for (const char* fits : {"--iterations=10000000", "--warmup=1000000", "--timeout=1e7", "--turns=16777216",
                           "--ranks-per-device=16777216", "--list-pairs=65536", "--sizes=1048576GiB"})
    CHECK_EQUAL(mistake({fits}), "(nothing was thrown)");
}

// Any list of arguments is a plan with buffers of a known size, or a mistake that is named.
TEST(arguments_of_any_kind_end_in_a_plan_or_a_mistake) {
  const std::vector<std::string> names = {
      "transport",    "step-transports", "ccl-mode",   "operations",     "implementation",   "schedules",
      "pairs",        "groups",          "group-size", "split",          "victims",          "aggressor-size",
      "together",     "buffers",         "in-place",   "datatype",       "access",           "handles",
      "nic",          "host-memory",     "host-numa",  "sizes",          "iterations",       "min-iterations",
      "budget",       "warmup",          "train",      "max-iterations", "burn-in",          "product",
      "verify",       "timeout",         "devices",    "product-order",  "ranks-per-device", "turns",
      "expect-ranks", "list-pairs",      "inject"};
  const std::vector<std::string> values = {"",
                                           "0",
                                           "1",
                                           "-1",
                                           "2",
                                           "7",
                                           "8B",
                                           "9223372036854775807",
                                           "1e300",
                                           "nan",
                                           "0x10",
                                           "4294967296",
                                           "1:1GiB",
                                           "3:1MiB",
                                           "1048576GiB",
                                           "2x2x1-2",
                                           "2x1x1",
                                           "4x1x1",
                                           "0-1",
                                           "0-3,2-1",
                                           "0,1",
                                           "0,1,2,3",
                                           "0+1,1+2",
                                           "nodes",
                                           "rails",
                                           "2x2",
                                           "1x4",
                                           "all",
                                           "pingpong",
                                           "copy",
                                           "mpi",
                                           "ccl",
                                           "allreduce,alltoall",
                                           "host_to_device,host_bidirectional",
                                           "striping,training_step",
                                           "unidirectional",
                                           "victim_alltoall_incast",
                                           "rail_omnidirectional",
                                           "symmetric_omnidirectional",
                                           "contended",
                                           "host-device",
                                           "managed",
                                           "yes",
                                           "bfloat16",
                                           "graph-20",
                                           "registered",
                                           "library",
                                           "transfers",
                                           "every",
                                           "off"};
  const Chooser chooser = [](Operation operation, Implementation wanted) {
    return is_reduction(operation) || wanted == Implementation::library ? Implementation::library
                                                                        : Implementation::transfers;
  };
  std::mt19937 chance(61);
  const auto any = [&](const auto& of) { return of[chance() % of.size()]; };
  int plans = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::string> arguments;
    for (std::size_t count = 1 + chance() % 3; count > 0; --count)
      arguments.push_back("--" + any(names) + "=" + any(values));
    try {
      const Options options = parse(arguments);
      const std::vector<Series> plan = make_plan(options, 1 + static_cast<int>(chance() % 8), chooser);
      CHECK(record_count(plan) > 0 && ring_bytes(plan, options, chance() % 2 == 0) > 0);
      host_buffer_bytes(plan, options, true);
      ++plans;
    } catch (const InputError& error) {
      CHECK(error.what()[0] != '\0');
    }
  }
  CHECK(plans > 100);
}

TEST(a_file_without_an_end_is_refused) {
  CHECK(check::message_of<InputError>([] { read_input("/dev/zero", "--matrix"); }).find("--matrix") == 0);
}
