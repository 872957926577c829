#include "cpu/cpu_ops.h"
#include "cpu/dispatch.h"

namespace g2::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;  // elements a task handles

template <typename From, typename To>
void cast_range(const Cast& p, std::int64_t begin, std::int64_t end) {
  const From* x = p.x.as<From>();
  To* y = p.y.as<To>();
  for (std::int64_t i = begin; i < end; ++i) y[i] = To(Work<From>(x[i]));
}

}  // namespace

void CpuOps::cast(const Cast& p) {
  const std::int64_t n = p.x.size();
  require(p.y.size() == n, "cast", "sizes differ", p.x, p.y);
  for_dtype("cast", p.x.dtype, [&]<typename From>() {
    for_dtype("cast", p.y.dtype, [&]<typename To>() {
      pool_.run_ranges(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
        cast_range<From, To>(p, begin, end);
      });
    });
  });
}

}  // namespace g2::cpu
