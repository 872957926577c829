// The learning rate of each optimizer step.
#pragma once

#include <cstdint>

#include "config/config.h"

namespace g2::train {

// Rate of the update that makes step `step` (counted from 1). With W warm-up steps, S total steps,
// peak p and floor f = p min_lr_ratio:
//   warm-up, step <= W:  p step / W        (zero_first_step: p (step - 1) / W, as transformers)
//   then, with x = (step - 1 - W) / (S - W), in [0, 1]:
//     constant  p
//     linear    p + (f - p) x
//     cosine    f + (p - f) (1 + cos(pi x)) / 2
//     wsd       p until the last decay_steps, then linearly to f
// Past S the rate stays where the schedule ended. zero_first_step without warm-up changes nothing.
// Requires total_steps and, for wsd, decay_steps to be filled in.
double learning_rate(const config::ScheduleSettings& schedule, double peak, std::int64_t step);

}  // namespace g2::train
