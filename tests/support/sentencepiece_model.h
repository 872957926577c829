// A small SentencePiece model with Gemma's settings, trained on the project's own text.
#pragma once

#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "tests/support/support.h"

namespace g2::test {

inline std::string project_text() {
  std::string text;
  for (const char* file : {"src/tensor/ops.h", "docs/architecture.md", "docs/numerics.md"}) {
    text += base::read_file(source_root() / file);
  }
  return text;
}

// Writes `base`.model: 700 pieces, those of `user_defined` (comma separated) among them. `settings`
// are trainer flags that replace Gemma's.
inline void train_sentencepiece(const std::filesystem::path& base,
                                const std::string& user_defined,
                                const std::string& settings = "") {
  const std::string corpus = base.string() + ".txt";
  write_text(corpus, project_text());
  // Of a flag given twice the first counts.
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      settings + " --input=" + corpus + " --model_prefix=" + base.string() +
      " --vocab_size=700 --model_type=bpe --byte_fallback=true --split_digits=true"
      " --allow_whitespace_only_pieces=true --pad_id=0 --eos_id=1 --bos_id=2 --unk_id=3"
      " --add_dummy_prefix=false --remove_extra_whitespaces=false"
      " --normalization_rule_name=identity --minloglevel=2 --user_defined_symbols=" +
      user_defined);
  ASSERT_TRUE(status.ok()) << status.message();
}

}  // namespace g2::test
