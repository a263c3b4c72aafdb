#include "fabricbench/measure.hpp"

#include <unistd.h>
#include <csignal>
#include <ctime>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "fabricbench/caches.hpp"
#include "fabricbench/contention.hpp"
#include "fabricbench/environment.hpp"
#include "fabricbench/statistics.hpp"
#include "fabricbench/verify.hpp"

namespace fabricbench {
namespace {

constexpr double kWantedHalfWidth = 0.01;
constexpr double kWarmupShare = 0.2;
constexpr std::int64_t kLargestBatch = 500;
// By a train of that many it is judged how long the operations of a longer one take, which overlap.
constexpr std::int64_t kProbedTrain = 2;
// Of smaller copies latency is what is looked at, of which an application's data are in a cache.
constexpr std::uint64_t kLeastUncached = std::uint64_t{64} << 10;
// Iterations of a victim alone, then as many beside its aggressors, so that what drifts drifts in both.
constexpr std::int64_t kTurn = 20;

// What rank 0 decides after each batch.
struct Decision {
  std::int64_t iterations;
  std::int64_t stopped;  // index into kWhyStopped where iterations is 0
};
const char* const kWhyStopped[] = {"fixed", "converged", "budget", "maximum"};
enum Stopped : std::int64_t { kFixed, kConverged, kBudget, kMaximum };

class Loop {
 public:
  Loop(const Measurement& measurement, const Options& options, const Context& context, Transport& transport,
       Totals& totals)
      : measurement_(measurement),
        options_(options),
        context_(context),
        totals_(totals),
        warms_(measurement.operation == Operation::pingpong && options.train == 0 && options.ccl.graph_calls == 0 &&
               measurement.bytes < kWarmBelow),
        lanes_(measurement.aggressor || warms_ ? 2 : 1),
        calls_(std::max<std::int64_t>({options.ccl.graph_calls, options.train, 1})),
        ring_(ring_for(options, measurement.operation, measurement.groups[0].ranks, measurement.bytes,
                       measurement.shape, device::present())),
        times_(measurement.groups.size() * lanes_),
        read_by_others_(transport.others_read(measurement.operation)) {
    for (const TrainingPart& part : measurement.parts) {
      Measurement alone = measurement;
      alone.operation = part.operation;
      const Group group{part.ranks, part.steps};
      verifiers_.push_back(std::make_unique<Verifier>(context, alone, &group, ring_));
    }
    if (measurement.parts.empty())
      verifiers_.push_back(std::make_unique<Verifier>(context, measurement, find_group(), ring_));
    if (measurement.aggressor) contention_.emplace(context.world, context.shared, measurement);
    if (const Group* group = find_group(); group != nullptr) {
      work_ = transport.prepare(measurement, *group);
      uncached_ = host_memory(*group);
      // Who receives is ready before a rank that only sends at first starts its clock.
      if (!is_collective(measurement.operation) && !contention_) {
        wait_for_ = awaited_by(context.world.rank, group->steps);
        notify_ = awaiting(context.world.rank, group->steps);
      }
    }
  }

  std::vector<Record> all() {
    fill();
    const std::int64_t warmup = warm_up();
    const std::int64_t start = now_ns();
    Decision next = decide_first();
    const char* stopped = kWhyStopped[kFixed];
    while (next.iterations > 0) {
      batch(next.iterations, true);
      next = decide(now_ns() - start);
      if (next.iterations == 0) stopped = kWhyStopped[next.stopped];
    }
    return records(warmup, stopped);
  }

 private:
  const Group* find_group() const {
    for (const Group& group : measurement_.groups) {
      if (has_me(group)) return &group;
    }
    if (measurement_.aggressor && has_me(*measurement_.aggressor)) return &*measurement_.aggressor;
    return nullptr;
  }

  bool has_me(const Group& group) const {
    return std::find(group.ranks.begin(), group.ranks.end(), context_.world.rank) != group.ranks.end();
  }

