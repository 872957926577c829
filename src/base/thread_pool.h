// A fixed set of threads that run numbered tasks.
//
// Which thread runs a task is not defined; tasks must therefore be cut by the problem's size alone,
// never by the number of threads. Then results do not depend on the thread count
// (docs/numerics.md).
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace g2::base {

class ThreadPool {
 public:
  // threads >= 1, the calling thread included; 0 means one a usable processor.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Calls body(i) once for each i in [0, count), on the calling thread and the others, and returns
  // when all are done. If tasks throw, the exception of the lowest such i is rethrown after the
  // rest have run. A run() inside a task runs its tasks one after another on that thread.
  template <typename Body>
  void run(std::int64_t count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_erased(
        count,
        [](void* context, std::int64_t i) { (*static_cast<Plain*>(context))(i); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  // Cuts [0, n) into ranges of `grain` (the last may be shorter) and calls body(begin, end) for
  // each.
  template <typename Body>
  void run_ranges(std::int64_t n, std::int64_t grain, Body&& body) {
    run((n + grain - 1) / grain, [&](std::int64_t i) {
      const std::int64_t begin = i * grain;
      body(begin, begin + grain < n ? begin + grain : n);
    });
  }

 private:
  using Task = void (*)(void* context, std::int64_t index);
  void run_erased(std::int64_t count, Task task, void* context);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace g2::base
