#include "fabricbench/descriptors.hpp"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "fabricbench/errors.hpp"

namespace fabricbench {
namespace {

// Since Linux 5.3 and 5.6; the C library of a system may be older.
constexpr long kPidfdOpen = 434;
constexpr long kPidfdGetfd = 438;

}  // namespace

void let_descriptors_be_fetched() {
  // Where there is no Yama the call fails and is not needed.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

int fetch_descriptor(std::int32_t pid, int theirs) {
  const auto process = static_cast<int>(syscall(kPidfdOpen, pid, 0));
  const auto mine = process < 0 ? -1 : static_cast<int>(syscall(kPidfdGetfd, process, theirs, 0));
  const int reason = errno;
  if (process >= 0) ::close(process);
  if (mine < 0) {
    throw RunError("library", "the handle of the memory of process " + std::to_string(pid) +
                                  " cannot be fetched (pidfd_getfd: " + std::strerror(reason) +
                                  "): it takes Linux 5.6, and ranks of one user in one container");
  }
  return mine;
}

}  // namespace fabricbench
