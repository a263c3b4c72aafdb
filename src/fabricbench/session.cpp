#include "fabricbench/session.hpp"

#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "fabricbench/burn_in.hpp"
#include "fabricbench/device/device.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/library_settings.hpp"
#include "fabricbench/measure.hpp"
#include "fabricbench/node_shared.hpp"
#include "fabricbench/numa.hpp"
#include "fabricbench/preparation.hpp"
#include "fabricbench/private_log.hpp"
#include "fabricbench/results.hpp"
#include "fabricbench/text.hpp"
#include "fabricbench/transports/transport.hpp"
#include "fabricbench/watchdog.hpp"
#include "fabricbench/world.hpp"

namespace fabricbench {
namespace {

// Of runs with more records of pairs than that, pairs of two nodes have order statistics in place of every iteration.
constexpr std::size_t kMostWholePairs = 2000;

// Times a part of the run into a total.
class Stopwatch {
 public:
  explicit Stopwatch(std::int64_t& total) : total_(total), start_(now_ns()) {}
  ~Stopwatch() { total_ += now_ns() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::int64_t& total_;
  std::int64_t start_;
};

std::string library_with_ras(const Transport& transport) {
  for (const auto& [name, version] : transport.library()) {
    if (name == "NCCL" || name == "RCCL") return name;
  }
  return {};
}

class Session {
 public:
  Session(Options options, Invocation invocation) : options_(std::move(options)), invocation_(std::move(invocation)) {
    if (!options_.host_memory)
      options_.host_memory = device::present() ? device::HostKind::pinned : device::HostKind::pageable;
  }

  int run(const World& world, Proof& proof, std::int64_t begin) {
    check_world(options_, world, invocation_.local);
    read_inputs(options_, world);
    const std::unique_ptr<Transport> transport =
        options_.step_transports.empty() ? make_transport(options_.transport, options_) : make_stepwise(options_);
    const std::vector<Series> plan = make_plan(options_, world.size, [&](Operation operation, Implementation wanted) {
      return choose(*transport, operation, wanted, options_.in_place);
    });
    check_paths(options_, *transport, plan);
    check_sizes(*transport, plan);
    check_burn_in(options_, plan);
    if (world.rank == 0) results_ = open_results();
    agree(world, world.rank != 0 || results_ != nullptr);

    NodeShared shared(world);
    Watchdog watchdog(world, shared, results_.get(), {options_.timeout_s, options_.limit_s},
                      library_with_ras(*transport));
    watchdog.prepares("choosing the devices");
    alarm(0);  // the watchdog looks on from here
    const SignalHandlers handlers(world, shared, results_.get());
    try {
      measure_all(world, shared, watchdog, *transport, plan, proof, begin);
    } catch (const UnsupportedError& error) {
      if (results_) results_->write_error("unsupported", error.what());
      throw;
    } catch (const RunError& error) {
      fail(world, shared, error);
    }
    return totals_.wrong_bytes > 0 || totals_.wrong_words > 0 || totals_.wrong_beside > 0 ? kExitWrongData : 0;
  }

 private:
  // Null, after a line on stderr, where the file cannot be opened.
  std::unique_ptr<ResultFile> open_results() {
    try {
      return std::make_unique<ResultFile>(options_.output, random_id());
    } catch (const InputError& error) {
      std::fprintf(stderr, "fabricbench: %s\n", error.what());
      return nullptr;
    }
  }

  void measure_all(const World& world, NodeShared& shared, Watchdog& watchdog, Transport& transport,
                   const std::vector<Series>& plan, Proof& proof, std::int64_t begin) {
    totals_.setup_ns = now_ns() - begin;  // MPI's own start
    std::optional<Stopwatch> setup(std::in_place, totals_.setup_ns);
    if (world.lacks_cores) device::wait_by_yielding();
    const int device_index = select_device(options_, world, invocation_.local);
    if (device_index >= 0) {
      const device::Info info = device::info(device_index);
      shared.leave_device("GPU " + std::to_string(info.index) + " at " + info.bus_id);
    }
    shared.advance();
    watchdog.prepares("allocating the buffers");
    const std::uint64_t bytes = buffer_bytes(plan);
    device::Stream stream;
    require(world, transport.why_unsupported());
    require(world, transport.why_no(options_.data_type));
    require(world, options_.burn_in_s > 0 ? product::why_unsupported(burn_in_plan(options_).product) : "");
    const bool by_device = options_.transport == "copy" || options_.transport == "kernel";
    if (options_.burn_in_s > 0) options_.product_order = fitting_order(options_, world, shared);
    require(world, options_.train > 0 && by_device ? device::why_no_trains() : "");
    device::Memory send = transport.allocate(world, bytes);
    device::Memory separate = options_.in_place ? device::Memory() : transport.allocate(world, bytes);
    device::Memory& receive = options_.in_place ? send : separate;
    stream.set_byte(send.data(), bytes, 0);
    stream.set_byte(receive.data(), bytes, 0);
    stream.synchronize();
    shared.advance();
    // Managed memory is the last to come: it takes what is left.
    const HostBufferBytes host = host_buffer_bytes(plan);
    const device::HostKind kind = *options_.host_memory;
    const bool uses_host = host.send + host.receive > 0;
    const int node = uses_host ? host_node(options_, world, device_index) : kAnyNode;
    require(world, uses_host ? device::why_unsupported(kind, options_.transport == "kernel") : "");
    const bool there_only = options_.host_placement != HostPlacement::any;
    device::HostMemory host_send = host_memory_on(node, there_only, host.send, kind);
    device::HostMemory host_receive = host_memory_on(node, there_only, host.receive, kind);
    shared.advance();
    const Members members(world, members_of(plan, world.rank));
    const Context context{world,
                          members,
                          shared,
                          stream,
                          send,
                          receive,
                          bytes,
                          host_send,
                          host_receive,
                          kind,
                          options_.access,
                          moves_between_ranks(plan),
                          options_.data_type,
                          host,
                          device_index};
    watchdog.prepares("setting up the transport (communicators, memory of other ranks)");
    transport.set_up(context);
    invocation_.add_files_of_library(proof.own_variables());
    shared.advance();
    watchdog.prepares("collecting what all ranks use");
    const std::string host_memory = uses_host ? host_memory_json(host.send > 0 ? host_send : host_receive, node) : "";
    const std::string run_id = results_ ? results_->run_id() : "";
    const std::string header =
        header_json(world, options_, invocation_, transport, plan, run_id, device_index, host_memory);
    if (results_) results_->write_line(header);
    proof.begin_counting(world);
    setup.reset();
    watchdog.measures();

    if (results_ && !options_.quiet) print_table_head(run_id, mpi_library_text());
    const std::size_t planned = record_count(plan);
    keeps_all_ = pair_records(plan) <= kMostWholePairs;
    for (const Series& series : plan) {
      for (std::size_t round = 0, count = series.rounds(); round < count; ++round)
        run_round(series, round, context, transport, planned);
    }
    if (options_.burn_in_s > 0) {
      const Measurement measurement = plan[0].at(plan[0].sizes[0], world.rank, 0);
      if (results_) results_->now_measuring(measurement);
      burn_in(measurement, options_, context, transport, results_.get(), totals_);
    }
    if (results_) results_->now_measuring_nothing();
    finish(proof.collect(world, transport.paths(), transport.proof(), watchdog.pauses()), begin);
    transport.let_go();
    // Every rank ends with the same exit status.
    for (std::int64_t* wrong : {&totals_.wrong_bytes, &totals_.wrong_words, &totals_.wrong_beside})
      mpi_check(MPI_Bcast(wrong, 1, MPI_INT64_T, 0, world.all), "MPI_Bcast");
    shared.advance();
  }