  // Of large copies between memories, what lies in the host's: it comes from there and not from a cache. Pages that
  // migrate are left alone, as the processor would draw them to it.
  std::vector<std::pair<const std::byte*, std::size_t>> host_memory(const Group& group) const {
    std::vector<std::pair<const std::byte*, std::size_t>> blocks;
    if (!is_memory_path(measurement_.operation) || context_.host_kind == device::HostKind::migrated) return blocks;
    for (const Step& step : group.steps) {
      for (const Transfer& transfer : step) {
        if (transfer.source != context_.world.rank || transfer.bytes < kLeastUncached) continue;
        const std::size_t bytes = transfer.bytes + (ring_.slots - 1) * ring_.pitch;
        if (transfer.source_place == Place::host) blocks.emplace_back(source_of(transfer, context_), bytes);
        if (transfer.destination_place == Place::host) blocks.emplace_back(destination_of(transfer, context_), bytes);
      }
    }
    return blocks;
  }

  bool verifies() const { return options_.verify != Verify::off; }

  // Iterations in which nothing but the operation happens between the barriers.
  void iterate(std::int64_t* times, std::int64_t count, bool keep) {
    for (std::int64_t i = 0; i < count; ++i) {
      const bool last = keep && i + 1 == count;
      const bool all_bytes = draw(last);
      if (verifies() && read_by_others_) context_.shared.barrier();
      if (work_) renew(all_bytes);
      if (work_) count_verifying();
      make_ready();
      context_.shared.barrier(wait_for_, notify_);
      plant_hang();
      context_.shared.advance();
      if (work_) warms_ ? run_warm(times + 2 * i) : void(times[i] = timed_run());
      if (work_) check(all_bytes, last);
      context_.shared.advance();
    }
    if (work_) count_verifying();
  }

  std::int64_t timed_run() {
    const std::int64_t start = now_ns();
    const std::int64_t by_device = run();
    ended_ns_ = now_ns();
    return (by_device >= 0 ? by_device : ended_ns_ - start) / calls_;
  }

  // Round trips one after the other, whose times are pairs: of the last one, by the clock of who begins, and of the
  // first one, which is cold.
  void run_warm(std::int64_t* times) {
    std::int64_t start = now_ns();
    for (std::uint64_t i = 0; i < kWarmRoundTrips; ++i) {
      work_->run(ring_.shift_of(i));
      const std::int64_t end = now_ns();
      if (i == 0) times[1] = end - start;
      times[0] = notify_.empty() ? end - start : 0;
      start = end;
    }
    ended_ns_ = start;
  }

  // The same of victims, whose times are pairs: alone, and beside the aggressors, which go on through all iterations of
  // a turn. The times of an aggressor share out how long it took.
  void take_turns(std::int64_t* times, std::int64_t count, bool keep) {
    for (std::int64_t done = 0; done < count; done += kTurn) {
      const std::int64_t turn = std::min(kTurn, count - done);
      for (const int lane : {0, 1}) {
        std::int64_t* first = times + 2 * done + lane;
        const bool last = keep && lane == 1 && done + turn == count;
        context_.shared.barrier();
        plant_hang();
        context_.shared.advance();
        if (contention_->is_victim()) {
          attend(first, turn, lane == 1, last);
        } else if (lane == 1) {
          const bool all_bytes = draw(last);
          renew(all_bytes);
          const std::int64_t spent = contention_->attack(*work_);
          ended_ns_ = now_ns();
          check(all_bytes, last);
          count_verifying();
          for (std::int64_t i = 0; i < turn; ++i) first[2 * i] = spent / turn / calls_;
        }
      }
    }
  }

  // A victim's turn.
  void attend(std::int64_t* times, std::int64_t count, bool beside, bool last) {
    if (beside) contention_->await_attack();
    for (std::int64_t i = 0; i < count; ++i) {
      const bool is_last = last && i + 1 == count;
      const bool all_bytes = draw(is_last);
      if (verifies()) contention_->meet();
      renew(all_bytes);
      contention_->begin();
      times[2 * i] = timed_run();
      check(all_bytes, is_last);
      count_verifying();
      context_.shared.advance();
    }
    if (beside) contention_->end_attack();
  }

  // Outside the clock.
  void make_ready() {
    if (!is_memory_path(measurement_.operation)) return;
    const std::int64_t start = now_ns();
    for (const auto& [data, bytes] : uncached_) take_out_of_caches(data, bytes);
    if (work_) work_->rewind();
    readying_ns_ += now_ns() - start;
  }

