// Host memory by all cores of the NUMA node on which it lies, as STREAM's copy and triad (McCalpin 1995), and reads:
// what the memory itself gives, which no copy between it and a device can pass.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "fabricbench/caches.hpp"
#include "fabricbench/environment.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/numa.hpp"
#include "fabricbench/transports/transport.hpp"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace fabricbench {
namespace {

// What a thread takes at a time: one on a core where another rank waits takes fewer of them. Whole pages, and a
// multiple of what lies between two stamps.
constexpr std::size_t kBlock = std::size_t{256} << 10;
static_assert(kBlock % pattern::kLongestStride == 0);

using Word = std::uint8_t __attribute__((vector_size(16)));

Word load(const std::byte* source) {
  Word word;
  std::memcpy(&word, source, sizeof word);
  return word;
}

// Past the caches: a store that goes through them first reads what it overwrites.
void store(std::byte* destination, Word word) {
#if defined(__x86_64__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(destination), reinterpret_cast<__m128i>(word));
#else
  std::memcpy(destination, &word, sizeof word);
#endif
}

// Memory that is used in one operation: `addend` by a triad alone. No destination: no further operation.
struct Job {
  Operation operation = Operation::host_stream;
  std::byte* destination = nullptr;
  const std::byte* source = nullptr;
  const std::byte* addend = nullptr;
  std::size_t bytes = 0;

  Job part(std::size_t at, std::size_t most) const {
    return {operation, destination + at, source + at, addend == nullptr ? nullptr : addend + at,
            std::min(most, bytes - at)};
  }
};

// Copy: a = b. Triad: a = b + 2 c, byte by byte, where c are zeros, so that a is known.
void write_all(const Job& job) {
  const bool adds = job.operation == Operation::host_triad;
  std::size_t at = 0;
  if (reinterpret_cast<std::uintptr_t>(job.destination) % sizeof(Word) == 0) {
    const std::size_t whole = job.bytes / sizeof(Word) * sizeof(Word);
    for (; !adds && at < whole; at += sizeof(Word)) store(job.destination + at, load(job.source + at));
    for (; adds && at < whole; at += sizeof(Word)) {
      const Word addend = load(job.addend + at);
      store(job.destination + at, load(job.source + at) + addend + addend);
    }
#if defined(__x86_64__)
    _mm_sfence();
#endif
  }
  for (; at < job.bytes; ++at) {
    const unsigned addend = adds ? std::to_integer<unsigned>(job.addend[at]) : 0;
    job.destination[at] = static_cast<std::byte>(std::to_integer<unsigned>(job.source[at]) + 2 * addend);
  }
}

// Each byte once, of which the stamps are kept, `stride` bytes apart. The result is for a compiler that would leave out
// what nobody uses.
std::uint64_t read_all(const Job& job, std::size_t stride) {
  Word sum{};
  for (std::size_t begin = 0; begin < job.bytes; begin += stride) {
    const std::size_t end = std::min(begin + stride, job.bytes);
    std::size_t at = begin;
    for (; at + sizeof(Word) <= end; at += sizeof(Word)) sum ^= load(job.source + at);
    for (; at < end; ++at) sum[0] ^= std::to_integer<std::uint8_t>(job.source[at]);
    std::memcpy(job.destination + begin, job.source + begin, std::min(sizeof(std::uint64_t), end - begin));
  }
  std::uint64_t halves[2];
  std::memcpy(halves, &sum, sizeof sum);
  return halves[0] ^ halves[1];
}

// A thread on each core, which wait for the next operation between two.
class Crew {
 public:
  explicit Crew(const std::vector<int>& cpus) {
    // Signals are for the thread that measures.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (const int cpu : cpus) threads_.emplace_back([this, cpu] { work(cpu); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Crew() {
    begin({});
    for (std::thread& thread : threads_) thread.join();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void run(const Job& job) {
    begin(job);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  void begin(const Job& job) {
    const std::lock_guard lock(mutex_);
    job_ = job;
    next_ = 0;
    left_ = threads_.size();
    ++number_;
    begun_.notify_all();
  }

  void work(int cpu) {
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(static_cast<std::size_t>(cpu), &own);
    // Where this is not allowed, the core is one of those that the rank was given.
    (void)sched_setaffinity(0, sizeof own, &own);
    for (std::uint64_t seen = 0;;) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        begun_.wait(lock, [&] { return number_ != seen; });
        seen = number_;
        job = job_;
      }
      if (job.destination == nullptr) return;
      const std::size_t stride = pattern::stride_for(job.bytes);
      for (std::size_t at = next_.fetch_add(kBlock); at < job.bytes; at = next_.fetch_add(kBlock)) {
        if (job.operation == Operation::host_read) {
          folded_ ^= read_all(job.part(at, kBlock), stride);
        } else {
          write_all(job.part(at, kBlock));
        }
      }
      const std::lock_guard lock(mutex_);
      if (--left_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable done_;
  Job job_;
  std::uint64_t number_ = 0;
  std::atomic<std::size_t> next_{0};  // the first byte that no thread has taken
  std::atomic<std::uint64_t> folded_{0};
  std::size_t left_ = 0;
  std::vector<std::thread> threads_;
};

class WorkOfCores final : public Work {
 public:
  WorkOfCores(std::vector<Job> jobs, Crew& crew) : crew_(crew), jobs_(std::move(jobs)) {}
  void run(std::uint64_t shift) override {
    for (Job job : jobs_) {
      job.destination += shift;
      job.source += shift;
      crew_.run(job);
    }
  }
  void rewind() override {
    for (const Job& job : jobs_) {
      if (job.addend != nullptr) take_out_of_caches(job.addend, job.bytes);
    }
  }

 private:
  Crew& crew_;
  std::vector<Job> jobs_;
};

class Cores final : public Transport {
 public:
  bool has_library(Operation) const override { return false; }
  bool reaches(const Transfer& transfer) const override {
    return transfer.source == transfer.destination && transfer.source_place == Place::host &&
           transfer.destination_place == Place::host;
  }
  void set_up(const Context& context) override {
    context_ = &context;
    node_ = numa_node_of_page(context.host_send.data());
    std::vector<int> cpus = node_ == kAnyNode ? std::vector<int>{} : cpus_of_numa_node(node_);
    if (cpus.empty()) cpus = allowed_cpus();
    crew_.emplace(cpus);
  }
  std::unique_ptr<Work> prepare(const Measurement& measurement, const Group& group) override {
    std::vector<Job> jobs;
    for (const Step& step : group.steps) {
      for (const Transfer& transfer : own_transfers(step, context_->world.rank).sent) {
        const std::byte* addend =
            measurement.operation == Operation::host_triad ? addends(transfer.source_offset + transfer.bytes) : nullptr;
        jobs.push_back({measurement.operation, destination_of(transfer, *context_), source_of(transfer, *context_),
                        addend, transfer.bytes});
      }
    }
    return std::make_unique<WorkOfCores>(std::move(jobs), *crew_);
  }

 private:
  // Zeros that lie where the other buffers do.
  const std::byte* addends(std::size_t bytes) {
    if (bytes > addend_bytes_) {
      const MemoryPolicy near(node_, false);
      addends_ = Pages(bytes, kAnyNode);
      addend_bytes_ = bytes;
    }
    return addends_.data();
  }

  const Context* context_ = nullptr;
  int node_ = kAnyNode;
  Pages addends_;
  std::size_t addend_bytes_ = 0;
  std::optional<Crew> crew_;
};

}  // namespace

std::unique_ptr<Transport> make_cores() { return std::make_unique<Cores>(); }

}  // namespace fabricbench
