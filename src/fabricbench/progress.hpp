// What is being measured right now, for the thread that says so when it ends.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

namespace fabricbench {

// The operation and the size of a measurement; no operation between measurements.
struct Progress {
  std::string operation;
  std::uint64_t bytes = 0;
};

// Written by the thread that measures and read by the watchdog: every reader sees an operation with its own size.
class CurrentProgress {
 public:
  void set(Progress progress) {
    const std::lock_guard<std::mutex> lock(mutex_);
    progress_ = std::move(progress);
  }
  Progress get() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return progress_;
  }

 private:
  mutable std::mutex mutex_;
  Progress progress_;
};

}  // namespace fabricbench