  // Its time where the device took it, else -1.
  std::int64_t run() {
    ++ring_.turn;
    if (options_.train > 0 || ring_.operations > 1) return work_->run_train(ring_);
    work_->run(0);
    return -1;
  }

  void batch(std::int64_t count, bool keep) {
    local_.assign(static_cast<std::size_t>(count) * lanes_, 0);
    const std::int64_t start = now_ns();
    readying_ns_ = 0;
    if (contention_) {
      take_turns(local_.data(), count, keep);
    } else {
      iterate(local_.data(), count, keep);
    }
    if (contention_ && !keep) contention_->forget_attacks();
    if (verifies()) {
      wrong_ = 0;
      for (const auto& verifier : verifiers_) wrong_ += verifier->wrong_bytes();
    }
    gather(keep);
    // Where a cache is slow to give its lines back, that takes longer than the copies do.
    if (is_memory_path(measurement_.operation)) {
      std::int64_t longest = 0;
      mpi_check(MPI_Reduce(&readying_ns_, &longest, 1, MPI_INT64_T, MPI_MAX, 0, context_.world.all), "MPI_Reduce");
      typical_ns_ += longest / count;
    }
    // Filling and checking all data may take longer than to move them.
    if (options_.verify == Verify::every || (verifies() && context_.in_place()))
      typical_ns_ = std::max(typical_ns_, (now_ns() - start) / count);
  }

  void fill() {
    if (!verifies()) return;
    const std::int64_t start = now_ns();
    // Nobody may still be reading what this rank sent before.
    context_.shared.barrier();
    for (const auto& verifier : verifiers_) verifier->fill();
    ended_ns_ = now_ns();
    totals_.verify_ns += ended_ns_ - start;
  }

  // Whether every byte of the next iteration is looked at.
  bool draw(bool last) { return full_checks_.draw() || last || options_.verify == Verify::every; }

  void renew(bool all_bytes) {
    if (!verifies()) return;
    for (const auto& verifier : verifiers_) {
      if (options_.verify == Verify::every) {
        verifier->fill();
      } else {
        verifier->stamp(all_bytes);
      }
    }
  }

  // Straight after the clock, so that what was said to be done before it was is seen.
  void check(bool all_bytes, bool last) {
    if (!verifies()) return;
    if (options_.injected == "wrong-byte" && injected_here() && last) verifiers_.back()->plant_wrong_byte();
    for (const auto& verifier : verifiers_) verifier->check(all_bytes);
  }

  void share_out_checks(std::int64_t iteration_ns) {
    const std::int64_t start = now_ns();
    std::int64_t longer = 0;
    for (const auto& verifier : verifiers_) longer += verifier->ns_of_all_bytes();
    full_checks_.share_out(longer, iteration_ns, context_.world);
    context_.shared.advance();
    totals_.verify_ns += now_ns() - start;
  }

  // What passed since the operation ended; a clock read before each check and stamp would cost as much as they do.
  void count_verifying() {
    if (!verifies()) return;
    const std::int64_t now = now_ns();
    totals_.verify_ns += now - ended_ns_;
    ended_ns_ = now;
  }

  // Brings the times of a batch to rank 0 and keeps the maximum over the ranks of each group. How many more iterations
  // there is time for goes by the slowest rank of all, which an aggressor is that ends after its victims.
  void gather(bool keep) {
    // Waiting for the slowest rank is measuring, not recording.
    context_.shared.barrier();
    const std::int64_t start = now_ns();
    const World& world = context_.world;
    const auto count = local_.size();
    std::vector<std::int64_t> all(world.rank == 0 ? count * static_cast<std::size_t>(world.size) : 0);
    mpi_check(MPI_Gather(local_.data(), static_cast<int>(count), MPI_INT64_T, all.data(), static_cast<int>(count),
                         MPI_INT64_T, 0, world.all),
              "MPI_Gather");
    context_.shared.advance();
    if (world.rank == 0) {
      std::vector<std::int64_t> slowest(count, 0);
      std::vector<std::int64_t> spent(count, 0);
      for (std::size_t i = 0; i < all.size(); ++i) spent[i % count] = std::max(spent[i % count], all[i]);
      for (std::size_t g = 0; g < measurement_.groups.size(); ++g) {
        for (std::size_t i = 0; i < count; ++i) {
          std::int64_t maximum = 0;
          for (const int rank : measurement_.groups[g].ranks)
            maximum = std::max(maximum, all[static_cast<std::size_t>(rank) * count + i]);
          if (keep) times_[g * lanes_ + i % lanes_].push_back(maximum);
          slowest[i] = std::max(slowest[i], maximum);
        }
      }
      for (std::size_t i = 0; keep && i < count; i += warms_ ? lanes_ : 1) totals_.timed_ns += slowest[i];
      call_ns_ = typical_iteration_ns(spent, lanes_);
      typical_ns_ = calls_ * call_ns_;
    }
    totals_.recording_ns += now_ns() - start;
  }

