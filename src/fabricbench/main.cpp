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
#include "fabricbench/preparation.hpp"
#include "fabricbench/private_log.hpp"
#include "fabricbench/proof.hpp"
#include "fabricbench/secrets.hpp"
#include "fabricbench/session.hpp"
#include "fabricbench/watchdog.hpp"

namespace fabricbench {
namespace {

// While there is no watchdog: before MPI has started, and when it ends.
const char* volatile hanging = nullptr;

void say_that_mpi_hangs(int) {
  const char* message = hanging;
  remove_private_log();
  if (write(STDERR_FILENO, message, std::strlen(message)) < 0) _exit(kExitFailed);
  _exit(kExitFailed);
}

void begin_to_wait(const char* message, double timeout_s) {
  hanging = message;
  std::signal(SIGALRM, say_that_mpi_hangs);
  alarm(static_cast<unsigned>(std::ceil(timeout_s)));
}

// Some libraries do not come back from it.
void finalize(double timeout_s) {
  begin_to_wait("fabricbench: MPI_Finalize did not return: everything was measured, and the job hangs\n", timeout_s);
  MPI_Finalize();
  alarm(0);
}

int report_and_end(const char* message, int status) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0 && *message != '\0') std::fprintf(stderr, "fabricbench: %s\n", message);
  MPI_Finalize();
  return status;
}

// oneCCL calls MPI from threads of its own.
int thread_level(const Options& options) {
  const bool uses_ccl = options.transport == "ccl" ||
                        std::count(options.step_transports.begin(), options.step_transports.end(), "ccl") > 0;
  return uses_ccl && std::strcmp(device::backend(), "sycl") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
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

int run(int argc, char** argv) {
  const std::int64_t begin = now_ns();
  Options options;
  std::string mistake;
  try {
    options = parse_options(argc, argv);
  } catch (const InputError& error) {
    mistake = error.what();
  }
  if (options.show_help) return std::printf("%s", help_text().c_str()) < 0;
  if (options.show_operations) return std::printf("%s\n", operations_json().c_str()) < 0;
  if (options.list_pairs > 0 && mistake.empty()) return list_pairs(options);
  if (options.show_version)
    return std::printf("fabricbench %s (%s backend)\n", FABRICBENCH_VERSION, device::backend()) < 0;

  Proof proof(options.transport, argv);
  auto environment = recorded_environment();
  for (const std::string& name : proof.own_variables()) environment.erase(name);
  const LocalRank local = local_rank_from_environment();
  select_device_early(options, local);
  int provided = 0;
  begin_to_wait("fabricbench: MPI did not start: is a node down, or a link between nodes?\n",
                setup_limit_s(options.timeout_s, std::max(launched_ranks(), 0)));
  if (MPI_Init_thread(&argc, &argv, thread_level(options), &provided) != MPI_SUCCESS) {
    std::fprintf(stderr, "fabricbench: MPI_Init_thread failed\n");
    return kExitFailed;
  }
  if (!mistake.empty()) return report_and_end(mistake.c_str(), kExitInput);
  const double timeout_s = options.timeout_s;
  int status = 0;
  try {
    status = run_session(std::move(options),
                         {redacted(std::vector<std::string>(argv, argv + argc)), environment, local}, proof, begin);
  } catch (const InputError& error) {
    return report_and_end(error.what(), kExitInput);
  } catch (const UnsupportedError& error) {
    return report_and_end(error.what(), kExitUnsupported);
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
