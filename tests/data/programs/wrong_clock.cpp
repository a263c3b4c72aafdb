// The clocks of the C library, at RATE of their speed on WRONG_RANK, or on all ranks.
#include <sys/syscall.h>
#include <unistd.h>
#include <cstdlib>
#include <cstring>
#include <ctime>

static bool is_wrong() {
  const char* wrong = std::getenv("WRONG_RANK");
  const char* own = std::getenv("OMPI_COMM_WORLD_RANK");
  return std::strcmp(wrong, "all") == 0 || (own != nullptr && std::strcmp(wrong, own) == 0);
}

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static const double rate = is_wrong() ? std::atof(std::getenv("RATE")) : 1;
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_RAW) return result;
  const auto ns =
      static_cast<long long>(rate * (1e9 * static_cast<double>(time->tv_sec) + static_cast<double>(time->tv_nsec)));
  time->tv_sec = ns / 1000000000;
  time->tv_nsec = ns % 1000000000;
  return result;
}
