#include "fabricbench/watchdog.hpp"

#include <time.h>
#include <unistd.h>
#include <csignal>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "fabricbench/environment.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/private_log.hpp"
#include "fabricbench/proof_logs.hpp"
#include "fabricbench/ras.hpp"
#include "fabricbench/secrets.hpp"
#include "fabricbench/text.hpp"

namespace fabricbench {
namespace {

constexpr auto kStopped = std::chrono::seconds(1);
// When a rank ends the launcher may end the others. So rank 0 waits until all nodes have spoken, which notice up to an
// iteration later, and the others until it has written its record.
constexpr double kShareForOthers = 0.25, kLeastForOthers_s = 1, kForRecord_s = 2;
// Rank 0 is done with asking the library that much before the other ranks end, some of which began to wait earlier.
constexpr double kBeforeOthers_s = 0.5;

struct Handled {
  const World* world = nullptr;
  NodeShared* shared = nullptr;
  ResultFile* results = nullptr;
};
Handled handled;

void say(const char* text, std::size_t length) { (void)!write(STDERR_FILENO, text, length); }
void say(const char* text) { say(text, std::strlen(text)); }
void say(int number) {
  const Digits digits(number);
  say(digits.data(), digits.size());
}

// Little may be called in here.
void on_signal(int signal) {
  // SIGTERM and SIGINT come from outside, to all ranks: only a rank's own crash is news for the others.
  const bool own = signal != SIGTERM && signal != SIGINT;
  if (!own) handled.shared->leave_told();
  const int lost = own ? -1 : handled.shared->lost_rank();
  if (handled.results == nullptr && own) {
    char message[64];
    const Digits rank(handled.world->rank);
    const Digits number(signal);
    char* end = message;
    const auto add = [&end](const char* text, std::size_t length) {
      std::memcpy(end, text, length);
      end += length;
    };
    constexpr char kWas[] = " was ended by signal ";
    add("rank ", 5);
    add(rank.data(), rank.size());
    add(kWas, sizeof kWas - 1);
    add(number.data(), number.size());
    *end = '\0';
    handled.shared->leave_message("crash", message);
    timespec moment{0, 500'000'000};
    nanosleep(&moment, nullptr);
  }
  if (handled.results != nullptr) handled.results->write_crash(signal, own, lost);
  if (lost >= 0 && handled.world->node_rank == 0) {
    say("fabricbench: rank ");
    say(lost);
    say(" was killed: did its node run out of memory (dmesg), or did somebody end it?\n");
  } else if (handled.results != nullptr || own) {
    say("fabricbench: rank ");
    say(handled.world->rank);
    say(own ? " was ended by signal " : " was ended from outside by signal ");
    say(signal);
    say("\n");
  }
  remove_private_log();
  ::signal(signal, SIG_DFL);
  raise(signal);
}

std::string list(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + format_ranges(ranks);
}

}  // namespace

Watchdog::Watchdog(const World& world, NodeShared& shared, ResultFile* results, TimeLimits limits,
                   std::string ras_library)
    : world_(world),
      shared_(shared),
      results_(results),
      limits_(limits),
      ras_library_(std::move(ras_library)),
      thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Watchdog::measures() {
  const std::lock_guard<std::mutex> lock(mutex_);
  preparing_.store(nullptr);
  measures_since_ = std::chrono::steady_clock::now();
  throttled_before_ns_ = throttled_ns();
}

Pauses Watchdog::pauses() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Pauses pauses = pauses_;
  pauses.throttled_ns = throttled_ns() - throttled_before_ns_;
  return pauses;
}

void Watchdog::watch() {
  std::uint64_t last = shared_.progress_of(world_.node_rank);
  auto since = std::chrono::steady_clock::now();
  const auto begun = since;
  auto looked = since;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!wake_.wait_for(lock, kTick, [&] { return done_; })) {
    if (results_ != nullptr) {
      char message[512];
      for (int rank = 0; rank < world_.node_size; ++rank) {
        if (shared_.message_of(rank, message, sizeof message)) {
          results_->write_error(shared_.kind_of_message(rank), message);
          std::fprintf(stderr, "fabricbench: %s\n", message);
          remove_private_log();
          _exit(kExitFailed);
        }
      }
    }
    const auto time = std::chrono::steady_clock::now();
    const std::uint64_t now = shared_.progress_of(world_.node_rank);
    // A process that was stopped cannot say that the others stood still: a launcher wakes it to end it.
    if (now != last || time - looked > kStopped) {
      last = now;
      since = time;
    } else if (std::chrono::duration<double>(time - since).count() > limit_s()) {
      expire_still();
    }
    if (limits_.whole_s > 0 && std::chrono::duration<double>(time - begun).count() > limits_.whole_s) {
      char message[96];
      std::snprintf(message, sizeof message, "the plan did not end within its time limit of %g s", limits_.whole_s);
      expire(message, {});
    }
    if (measures_since_ != decltype(measures_since_){} && looked >= measures_since_) {
      pauses_.add(std::chrono::nanoseconds(looked - measures_since_).count(),
                  std::chrono::nanoseconds(time - looked - kTick).count());
    }
    looked = time;
  }
}

