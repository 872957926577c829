#include "model/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/philox.h"
#include "base/text.h"

namespace g2::model {
namespace {

struct Candidate {
  float logit;
  std::int32_t id;
};

// The candidates left after top-k, most likely first.
std::vector<Candidate> most_likely(std::span<const float> logits, std::int64_t top_k) {
  std::vector<Candidate> all(logits.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = {logits[i], static_cast<std::int32_t>(i)};
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const auto keep = static_cast<std::ptrdiff_t>(
      top_k > 0 ? std::min<std::int64_t>(top_k, static_cast<std::int64_t>(all.size()))
                : static_cast<std::int64_t>(all.size()));
  std::partial_sort(all.begin(), all.begin() + keep, all.end(), before);
  all.resize(static_cast<std::size_t>(keep));
  return all;
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits,
                          const SamplingOptions& options,
                          std::uint64_t position) {
  const bool greedy = options.temperature == 0;
  const std::vector<Candidate> candidates = most_likely(logits, greedy ? 1 : options.top_k);
  if (greedy) return candidates.front().id;
  std::vector<double> weights(candidates.size());
  double total = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = std::exp((candidates[i].logit - candidates[0].logit) / options.temperature);
    total += weights[i];
  }
  std::size_t kept = 0;
  double mass = 0;
  while (kept < weights.size() && (kept == 0 || mass < options.top_p * total))
    mass += weights[kept++];
  const base::PhiloxWords words =
      base::random_block(options.seed, base::RandomPurpose::kSample, 0, position);
  double remaining = base::uniform_open(words[0]) * mass;
  std::size_t chosen = 0;
  while (chosen + 1 < kept && remaining >= weights[chosen]) remaining -= weights[chosen++];
  return candidates[chosen].id;
}

std::vector<std::int32_t> generate(Model& model,
                                   const std::vector<std::int32_t>& prompt,
                                   const SamplingOptions& options,
                                   const std::function<bool(std::int32_t)>& on_token) {
  const auto capacity =
      static_cast<std::size_t>(std::min(model.options().max_tokens, model.options().max_positions));
  if (prompt.empty())
    throw base::UsageError("generate: the prompt has no tokens; it needs at least BOS");
  if (prompt.size() >= capacity) {
    throw base::UsageError(base::cat("generate: the prompt has ",
                                     prompt.size(),
                                     " tokens, the context holds ",
                                     capacity,
                                     "; shorten the prompt"));
  }
  const std::vector<std::int64_t>& stops = model.config().eos_token_ids;
  std::vector<std::int32_t> tokens = prompt;
  for (std::int64_t i = 0; i < options.max_new_tokens && tokens.size() < capacity; ++i) {
    const std::int32_t next = sample_token(model.last_logits(tokens), options, tokens.size());
    if (std::find(stops.begin(), stops.end(), next) != stops.end()) break;
    tokens.push_back(next);
    if (!on_token(next)) break;
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end()};
}

}  // namespace g2::model
