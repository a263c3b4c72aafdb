// Copies inside host memory by all cores of the NUMA node on which it lies, as STREAM's copy (McCalpin 1995): what
// the memory itself gives, which no copy between it and a device can pass.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <thread>

#include "fabricbench/environment.hpp"
#include "fabricbench/errors.hpp"
#include "fabricbench/numa.hpp"
#include "fabricbench/transports/transport.hpp"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace fabricbench {
namespace {

// What a thread takes at a time: one on a core where another rank waits takes fewer of them. Whole pages.
constexpr std::size_t kBlock = std::size_t{256} << 10;

// Past the caches: a store that goes through them first reads what it overwrites.
void copy_past_caches(std::byte* destination, const std::byte* source, std::size_t bytes) {
#if defined(__x86_64__)
  constexpr std::size_t kWord = sizeof(__m128i);
  if (reinterpret_cast<std::uintptr_t>(destination) % kWord == 0) {
    const std::size_t whole = bytes / kWord * kWord;
    for (std::size_t at = 0; at < whole; at += kWord) {
      const __m128i word = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + at));
      _mm_stream_si128(reinterpret_cast<__m128i*>(destination + at), word);
    }
    _mm_sfence();
    destination += whole;
    source += whole;
    bytes -= whole;
  }
#endif
  std::memcpy(destination, source, bytes);
}

// A thread on each core, which wait for the next copy between two.
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

  void copy(std::byte* destination, const std::byte* source, std::size_t bytes) {
    begin({destination, source, bytes});
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  struct Job {
    std::byte* destination = nullptr;  // null: no further one
    const std::byte* source = nullptr;
    std::size_t bytes = 0;
  };

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
      for (std::size_t at = next_.fetch_add(kBlock); at < job.bytes; at = next_.fetch_add(kBlock))
        copy_past_caches(job.destination + at, job.source + at, std::min(kBlock, job.bytes - at));
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
  std::size_t left_ = 0;
  std::vector<std::thread> threads_;
};

class CopiesByCores final : public Work {
 public:
  CopiesByCores(const Group& group, const Context& context, Crew& crew) : crew_(crew) {
    for (const Step& step : group.steps) {
      for (const Transfer& each : own_transfers(step, context.world.rank).sent)
        copies_.push_back({destination_of(each, context), source_of(each, context), each.bytes});
    }
  }
  void run() override {
    for (const Copy& each : copies_) crew_.copy(each.destination, each.source, each.bytes);
  }

 private:
  struct Copy {
    std::byte* destination;
    const std::byte* source;
    std::size_t bytes;
  };
  Crew& crew_;
  std::vector<Copy> copies_;
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
    const int node = numa_node_of_page(context.host_send.data());
    std::vector<int> cpus = node == kAnyNode ? std::vector<int>{} : cpus_of_numa_node(node);
    if (cpus.empty()) cpus = allowed_cpus();
    crew_.emplace(cpus);
  }
  std::unique_ptr<Work> prepare(const Measurement&, const Group& group) override {
    return std::make_unique<CopiesByCores>(group, *context_, *crew_);
  }

 private:
  const Context* context_ = nullptr;
  std::optional<Crew> crew_;
};

}  // namespace

std::unique_ptr<Transport> make_cores() { return std::make_unique<Cores>(); }

}  // namespace fabricbench
