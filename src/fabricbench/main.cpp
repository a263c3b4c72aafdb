// fabricbench: reads its arguments, starts MPI, runs the session, and ends in a way that a launcher understands.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "fabricbench/device/device.hpp"
#include "fabricbench/environment.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/help.hpp"
#include "fabricbench/options.hpp"
#include "fabricbench/plan_list.hpp"
#include "fabricbench/preparation.hpp"
#include "fabricbench/private_log.hpp"
#include "fabricbench/proof.hpp"
#include "fabricbench/secrets.hpp"
#include "fabricbench/session.hpp"
#include "fabricbench/watchdog.hpp"

namespace fabricbench {
namespace {

// While there is no watchdog: before MPI has started, and when it ends.
std::string hanging;
// A launcher ends all ranks with the first one: so long other nodes have to report, too.
constexpr unsigned kForOthers_s = 3;

void say_that_mpi_hangs(int) {
  remove_private_log();
  if (write(STDERR_FILENO, hanging.data(), hanging.size()) > 0) sleep(kForOthers_s);
  _exit(kExitFailed);
}

// `what` hangs where it is not over in time. Every rank reports it, so that a node that does not is known.
void begin_to_wait(const char* what, double timeout_s) {
  alarm(0);
  hanging = "fabricbench: " + host_name() + ": " + what + "\n";
  std::signal(SIGALRM, say_that_mpi_hangs);
  alarm(static_cast<unsigned>(std::ceil(timeout_s)));
}

// Some libraries do not come back from it.
void finalize(double timeout_s) {
  begin_to_wait("MPI_Finalize did not return: everything was measured, and the job hangs", timeout_s);
  MPI_Finalize();
  alarm(0);
}

int report(const World& world, const char* message, int status) {
  if (world.rank == 0 && *message != '\0') std::fprintf(stderr, "fabricbench: %s\n", message);
  return status;
}

// oneCCL calls MPI from threads of its own.
int thread_level(const Options& options) {
  const bool uses_ccl = options.transport == "ccl" ||
                        std::count(options.step_transports.begin(), options.step_transports.end(), "ccl") > 0;
  return uses_ccl && std::strcmp(device::backend(), "sycl") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
}

Options options_of(std::string program, std::vector<std::string> arguments) {
  std::vector<char*> words{program.data()};
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  return parse_options(static_cast<int>(words.size()) - 1, words.data());
}

int list_pairs(const Options& options) {
  try {
    print_pairs(options);
  } catch (const InputError& error) {
    std::fprintf(stderr, "fabricbench: %s\n", error.what());
    return kExitInput;
  }
  return 0;
}

// All plans of a list are of the same library: by the first whose options are right it is known what that library has
// to be told before it starts.
Options first_options(const char* program, const std::vector<ListedPlan>& plans) {
  for (const ListedPlan& plan : plans) {
    try {
      return options_of(program, plan.arguments);
    } catch (const InputError&) {
      // It is reported when the turn of this plan comes.
    }
  }
  return {};
}

// Measures one plan; its exit status. What fails on one rank ends the program on all.
int run_plan(Options options, Invocation invocation, const World& world, Proof& proof, std::int64_t begin) {
  try {
    return run_session(std::move(options), std::move(invocation), world, proof, begin);
  } catch (const InputError& error) {
    return report(world, error.what(), kExitInput);
  } catch (const UnsupportedError& error) {
    return report(world, error.what(), kExitUnsupported);
  }
}

// Measures the plans of the list that no earlier launch has begun. Each has its own exit status.
void run_list(const std::vector<ListedPlan>& plans, const Invocation& invocation, const World& world, Proof& proof,
              std::int64_t begin) {
  for (const ListedPlan& plan : plans) {
    const PlanFolder folder(plan, world);
    if (folder.taken()) continue;
    Invocation own = invocation;
    own.command.resize(1);
    for (const std::string& argument : plan.arguments) own.command.push_back(redacted(argument));
    int status = kExitInput;
    try {
      Options options = options_of(own.command.front(), plan.arguments);
      begin_to_wait("the ranks did not meet before a plan", start_limit_s(options.timeout_s, world.size));
      proof.begin_plan();
      status = run_plan(std::move(options), std::move(own), world, proof, begin);
    } catch (const InputError& error) {
      report(world, error.what(), kExitInput);
    }
    if (world.rank == 0) folder.leave_status(status);
    begin = now_ns();
  }
}

int run(int argc, char** argv) {
  const std::int64_t begin = now_ns();
  Options options;
  std::vector<ListedPlan> plans;
  std::string mistake;
  try {
    options = parse_options(argc, argv);
    if (!options.plans.empty()) {
      plans = read_plans(options.plans);
      options = first_options(argv[0], plans);
    }
  } catch (const InputError& error) {
    mistake = error.what();
  }
  if (options.show_help) return std::printf("%s", help_text().c_str()) < 0;
  if (options.show_operations) return std::printf("%s\n", operations_json().c_str()) < 0;
  if (options.list_pairs > 0 && mistake.empty()) return list_pairs(options);
  if (options.show_version)
    return std::printf("fabricbench %s (%s backend)\n", FABRICBENCH_VERSION, device::backend()) < 0;

  Proof proof(options.transport, argv);
  Invocation invocation{redacted(std::vector<std::string>(argv, argv + argc)), recorded_environment(),
                        local_rank_from_environment()};
  for (const std::string& name : proof.own_variables()) invocation.environment.erase(name);
  select_device_early(options, invocation.local);
  int provided = 0;
  begin_to_wait("MPI did not start: is a node down, or a link between nodes?",
                start_limit_s(options.timeout_s, std::max(launched_ranks(), 0)));
  if (MPI_Init_thread(&argc, &argv, thread_level(options), &provided) != MPI_SUCCESS) {
    std::fprintf(stderr, "fabricbench: MPI_Init_thread failed\n");
    return kExitFailed;
  }
  const double timeout_s = options.timeout_s;
  int status = 0;
  try {
    const World world;
    if (!mistake.empty()) {
      status = report(world, mistake.c_str(), kExitInput);
    } else if (plans.empty()) {
      status = run_plan(std::move(options), std::move(invocation), world, proof, begin);
    } else {
      run_list(plans, invocation, world, proof, begin);
    }
  } catch (const InputError& error) {
    status = kExitInput;
    std::fprintf(stderr, "fabricbench: %s\n", error.what());
  } catch (const RunError& error) {
    std::fprintf(stderr, "fabricbench: %s\n", error.what());
    remove_private_log();
    MPI_Abort(MPI_COMM_WORLD, kExitFailed);
  }
  finalize(timeout_s);
  return status;
}

}  // namespace
}  // namespace fabricbench

int main(int argc, char** argv) { return fabricbench::run(argc, argv); }
