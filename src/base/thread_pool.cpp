#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace g2::base {
namespace {

// Idle workers spin this often before they sleep: a training step is thousands of short runs.
constexpr int kSpins = 2000;

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1U, std::thread::hardware_concurrency());
}

bool& inside_task() {
  thread_local bool inside = false;
  return inside;
}

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake, done;
  std::atomic<std::uint64_t> generation{0};  // counts runs; a change wakes the workers
  std::atomic<bool> stopping{false};
  std::atomic<std::int64_t> next{0};
  std::atomic<int> busy{0};  // workers that have not yet finished the current run
  std::int64_t count = 0;
  Task task = nullptr;
  void* context = nullptr;
  std::exception_ptr error;
  std::int64_t error_index = std::numeric_limits<std::int64_t>::max();
  std::mutex run_mutex;  // one run at a time when several threads share the pool
  std::vector<std::thread> workers;

  void drain() {
    inside_task() = true;
    for (std::int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      try {
        task(context, i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < error_index) {
          error_index = i;
          error = std::current_exception();
        }
      }
    }
    inside_task() = false;
  }

  void work() {
    std::uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpins && generation.load() == seen; ++spin)
        std::this_thread::yield();
      if (generation.load() == seen) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return generation.load() != seen; });
      }
      seen = generation.load();
      if (stopping) return;
      drain();
      if (busy.fetch_sub(1) == 1) {
        const std::lock_guard lock(mutex);
        done.notify_one();
      }
    }
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  const int total = threads > 0 ? threads : usable_processors();
  for (int i = 1; i < total; ++i) state_->workers.emplace_back([this] { state_->work(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    ++state_->generation;
  }
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::size() const {
  return static_cast<int>(state_->workers.size()) + 1;
}

void ThreadPool::run_erased(std::int64_t count, Task task, void* context) {
  State& s = *state_;
  if (inside_task() || s.workers.empty() || count <= 1) {
    for (std::int64_t i = 0; i < count; ++i) task(context, i);
    return;
  }
  const std::lock_guard run_lock(s.run_mutex);
  {
    const std::lock_guard lock(s.mutex);
    s.count = count;
    s.task = task;
    s.context = context;
    s.error = nullptr;
    s.error_index = std::numeric_limits<std::int64_t>::max();
    s.next = 0;
    s.busy = static_cast<int>(s.workers.size());
    ++s.generation;
  }
  s.wake.notify_all();
  s.drain();
  for (int spin = 0; spin < kSpins && s.busy.load() != 0; ++spin) std::this_thread::yield();
  if (s.busy.load() != 0) {
    std::unique_lock lock(s.mutex);
    s.done.wait(lock, [&] { return s.busy.load() == 0; });
  }
  if (s.error) std::rethrow_exception(s.error);
}

}  // namespace g2::base
