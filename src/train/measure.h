// How long a run's steps take here, before it has data.
#pragma once

#include "config/config.h"
#include "model/gemma2_config.h"
#include "tensor/device.h"
#include "tensor/ops.h"

namespace g2::train {

struct StepTime {
  double micro_batch_s = 0;  // forward and backward of one micro-batch
  double update_s = 0;       // gradient norm and optimizer
  double step_s = 0;         // of the whole global batch
};

// Trains on random tokens for some seconds, with the model, batch and precision of the config.
// Allocates what the run itself will. Throws DeviceError when that does not fit.
StepTime measure_step(const config::RunConfig& config,
                      const model::Gemma2Config& model,
                      Device& device,
                      Ops& ops);

}  // namespace g2::train