  void run_round(const Series& series, std::size_t round, const Context& context, Transport& transport,
                 std::size_t planned) {
    for (const std::uint64_t size : series.sizes) {
      const Measurement measurement = series.at(size, context.world.rank, round);
      if (results_) {
        results_->now_measuring(measurement);
        progress(planned, measurement);
      }
      const std::vector<Record> records = measure(measurement, options_, context, transport, totals_);
      record(records, context.world);
      totals_.records += measurement.groups.size() * series.schedules().size();
      context.shared.advance();
    }
  }

  // Rank 0 writes the footer and the last line on stdout.
  void finish(const std::string& proven, std::int64_t begin) {
    if (!results_) return;
    clear_progress();
    totals_.wall_ns = now_ns() - begin;
    const auto settings = options_.library_settings ? library_settings() : std::map<std::string, std::string>();
    if (options_.injected != "no-footer") results_->write_footer(totals_, proven, settings);
    if (!options_.quiet) {
      std::printf("%zu records, %llu samples, %lld wrong bytes, %.1f s, of which %.1f s inside the clock; paths: %s\n",
                  totals_.records, static_cast<unsigned long long>(totals_.samples),
                  static_cast<long long>(totals_.wrong_bytes), static_cast<double>(totals_.wall_ns) / 1e9,
                  static_cast<double>(totals_.timed_ns) / 1e9, proven.c_str());
    }
  }

  void record(const std::vector<Record>& records, const World& world) {
    const Stopwatch watch(totals_.recording_ns);
    std::size_t index = totals_.records;
    for (const Record& record : records) {
      const bool whole = keeps_all_ || !is_pair_operation(record.operation) || world.on_one_node(record.ranks);
      const Record kept = whole ? record : reduced(record);
      totals_.samples += kept.times_ns.size();
      totals_.wrong_bytes += std::max<std::int64_t>(record.wrong_bytes, 0);
      results_->write(kept, index++);
      if (!options_.quiet) {
        clear_progress();
        print_table_row(record);
      }
    }
  }

  void progress(std::size_t planned, const Measurement& measurement) const {
    if (options_.quiet || !isatty(STDERR_FILENO)) return;
    std::fprintf(stderr, "\r\033[K[%zu/%zu] %s %s", totals_.records, planned, to_string(measurement.operation).c_str(),
                 format_size(measurement.bytes).c_str());
  }
  void clear_progress() const {
    if (!options_.quiet && isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\033[K");
  }

  // What failed on one rank ends them all; rank 0 writes it down, for itself or for the rank that left the message.
  [[noreturn]] void fail(const World& world, NodeShared& shared, const RunError& error) {
    const std::string message = "rank " + std::to_string(world.rank) + " on " + host_name() + ": " + error.what();
    std::fprintf(stderr, "fabricbench: %s\n", message.c_str());
    if (results_) {
      results_->write_error(error.kind, message);
    } else {
      shared.leave_message(error.kind.c_str(), message.c_str());
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    remove_private_log();
    MPI_Abort(MPI_COMM_WORLD, kExitFailed);
    _exit(kExitFailed);
  }

  Options options_;
  Invocation invocation_;
  std::unique_ptr<ResultFile> results_;  // on rank 0 only
  Totals totals_;
  bool keeps_all_ = true;  // every iteration of pairs of nodes too
};

}  // namespace

int run_session(Options options, Invocation invocation, const World& world, Proof& proof, std::int64_t begin) {
  return Session(std::move(options), std::move(invocation)).run(world, proof, begin);
}

}  // namespace fabricbench
