// From the model section of a run's config to the model.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "model/gemma2_config.h"

namespace g2::model {

// Preset or folder first, then every value given beside it. With neither, all sizes must be given,
// and query_pre_attn_scalar is head_dim unless given. Appends the folder's warnings, one line each.
// Throws UsageError "model.KEY: ..." for what no Gemma 2 can have, DataError or IoError for the
// folder's config.json.
Gemma2Config resolve_model(const config::ModelSettings& settings,
                           std::vector<std::string>& warnings);

}  // namespace g2::model
