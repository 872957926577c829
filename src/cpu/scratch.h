// Working memory of ops: grows to the largest need and is then reused, so steady state allocates
// nothing.
#pragma once

#include <cstddef>
#include <vector>

namespace g2::cpu {

// One growing array a slot; the contents are undefined. Each thread has its own (thread_local
// uses), or an op owns one.
template <typename A, int kSlots>
class Scratch {
 public:
  A* get(int slot, std::size_t count) {
    std::vector<A>& memory = slots_[slot];
    if (memory.size() < count) memory.resize(count);
    return memory.data();
  }

 private:
  std::vector<A> slots_[kSlots];
};

}  // namespace g2::cpu
