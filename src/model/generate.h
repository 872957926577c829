// Text generation by sampling, one token after another.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/model.h"

namespace g2::model {

struct SamplingOptions {
  double temperature = 1;  // 0: always the most likely token
  std::int64_t top_k = 0;  // keep the k most likely tokens; 0: all
  double top_p = 1;        // then the fewest tokens whose probabilities sum to at least p
  std::uint64_t seed = 1;
  std::int64_t max_new_tokens = 128;
};

// Draws a token from softmax(logits / temperature) after top-k and top-p. The draw depends only on
// the logits, the options and `position`. Among equal logits the lowest id counts as more likely.
std::int32_t sample_token(std::span<const float> logits,
                          const SamplingOptions& options,
                          std::uint64_t position);

// Continues `prompt` until a stop token, max_new_tokens, or the model's max_tokens. Every new
// token, the stop token left out, is given to `on_token`; when that returns false generation ends.
// Requires a model made with training = false. Recomputes the whole context for each token.
std::vector<std::int32_t> generate(Model& model,
                                   const std::vector<std::int32_t>& prompt,
                                   const SamplingOptions& options,
                                   const std::function<bool(std::int32_t)>& on_token);

}  // namespace g2::model
