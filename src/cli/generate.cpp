// gemma2_train generate: continues a prompt.
#include "model/generate.h"

#include <cstdio>
#include <string>

#include "base/error.h"
#include "base/stop_signal.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/setup.h"
#include "train/model_source.h"

namespace g2::cli {
namespace {

void check_sampling(const model::SamplingOptions& s, std::int64_t samples, std::int64_t context) {
  const auto need = [](bool holds, const char* what) {
    if (!holds) throw base::UsageError(what);
  };
  need(s.temperature >= 0, "--temperature must be 0 (most likely token) or more");
  need(s.top_k >= 0, "--top-k must be 0 (all) or more");
  need(s.top_p > 0 && s.top_p <= 1, "--top-p must be above 0 and at most 1");
  need(s.max_new_tokens >= 1, "--max-new-tokens must be at least 1");
  need(samples >= 1, "--samples must be at least 1");
  need(context >= 2, "--context must be at least 2");
}

}  // namespace

int generate(Args args) {
  std::string path;
  std::string prompt;
  bool special = false;
  std::int64_t seed = 1;
  std::int64_t samples = 1;
  std::int64_t context = 0;
  model::SamplingOptions sampling;
  Options options("generate",
                  "Continues a prompt with a run's, checkpoint's or Hugging Face folder's model.");
  options.add("path", path, "run folder, checkpoint or Hugging Face folder", Need::kRequired);
  options.add("--prompt", prompt, "text to continue; empty: from the start of a document");
  options.flag(
      "--special", special, "special pieces in the prompt (<start_of_turn>) become their ids");
  options.add("--max-new-tokens", sampling.max_new_tokens, "tokens to add at most");
  options.add("--temperature", sampling.temperature, "0: the most likely token each time");
  options.add("--top-k", sampling.top_k, "choose among the k most likely tokens; 0: all");
  options.add("--top-p", sampling.top_p, "choose among the tokens that make up this probability");
  options.add("--seed", seed, "another seed, another text");
  options.add("--samples", samples, "texts to generate");
  options.add(
      "--context", context, "tokens of prompt and text together (default: as many as needed)");
  if (!options.parse(args)) return base::kOk;
  sampling.seed = static_cast<std::uint64_t>(seed);

  base::install_stop_handlers();
  const train::ModelSource source = train::open_model_source(path);
  const auto tokenizer = tokenizer::open_tokenizer(source.tokenizer);
  check_vocabulary(source.config, *tokenizer);
  std::vector<std::int32_t> ids{tokenizer->special().bos};
  if (special) {
    tokenizer->encode_with_special(prompt, ids);
  } else {
    tokenizer->encode(prompt, ids);
  }
  if (context == 0) context = static_cast<std::int64_t>(ids.size()) + sampling.max_new_tokens;
  check_sampling(sampling, samples, context);

  const Backend backend = open_backend({}, config::Precision::kFp32);
  model::Model model(source.config,
                     *backend.device,
                     *backend.ops,
                     {.max_tokens = context, .max_positions = context, .training = false});
  source.load(model);
  for (std::int64_t sample = 0; sample < samples && !base::stop_requested();
       ++sample, ++sampling.seed) {
    if (samples > 1) std::printf("--- sample %lld\n", static_cast<long long>(sample + 1));
    std::fputs(prompt.c_str(), stdout);
    tokenizer::StreamDecoder decoder(*tokenizer);
    model::generate(model, ids, sampling, [&](std::int32_t id) {
      std::fputs(decoder.push(id).c_str(), stdout);
      std::fflush(stdout);
      return !base::stop_requested();
    });
    std::printf("%s\n", decoder.finish().c_str());
  }
  return base::stop_requested() ? base::kInterrupted : base::kOk;
}

}  // namespace g2::cli