  template <typename Value>
  Value from_root(Value value) {
    const std::int64_t start = now_ns();
    mpi_check(MPI_Bcast(&value, sizeof value, MPI_BYTE, 0, context_.world.all), "MPI_Bcast");
    context_.shared.advance();
    totals_.recording_ns += now_ns() - start;
    return value;
  }

  void have_calls(std::int64_t calls) {
    calls_ = calls;
    ring_.operations = static_cast<std::uint64_t>(calls);
  }

  void warm(std::int64_t count) {
    const std::int64_t start = now_ns();
    batch(count, false);
    if (options_.verify == Verify::batch) share_out_checks((now_ns() - start) / count);
  }

  // The first iteration makes connections, the second says how long one takes, and so how long a train is.
  std::int64_t warm_up() {
    const bool shortens = options_.train > 0 && options_.warmup > 1 && !options_.fixed_iterations;
    if (shortens) have_calls(kProbedTrain);
    std::int64_t done = 0;
    for (; done < std::min<std::int64_t>(options_.warmup, 2); ++done) warm(1);
    if (shortens) {
      have_calls(from_root(affordable_train(options_.budget_s / kFewestIterations, call_ns_, options_.train)));
      typical_ns_ += (calls_ - kProbedTrain) * call_ns_;
      fill();
    }
    std::int64_t more = options_.warmup - done;
    if (!options_.fixed_iterations) more = std::min(more, affordable(kWarmupShare * options_.budget_s));
    more = from_root(more);
    if (more > 0) warm(more);
    return done + more;
  }

  // Going by the batch before.
  std::int64_t affordable(double seconds) const { return affordable_iterations(seconds, typical_ns_); }

  Decision decide_first() {
    std::int64_t first = 0;
    if (options_.fixed_iterations) {
      first = std::min(*options_.fixed_iterations, kLargestBatch);
    } else {
      first = std::clamp(affordable(options_.budget_s), kFewestIterations, options_.minimum_iterations);
    }
    return from_root(Decision{first, kFixed});
  }

  Decision decide(std::int64_t spent_ns) {
    Decision decision{0, kFixed};
    if (context_.world.rank == 0) {
      const auto done = static_cast<std::int64_t>(times_[0].size());
      if (options_.fixed_iterations) {
        decision.iterations = std::min(*options_.fixed_iterations - done, kLargestBatch);
      } else if (converged()) {
        decision.stopped = kConverged;
      } else if (done >= options_.maximum_iterations) {
        decision.stopped = kMaximum;
      } else {
        const double left = options_.budget_s - static_cast<double>(spent_ns) / 1e9;
        decision.iterations =
            std::min({done, options_.maximum_iterations - done, affordable(std::max(left, 0.0)), kLargestBatch});
        if (decision.iterations == 0) decision.stopped = kBudget;
      }
    }
    return from_root(decision);
  }

  bool converged() const {
    for (std::size_t i = 0; i < times_.size(); i += warms_ ? lanes_ : 1) {
      if (!knows_median(times_[i], kWantedHalfWidth)) return false;
    }
    return true;
  }

