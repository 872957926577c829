#include "base/philox.h"
#include "cpu/cpu_ops.h"
#include "cpu/dispatch.h"

namespace g2::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;  // a multiple of the 4 words of a Philox block

}  // namespace

void CpuOps::fill_normal(const FillNormal& p) {
  require_dtype("fill_normal", work_dtype(p.y.dtype), p.y);
  for_dtype("fill_normal", p.y.dtype, [&]<typename T>() {
    pool_.run_ranges(p.y.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; i += 4) {
        const base::PhiloxWords words = base::random_block(
            p.seed, base::RandomPurpose::kInit, p.stream, static_cast<std::uint64_t>(i / 4));
        for (std::int64_t k = 0; k < 4 && i + k < end; ++k) {
          const double value = p.std_dev * base::normal_quantile(base::uniform_open(words[k]));
          p.y.as<T>()[i + k] = T(static_cast<float>(value));
        }
      }
    });
  });
}

}  // namespace g2::cpu
