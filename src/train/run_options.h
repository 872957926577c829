// What a run's config asks of the model and of the data.
#pragma once

#include <cstdint>

#include "config/config.h"
#include "data/dataset.h"
#include "model/model.h"

namespace g2::train {

model::ModelOptions model_options(const config::RunConfig& config);

// `pad_id` is the tokenizer's. Tokenised text is kept in <run.dir>/data.
data::DatasetOptions dataset_options(const config::RunConfig& config, std::int32_t pad_id);

}  // namespace g2::train
