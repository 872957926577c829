// A run's data: training and validation samples from text, JSON Lines or token files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "data/documents.h"
#include "data/samples.h"
#include "tokenizer/tokenizer.h"

namespace g2::data {

struct DatasetOptions {
  std::vector<std::string> train;       // paths, folders, globs
  std::vector<std::string> validation;  // likewise; empty: a fraction of the training documents
  double validation_fraction = 0.05;
  DocumentOptions documents;
  SampleOptions samples;
  std::filesystem::path cache_folder;  // tokenised text is kept here as token files
  std::int64_t vocab_size = 0;         // of the model: ids must be below it; 0: the tokenizer's
};

struct Dataset {
  std::unique_ptr<Samples> train;
  std::unique_ptr<Samples> validation;
  SkipReport skipped;
  // Bytes of text each id stands for, [vocab_size]; empty when the token files came without their
  // tokenizer (a raw import), and bits per byte cannot be told.
  std::vector<std::int32_t> token_bytes;
  std::uint64_t hash =
      0;  // of tokens, documents and split: two runs with equal hashes see equal data
};

// Text is tokenised into the cache folder once (data/token_cache.h). Token files must have the
// tokenizer's vocabulary hash (or none). With a fraction, a document goes to validation by a random
// number of its own index: which ones depends on the seed, not on how many follow; there is always
// at least one on either side. Throws UsageError, DataError or IoError in one line.
Dataset open_dataset(const DatasetOptions& options,
                     const tokenizer::Tokenizer& tokenizer,
                     base::ThreadPool& pool);

// Bytes of text that a batch's valid targets stand for; nullopt when they are not known.
std::optional<std::int64_t> target_bytes(const Dataset& dataset, const Batch& batch);

}  // namespace g2::data
