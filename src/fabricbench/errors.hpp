// How a run ends early: a mistake of the user, what the machine does not support, or what failed.
#pragma once

#include <stdexcept>
#include <string>

namespace fabricbench {

// A mistake in what the user asked for. Every rank raises it alike; rank 0 prints it; exit status 2.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What was asked for needs something that this machine does not have; exit status 6. Every rank raises it alike.
struct UnsupportedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A library call, an allocation or a device failed on this rank; `kind` is the result file's error kind.
struct RunError : std::runtime_error {
  RunError(std::string kind_, const std::string& message) : std::runtime_error(message), kind(std::move(kind_)) {}
  std::string kind;
};

inline constexpr int kExitInput = 2;
inline constexpr int kExitFailed = 3;
inline constexpr int kExitTimeout = 4;
inline constexpr int kExitWrongData = 5;
inline constexpr int kExitUnsupported = 6;

}  // namespace fabricbench