  std::vector<Record> records(std::int64_t warmup, const char* stopped) {
    const World& world = context_.world;
    std::vector<std::uint64_t> wrong(world.rank == 0 ? static_cast<std::size_t>(world.size) : 0);
    mpi_check(MPI_Gather(&wrong_, 1, MPI_UINT64_T, wrong.data(), 1, MPI_UINT64_T, 0, world.all), "MPI_Gather");
    const std::vector<std::int64_t> repetitions =
        contention_ ? contention_->repetition_times() : std::vector<std::int64_t>{};
    std::vector<Record> result;
    if (world.rank != 0) return result;
    const auto wrong_of = [&](const Group& group) {
      std::int64_t total = 0;
      for (const int rank : group.ranks) total += static_cast<std::int64_t>(wrong[static_cast<std::size_t>(rank)]);
      return total;
    };
    for (std::size_t g = 0; g < measurement_.groups.size(); ++g) {
      const Group& group = measurement_.groups[g];
      for (std::size_t lane = 0; lane < (warms_ ? 1 : lanes_); ++lane) {
        // A batch is checked once, so that a wrong byte may be of either lane; those of the aggressor are of the
        // second.
        std::int64_t total = verifies() ? wrong_of(group) : -1;
        if (verifies() && lane == 1) total += wrong_of(*measurement_.aggressor);
        const Schedule schedule = lane == 1 ? Schedule::contended : measurement_.schedule;
        result.push_back({measurement_.operation,
                          measurement_.implementation,
                          schedule,
                          measurement_.round,
                          group.ranks,
                          measurement_.bytes,
                          warmup,
                          stopped,
                          total,
                          std::move(times_[g * lanes_ + lane]),
                          measurement_.shape,
                          0,
                          0,
                          {}});
        if (lane == 1)
          result.back().aggressor = {measurement_.aggressor->ranks, measurement_.aggressor_bytes, repetitions};
        if (warms_) result.back().cold_ns = std::move(times_[g * lanes_ + 1]);
        if (verifies()) result.back().verified_after = verified_after(result.back().times_ns.size());
      }
    }
    return result;
  }

  std::uint64_t verified_after(std::size_t iterations) const {
    if (options_.verify == Verify::every || context_.in_place()) return 1;
    return std::min<std::uint64_t>(static_cast<std::uint64_t>(full_checks_.each()), iterations);
  }

  bool injected_here() const {
    return context_.world.rank == (options_.injected_rank >= 0 ? options_.injected_rank : context_.world.size - 1);
  }

  // Planted once the first size is measured, so that a run with a defect still holds something.
  void plant_hang() {
    if (options_.injected.empty() || !injected_here() || totals_.records == 0) return;
    if (options_.injected == "hang") {
      for (;;) pause();
    }
    if (options_.injected == "kill") raise(SIGKILL);
    if (options_.injected == "crash") raise(SIGSEGV);
  }

  const Measurement& measurement_;
  const Options& options_;
  const Context& context_;
  Totals& totals_;
  std::vector<std::unique_ptr<Verifier>> verifiers_;  // of all that this rank moves, or of each of its parts
  std::unique_ptr<Work> work_;
  std::vector<std::pair<const std::byte*, std::size_t>> uncached_;
  std::vector<int> wait_for_;
  std::vector<int> notify_;
  std::optional<Contention> contention_;
  bool warms_;  // with round trips before the timed one
  std::size_t
      lanes_;  // times of a group in an iteration: 2 where it is alone and beside an aggressor, or warm and cold
  std::int64_t calls_;  // of the operation in an iteration, as one graph or a train; its time is that of one call
  pattern::Ring ring_;  // where their data are
  std::vector<std::int64_t> local_;
  std::vector<std::vector<std::int64_t>> times_;
  std::int64_t typical_ns_ = 0;  // of an iteration of the last batch; on rank 0
  FullChecks full_checks_;
  std::int64_t call_ns_ = 0;  // of one operation of it; on rank 0
  std::int64_t readying_ns_ = 0;
  std::int64_t ended_ns_ = 0;  // when the operation before did, or what was verified since
  bool read_by_others_;        // whether others may read what this rank sent when its own part is done
  std::uint64_t wrong_ = 0;
};

}  // namespace

std::vector<Record> measure(const Measurement& measurement, const Options& options, const Context& context,
                            Transport& transport, Totals& totals) {
  return Loop(measurement, options, context, transport, totals).all();
}

}  // namespace fabricbench
