#include "fabricbench/burn_in.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "fabricbench/environment.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/json.hpp"
#include "fabricbench/preparation.hpp"
#include "fabricbench/statistics.hpp"
#include "fabricbench/telemetry.hpp"
#include "fabricbench/verify.hpp"

namespace fabricbench {
namespace {

constexpr double kMostWindows = 600;
constexpr double kMostAlone = 10;       // seconds
constexpr double kMostOfProduct = 0.1;  // seconds: of ten products and more a window has order statistics
constexpr std::uint64_t kMostCopied = std::uint64_t{64} << 20;
// The share of a window in which all ranks meet after each product, and the most such meetings.
constexpr double kMeetingShare = 0.05;
constexpr std::size_t kMostMeetings = 200;
// A thread that waits for a device sleeps meanwhile: the cores belong to the traffic.
constexpr std::chrono::microseconds kNap{50};
constexpr std::chrono::milliseconds kLongNap{100};

enum class Phase { compute, traffic, copies, together };
constexpr const char* kPhases[] = {"compute", "traffic", "copies", "together"};
bool has(Phase phase, Phase part) { return phase == part || phase == Phase::together; }

std::int64_t ns_of(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

void wait_for(const device::Mark& mark) {
  while (!mark.passed()) std::this_thread::sleep_for(kNap);
}

// Repeats a turn in a thread of its own, which makes no MPI call.
class Worker {
 public:
  ~Worker() {
    going_ = false;
    if (thread_.joinable()) thread_.join();
  }
  template <typename Task>
  void start(Task& task, int device_index) {
    going_ = true;
    thread_ = std::thread([this, &task, device_index] {
      try {
        if (device_index >= 0) device::select(device_index);
        while (going_) task.turn();
        task.finish();
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
  }
  // Returns when all that was begun has ended. Throws what the turns threw.
  void stop() {
    going_ = false;
    if (thread_.joinable()) thread_.join();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  std::atomic<bool> going_{false};
  std::thread thread_;
  std::exception_ptr failure_;
};

// Products of the same factors, one queued behind the other, each compared with the first.
class Products {
 public:
  Products(const BurnInPlan& plan, bool by_library)
      : plan_(plan),
        multiplier_(stream_, plan.product, plan.order, by_library),
        a_(plan.order * plan.order * product::factor_bytes(plan.product)),
        b_(plan.order * plan.order * product::factor_bytes(plan.product)),
        first_(result_bytes()),
        result_(result_bytes()),
        differences_(sizeof(product::Differences)) {
    multiplier_.fill(a_.data(), false);
    multiplier_.fill(b_.data(), true);
    multiplier_.multiply(a_.data(), b_.data(), first_.data());
    forget();
    stream_.synchronize();
  }

  const product::Multiplier& multiplier() const { return multiplier_; }
  const TimeCounts& times() const { return times_; }

  // Of the first product, with which all others are compared.
  std::int64_t wrong_rows() {
    const product::Check check(plan_.product, plan_.order);
    std::vector<std::byte> row(plan_.order * product::result_bytes(plan_.product));
    std::int64_t wrong = 0;
    for (std::uint64_t i = 0; i < plan_.order; ++i) {
      stream_.copy(row.data(), first_.data() + i * row.size(), row.size());
      stream_.synchronize();
      wrong += check.is_right(i, row.data()) ? 0 : 1;
    }
    return wrong;
  }

  void turn() {
    Flight& flight = flights_[static_cast<std::size_t>(number_) % flights_.size()];
    land(flight);
    flight.begin.record(stream_);
    for (int i = 0; i < repeats_; ++i) multiplier_.multiply(a_.data(), b_.data(), result_.data());
    flight.end.record(stream_);
    flight.is_under_way = true;
    if (flips_bit_.exchange(false)) flip_bit();
    multiplier_.compare(result_.data(), first_.data(), number_,
                        reinterpret_cast<product::Differences*>(differences_.data()));
    ++number_;
  }

  void finish() {
    for (Flight& flight : flights_) land(flight);
    stream_.synchronize();
  }

  // What was counted since forget().
  product::Differences differences() {
    product::Differences counted{};
    stream_.copy(&counted, differences_.data(), sizeof counted);
    stream_.synchronize();
    return counted;
  }
  void forget() {
    const product::Differences none{0, product::kNoDifference};
    stream_.copy(differences_.data(), &none, sizeof none);
    stream_.synchronize();
    times_.clear();
  }

  // Planted defects: of the next product, and of all from now on.
  void plant_flipped_bit() { flips_bit_ = true; }
  void plant_slowness() { repeats_ = 16; }

 private:
  struct Flight {
    device::Mark begin;
    device::Mark end;
    bool is_under_way = false;
  };

  std::size_t result_bytes() const { return plan_.order * plan_.order * product::result_bytes(plan_.product); }

  void land(Flight& flight) {
    if (!flight.is_under_way) return;
    wait_for(flight.end);
    times_.add(flight.end.ns_since(flight.begin));
    flight.is_under_way = false;
  }

  void flip_bit() {
    std::byte* word = result_.data() + result_bytes() / 2;
    std::byte held{};
    stream_.copy(&held, word, 1);
    stream_.synchronize();
    held ^= std::byte{1};
    stream_.copy(word, &held, 1);
    stream_.synchronize();
  }

  const BurnInPlan& plan_;
  device::Stream stream_;
  product::Multiplier multiplier_;
  device::Memory a_;
  device::Memory b_;
  device::Memory first_;
  device::Memory result_;
  device::Memory differences_;
  std::array<Flight, 3> flights_;
  std::uint64_t number_ = 0;
  TimeCounts times_;
  std::atomic<bool> flips_bit_{false};
  int repeats_ = 1;
};

// Copies to the device and from it at the same time.
class Copies {
 public:
  Copies(std::uint64_t bytes, int numa_node)
      : bytes_(bytes),
        source_(host_memory_on(numa_node, false, bytes, kind())),
        target_(host_memory_on(numa_node, false, bytes, kind())),
        there_(bytes),
        from_there_(bytes) {
    up_.set_byte(from_there_.data(), bytes, 0);
    up_.synchronize();
  }
  const TimeCounts& times() const { return times_; }
  void forget() { times_.clear(); }

  void turn() {
    begin_.record(up_);
    up_.copy(there_.data(), source_.data(), bytes_);
    down_.copy(target_.data(), from_there_.data(), bytes_);
    up_end_.record(up_);
    down_end_.record(down_);
    wait_for(up_end_);
    wait_for(down_end_);
    times_.add(std::max(up_end_.ns_since(begin_), down_end_.ns_since(begin_)));
  }
  void finish() {}

 private:
  static device::HostKind kind() { return device::present() ? device::HostKind::pinned : device::HostKind::pageable; }

  std::uint64_t bytes_;
  device::HostMemory source_;
  device::HostMemory target_;
  device::Memory there_;
  device::Memory from_there_;
  device::Stream up_;
  device::Stream down_;
  device::Mark begin_;
  device::Mark up_end_;
  device::Mark down_end_;
  TimeCounts times_;
};

// The plan's measurement, iteration by iteration with a barrier before each, as it is measured by itself.
class Traffic {
 public:
  Traffic(const Measurement& measurement, const Options& options, const Context& context, Transport& transport)
      : context_(context),
        verifies_(options.verify != Verify::off),
        group_(group_of(measurement, context.world.rank)),
        verifier_(context, measurement, group_, one_slot_) {
    if (group_ == nullptr) return;
    work_ = transport.prepare(measurement, *group_);
    if (is_collective(measurement.operation)) return;
    wait_for_ = awaited_by(context.world.rank, group_->steps);
    notify_ = awaiting(context.world.rank, group_->steps);
  }
  const TimeCounts& times() const { return times_; }

  void forget() { times_.clear(); }
  void fill() {
    if (!verifies_) return;
    context_.shared.barrier();
    verifier_.fill();
  }
  void iterate() {
    if (verifies_) context_.shared.barrier();
    const bool all_bytes = full_checks_.draw();
    if (work_ && verifies_) verifier_.stamp(all_bytes);
    if (work_) work_->rewind();
    context_.shared.barrier(wait_for_, notify_);
    context_.shared.advance();
    if (!work_) return;
    const std::int64_t start = now_ns();
    work_->run(0);
    times_.add(now_ns() - start);
    if (verifies_) verifier_.check(all_bytes);
    context_.shared.advance();
  }
  // Collective, after a window.
  void share_out_checks() {
    if (verifies_) full_checks_.share_out(verifier_.ns_of_all_bytes(), times_.quantile(0.5), context_.world);
    context_.shared.advance();
  }
  // Bytes that were wrong since the last call.
  std::int64_t wrong_bytes() {
    if (!verifies_) return 0;
    const std::uint64_t all = verifier_.wrong_bytes();
    return static_cast<std::int64_t>(all - std::exchange(wrong_so_far_, all));
  }

 private:
  static const Group* group_of(const Measurement& measurement, int rank) {
    for (const Group& group : measurement.groups) {
      if (std::find(group.ranks.begin(), group.ranks.end(), rank) != group.ranks.end()) return &group;
    }
    return nullptr;
  }

  const Context& context_;
  bool verifies_;
  const Group* group_;
  const pattern::Ring one_slot_;
  Verifier verifier_;
  FullChecks full_checks_;
  std::unique_ptr<Work> work_;
  std::vector<int> wait_for_;
  std::vector<int> notify_;
  TimeCounts times_;
  std::uint64_t wrong_so_far_ = 0;
};

// What of times is kept: their number, median, 99th percentile and maximum.
using Summary = std::array<std::int64_t, 4>;
Summary summary_of(const TimeCounts& times) {
  return {times.count(), times.quantile(0.5), times.quantile(0.99), times.most()};
}
Summary summary_of(const std::vector<std::int64_t>& times) {
  TimeCounts counts;
  for (const std::int64_t time : times) counts.add(time);
  return summary_of(counts);
}

template <typename Work>
Summary summary_of(const std::optional<Work>& work) {
  return work ? summary_of(work->times()) : Summary{};
}

// A rank's part of a window, as it travels to rank 0.
struct Part {
  std::array<Summary, 3> times;  // of products, traffic and copies
  std::int64_t wrong_words;
  std::uint64_t first_wrong;
  std::int64_t wrong_bytes;
};

// By rank, how long it held the others up: in a ring, and in an allreduce.
using Delays = std::array<std::vector<Summary>, 2>;

// Opens an object of that name.
void summaries_json(Json& json, const char* name, const std::vector<Summary>& ranks) {
  json.key(name).begin_object();
  std::size_t index = 0;
  for (const char* key : {"count", "median_ns", "p99_ns", "max_ns"}) {
    json.key(key).begin_array();
    for (const Summary& summary : ranks) json.value(summary[index]);
    json.end_array();
    ++index;
  }
}

class BurnIn {
 public:
  BurnIn(const Measurement& measurement, const Options& options, const Context& context, Transport& transport,
         ResultFile* results, Totals& totals)
      : options_(options),
        context_(context),
        world_(context.world),
        results_(results),
        totals_(totals),
        plan_(burn_in_plan(options)),
        products_(plan_, options.product_by_library),
        telemetry_(world_, context.device_index) {
    if (options.compute_only) return;
    traffic_.emplace(measurement, options, context, transport);
    copies_.emplace(plan_.copy_bytes, host_node(options, world_, context.device_index));
  }

  void run() {
    write_first();
    context_.shared.barrier();
    began_ = now_ns();
    if (options_.compute_only) return go_on(Phase::compute, began_ + ns_of(plan_.seconds));
    for (const Phase phase : {Phase::compute, Phase::traffic, Phase::copies}) {
      go_on(phase, now_ns() + ns_of(plan_.alone_seconds));
    }
    go_on(Phase::together, began_ + ns_of(plan_.seconds));
  }

 private:
  // Whether the first product, to which all others are held, is right.
  void write_first() {
    const std::int64_t wrong_rows = products_.wrong_rows();
    context_.shared.advance();
    const auto by = world_.strings_at_first(products_.multiplier().by());
    const auto wrong = world_.strings_at_first(std::to_string(wrong_rows));
    const std::string reason = world_.first_said(products_.multiplier().why_no_library());
    if (world_.rank != 0) return;
    Json json;
    json.begin_object().field("record", "burn_in").field("by", by);
    if (!reason.empty()) json.field("why_no_library", reason);
    json.key("wrong_rows").begin_array();
    for (const std::string& rows : wrong) {
      json.literal(rows);
      totals_.wrong_words += std::stoll(rows);
    }
    json.end_array().end_object();
    results_->write_line(json.text());
  }

  // Windows until that time by the clock of rank 0; one at least.
  void go_on(Phase phase, std::int64_t end) {
    std::int64_t length = 0;
    do {
      const double left = static_cast<double>(end - now_ns()) / 1e9;
      length = ns_of(std::clamp(left, 0.0, plan_.window_seconds));
      mpi_check(MPI_Bcast(&length, 1, MPI_INT64_T, 0, world_.all), "MPI_Bcast");
      window(phase, length);
    } while (goes_on(end - ns_of(plan_.window_seconds / 2)));
  }

  bool goes_on(std::int64_t end) const {
    int more = now_ns() < end ? 1 : 0;
    mpi_check(MPI_Bcast(&more, 1, MPI_INT, 0, world_.all), "MPI_Bcast");
    return more == 1;
  }

  void window(Phase phase, std::int64_t length) {
    const std::string utc = utc_now();
    products_.forget();
    if (copies_) copies_->forget();
    plant(phase);
    if (traffic_) traffic_->forget();
    if (has(phase, Phase::traffic)) traffic_->fill();
    context_.shared.barrier();
    const std::int64_t begin = now_ns();
    {
      Worker computing;
      Worker copying;
      if (has(phase, Phase::compute)) computing.start(products_, context_.device_index);
      if (has(phase, Phase::copies)) copying.start(*copies_, context_.device_index);
      if (has(phase, Phase::traffic)) {
        do {
          traffic_->iterate();
        } while (goes_on(begin + length));
      } else {
        for (; now_ns() < begin + length; context_.shared.advance()) {
          const std::chrono::nanoseconds left(begin + length - now_ns());
          std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, kLongNap));
        }
      }
      computing.stop();
      copying.stop();
    }
    context_.shared.advance();
    if (has(phase, Phase::traffic)) traffic_->share_out_checks();
    const std::int64_t wrong_bytes = has(phase, Phase::traffic) ? traffic_->wrong_bytes() : 0;
    Part mine{{summary_of(products_.times()), summary_of(traffic_), summary_of(copies_)}, 0, 0, wrong_bytes};
    Delays delays;
    if (phase == Phase::together && world_.size > 1) delays = meet(length);
    const product::Differences differences = products_.differences();
    mine.wrong_words = static_cast<std::int64_t>(differences.words);
    mine.first_wrong = differences.first;
    std::vector<Part> parts(world_.rank == 0 ? static_cast<std::size_t>(world_.size) : 0);
    mpi_check(MPI_Gather(&mine, sizeof mine, MPI_BYTE, parts.data(), sizeof mine, MPI_BYTE, 0, world_.all),
              "MPI_Gather");
    const auto nodes = world_.strings_at_first(telemetry_.window_json(number_));
    if (world_.rank == 0) write(phase, begin, utc, parts, delays, nodes);
    ++number_;
    context_.shared.advance();
  }

  // When all go together for the first time.
  void plant(Phase phase) {
    const bool here = world_.rank == (options_.injected_rank >= 0 ? options_.injected_rank : world_.size - 1);
    if (phase != Phase::together || !here || planted_) return;
    planted_ = true;
    if (options_.injected == "wrong-product") products_.plant_flipped_bit();
    if (options_.injected == "slow-product") products_.plant_slowness();
  }

  // Who holds the others up, when all multiply once and then meet: in a ring, in which each rank waits for its left
  // neighbour, and in an allreduce, in which each waits for all. Only waits are compared, each by the clock of who
  // waits, so that no two clocks have to agree. From an allreduce all ranks are let go at the same time, but for the
  // microseconds of its messages: who waited a millisecond less than another came a millisecond later. In a ring the
  // rank at the right of a late one waits that much longer than those whose neighbour was there.
  Delays meet(std::int64_t length) {
    std::vector<std::int64_t> waits;
    const int right = (world_.rank + 1) % world_.size;
    const int left = (world_.rank + world_.size - 1) % world_.size;
    const std::int64_t end = now_ns() + static_cast<std::int64_t>(kMeetingShare * static_cast<double>(length));
    for (int more = 1; more == 1;) {
      std::int64_t start = begin_meeting();
      const char sent = 0;
      char received = 0;
      mpi_check(MPI_Sendrecv(&sent, 1, MPI_CHAR, right, kRingTag, &received, 1, MPI_CHAR, left, kRingTag, world_.all,
                             MPI_STATUS_IGNORE),
                "MPI_Sendrecv");
      waits.push_back(now_ns() - start);
      start = begin_meeting();
      // What is added up is whether rank 0 has time for more.
      const int own = world_.rank == 0 && start < end && waits.size() < kMostMeetings ? 1 : 0;
      mpi_check(MPI_Allreduce(&own, &more, 1, MPI_INT, MPI_SUM, world_.all), "MPI_Allreduce");
      waits.push_back(now_ns() - start);
    }
    return delays_of(waits);
  }

  // When this rank's product has ended.
  std::int64_t begin_meeting() {
    context_.shared.barrier();
    products_.turn();
    products_.finish();
    context_.shared.advance();
    return now_ns();
  }

  // On rank 0.
  Delays delays_of(const std::vector<std::int64_t>& waits) const {
    const auto ranks = static_cast<std::size_t>(world_.size);
    const std::size_t count = waits.size();
    std::vector<std::int64_t> all(world_.rank == 0 ? count * ranks : 0);
    mpi_check(MPI_Gather(waits.data(), static_cast<int>(count), MPI_INT64_T, all.data(), static_cast<int>(count),
                         MPI_INT64_T, 0, world_.all),
              "MPI_Gather");
    if (world_.rank != 0) return {};
    std::array<std::vector<std::vector<std::int64_t>>, 2> times;
    times.fill(std::vector<std::vector<std::int64_t>>(ranks));
    std::vector<std::int64_t> of_meeting(ranks);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t rank = 0; rank < ranks; ++rank) of_meeting[rank] = all[rank * count + i];
      const auto [least, longest] = std::minmax_element(of_meeting.begin(), of_meeting.end());
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const bool ring = i % 2 == 0;
        times[i % 2][rank].push_back(ring ? of_meeting[(rank + 1) % ranks] - *least : *longest - of_meeting[rank]);
      }
    }
    Delays delays;
    for (std::size_t kind = 0; kind < 2; ++kind) {
      for (const auto& of_rank : times[kind]) delays[kind].push_back(summary_of(of_rank));
    }
    return delays;
  }

  void write(Phase phase, std::int64_t begin, const std::string& utc, const std::vector<Part>& parts,
             const Delays& delays, const std::vector<std::string>& nodes) {
    constexpr std::uint64_t kPlaces = (std::uint64_t{1} << pattern::kPlaceBits) - 1;
    Json json;
    json.begin_object()
        .field("record", "window")
        .field("window", number_)
        .field("phase", kPhases[static_cast<std::size_t>(phase)])
        .field("begin_ns", begin - began_)
        .field("end_ns", now_ns() - began_)
        .field("utc", utc);
    const auto begin_part = [&](const char* name, std::size_t index) {
      std::vector<Summary> ranks;
      for (const Part& part : parts) ranks.push_back(part.times[index]);
      summaries_json(json, name, ranks);
    };
    if (has(phase, Phase::compute)) {
      begin_part("products", 0);
      json.key("wrong_words").begin_array();
      for (const Part& part : parts) {
        json.value(part.wrong_words);
        totals_.wrong_words += part.wrong_words;
      }
      json.end_array().key("first_wrong").begin_array();
      for (const auto& [times, wrong_words, first, wrong_bytes] : parts) {
        if (wrong_words == 0) {
          json.null();
        } else {
          json.begin_array().value(first >> pattern::kPlaceBits).value(first & kPlaces).end_array();
        }
      }
      json.end_array().end_object();
    }
    if (has(phase, Phase::traffic)) {
      begin_part("traffic", 1);
      json.key("wrong_bytes").begin_array();
      for (const Part& part : parts) {
        json.value(part.wrong_bytes);
        totals_.wrong_beside += part.wrong_bytes;
      }
      json.end_array().end_object();
    }
    if (has(phase, Phase::copies)) {
      begin_part("copies", 2);
      json.end_object();
    }
    for (std::size_t kind = 0; kind < 2 && !delays[0].empty(); ++kind) {
      summaries_json(json, kind == 0 ? "ring" : "allreduce", delays[kind]);
      json.end_object();
    }
    results_->write_line(json.end_object().text());
    for (const std::string& node : nodes) {
      if (!node.empty()) results_->write_line(node);
    }
    totals_.windows = number_ + 1;
  }

  static constexpr int kRingTag = 81;

  const Options& options_;
  const Context& context_;
  const World& world_;
  ResultFile* results_;
  Totals& totals_;
  BurnInPlan plan_;
  Products products_;
  std::optional<Traffic> traffic_;  // with --compute-only neither this
  std::optional<Copies> copies_;    // nor this
  Telemetry telemetry_;
  std::int64_t began_ = 0;
  std::int64_t number_ = 0;  // of the window
  bool planted_ = false;
};

}  // namespace

BurnInPlan burn_in_plan(const Options& options) {
  const double seconds = options.burn_in_s;
  return {seconds,
          options.compute_only ? seconds : std::min(kMostAlone, seconds / 10),
          std::max(1.0, std::ceil(seconds / kMostWindows)),
          options.product.value_or(product::kUsualType),
          options.product_order.value_or(product::kUsualOrder),
          std::min(options.sizes.front(), kMostCopied)};
}

std::uint64_t fitting_order(const Options& options, const World& world, NodeShared& shared) {
  BurnInPlan plan = burn_in_plan(options);
  if (options.product_order) return plan.order;
  const std::uint64_t usual = std::exchange(plan.order, product::kOrderStep);
  while (plan.order < usual) {
    Products products(plan, options.product_by_library);
    products.turn();
    products.finish();
    std::int64_t longest = products.times().most();
    mpi_check(MPI_Allreduce(MPI_IN_PLACE, &longest, 1, MPI_INT64_T, MPI_MAX, world.all), "MPI_Allreduce");
    shared.advance();
    if (8 * longest > ns_of(kMostOfProduct)) break;  // twice the order takes eight times as long
    plan.order *= 2;
  }
  return plan.order;
}

void check_burn_in(const Options& options, const std::vector<Series>& plan) {
  if (options.burn_in_s <= 0 || options.compute_only) return;
  if (plan.size() != 1 || plan[0].sizes.size() != 1 || plan[0].rounds() != 1)
    throw InputError("--burn-in repeats one measurement: choose one operation, one size and one round of pairs");
  if (!is_collective(plan[0].operation) && !is_pair_operation(plan[0].operation))
    throw InputError("--burn-in needs a collective or an operation of pairs: leave out " +
                     to_string(plan[0].operation));
}

void burn_in(const Measurement& measurement, const Options& options, const Context& context, Transport& transport,
             ResultFile* results, Totals& totals) {
  BurnIn(measurement, options, context, transport, results, totals).run();
}

}  // namespace fabricbench