std::vector<int> Watchdog::ranks_behind() const {
  std::uint64_t furthest = 0;
  for (int rank = 0; rank < world_.node_size; ++rank) furthest = std::max(furthest, shared_.progress_of(rank));
  std::vector<int> behind;
  for (int rank = 0; rank < world_.node_size; ++rank) {
    if (shared_.progress_of(rank) < furthest || shared_.is_stopped(rank))
      behind.push_back(world_.node_ranks[static_cast<std::size_t>(rank)]);
  }
  return behind;
}

// The node, and the first devices of ranks of it: (on nid001, GPU 2 at 0000:28:00.0).
std::string Watchdog::place_of(const std::vector<int>& ranks) const {
  constexpr std::size_t kMost = 2;
  std::string text = " (on " + host_name();
  for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i) {
    const std::string device = shared_.device_of(world_.node_rank_of(ranks[i]));
    if (!device.empty()) text += ", " + device;
  }
  return text + ')';
}

// The first rank of the node that is not itself behind. A node that does not report is known by that.
bool Watchdog::speaks_for_node(const std::vector<int>& behind) const {
  const auto first = std::find_if(world_.node_ranks.begin(), world_.node_ranks.end(), [&](int rank) {
    return std::find(behind.begin(), behind.end(), rank) == behind.end();
  });
  return first != world_.node_ranks.end() && *first == world_.rank;
}

// After the record is written: the other ranks do not wait for this, and the launcher may end this process with them.
void Watchdog::ask_library(const std::string& warned, double limit_s) {
  const std::string address = ras_library_.empty() ? "" : ras_address();
  const double most_s = std::min(limit_s, std::chrono::duration<double>(kRasLimit).count());
  const auto limit = std::chrono::milliseconds(static_cast<int>(1000 * most_s));
  const std::string status = address.empty() ? "" : ask_ras(address, world_.size, limit);
  std::string problems = status.empty() ? "" : ras_problems(status);
  if (!warned.empty()) problems += (problems.empty() ? "" : "; ") + redacted(warned);
  if (problems.empty()) return;
  results_->add_to_error(problems);
  std::fprintf(stderr, "%s says: %s\n", ras_library_.c_str(), problems.c_str());
}

void Watchdog::expire_still() {
  const std::vector<int> behind = ranks_behind();
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g s", limit_s());
  const char* preparing = preparing_.load();
  std::string message = std::string("no progress for ") + seconds;
  if (preparing != nullptr) message += std::string(" while ") + preparing;
  message += ": ";
  if (!behind.empty()) {
    message += list(behind) + " did not arrive" + place_of(behind);
  } else {
    message += "all ranks of the node of rank " + std::to_string(world_.rank) + " wait for each other" +
               (preparing == nullptr ? " inside the operation" : "");
    if (world_.node_count > 1) message += ", or for another node";
  }
  expire(message, behind);
}

void Watchdog::expire(const std::string& message, const std::vector<int>& behind) {
  const auto start = std::chrono::steady_clock::now();
  const bool recorded = results_ != nullptr && results_->write_error("timeout", message, behind);
  const std::string warned = recorded ? warnings_in_ccl_log(read_private_log()) : "";
  // Before the wait, in which a launcher may end this process.
  remove_private_log();
  if (speaks_for_node(behind)) std::fprintf(stderr, "fabricbench: %s\n", message.c_str());
  const double for_others_s =
      world_.node_count > 1 ? std::max(kLeastForOthers_s, kShareForOthers * limits_.still_s) : 0;
  if (recorded) ask_library(warned, for_others_s + kForRecord_s - kBeforeOthers_s);
  const double for_record_s = results_ == nullptr ? kForRecord_s : 0;
  std::this_thread::sleep_until(start + std::chrono::duration<double>(for_others_s + for_record_s));
  _exit(kExitTimeout);
}

SignalHandlers::SignalHandlers(const World& world, NodeShared& shared, ResultFile* results) {
  handled.world = &world;
  handled.shared = &shared;
  handled.results = results;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGINT}) {
    struct sigaction action{};
    action.sa_handler = on_signal;
    action.sa_flags = SA_NODEFER;
    struct sigaction before{};
    sigaction(signal, &action, &before);
    before_.emplace_back(signal, before);
  }
}

SignalHandlers::~SignalHandlers() {
  for (const auto& [signal, before] : before_) sigaction(signal, &before, nullptr);
  handled = {};
}

}  // namespace fabricbench
