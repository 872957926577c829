#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace g2::train {

double learning_rate(const config::ScheduleSettings& s, double peak, std::int64_t step) {
  const auto done = static_cast<double>(s.zero_first_step ? step - 1 : step);
  const auto warmup = static_cast<double>(s.warmup_steps);
  if (s.warmup_steps > 0 && done < warmup) return peak * done / warmup;
  const std::int64_t total = s.total_steps.value_or(step);
  const double floor = peak * s.min_lr_ratio;
  const auto after = static_cast<double>(step - 1 - s.warmup_steps);
  const auto span = static_cast<double>(std::max<std::int64_t>(total - s.warmup_steps, 1));
  const double x = std::clamp(after / span, 0.0, 1.0);
  switch (s.kind) {
    case config::ScheduleKind::kConstant:
      return peak;
    case config::ScheduleKind::kLinear:
      return peak + (floor - peak) * x;
    case config::ScheduleKind::kCosine:
      return floor + (peak - floor) * (1 + std::cos(std::numbers::pi * x)) / 2;
    case config::ScheduleKind::kWsd: {
      const auto decay = static_cast<double>(std::max<std::int64_t>(s.decay_steps.value_or(1), 1));
      const double into =
          std::clamp((static_cast<double>(step - 1 - total) + decay) / decay, 0.0, 1.0);
      return peak + (floor - peak) * into;
    }
  }
  return peak;
}

}  // namespace g2::train
