// gemma2_train export: a checkpoint as a Hugging Face folder.
#include "train/export.h"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "config/load.h"
#include "tokenizer/tokenizer.h"
#include "train/checkpoint_reader.h"
#include "train/checkpoint_store.h"

namespace g2::cli {
namespace {

// Without --dtype: bf16 when the run computed in bf16, else f32.
model::ExportType export_type(const std::string& dtype, const train::CheckpointInfo& info) {
  if (dtype == "f32") return model::ExportType::kF32;
  if (dtype == "bf16") return model::ExportType::kBF16;
  if (!dtype.empty()) {
    throw base::UsageError(base::cat("--dtype is '", dtype, "', must be f32 or bf16"));
  }
  const auto run = config::parse_config(info.config_json, "config of the checkpoint");
  return run.config.train.precision == config::Precision::kBf16 ? model::ExportType::kBF16
                                                                : model::ExportType::kF32;
}

// The special pieces of the run's vocabulary. An exported folder with another vocabulary than the
// weights were trained on answers nonsense: a DataError.
model::SpecialPieces special_pieces(const std::string& spec, const train::CheckpointInfo& info) {
  if (spec == "byte" || !tokenizer::has_sentencepiece()) return {};
  const std::unique_ptr<tokenizer::Tokenizer> opened = tokenizer::open_tokenizer(spec);
  const std::string hash = base::hex64(opened->vocabulary_hash());
  if (!info.vocabulary_hash.empty() && hash != info.vocabulary_hash) {
    throw base::DataError(base::cat(spec,
                                    ": the vocabulary has hash ",
                                    hash,
                                    ", the run was trained with ",
                                    info.vocabulary_hash,
                                    "; give the tokenizer of the run (--tokenizer PATH)"));
  }
  const tokenizer::SpecialIds ids = opened->special();
  return {.pad = opened->piece(ids.pad),
          .eos = opened->piece(ids.eos),
          .bos = opened->piece(ids.bos),
          .unk = opened->piece(ids.unk)};
}

}  // namespace

int export_model(Args args) {
  std::string source, out, dtype;
  std::optional<std::string> tokenizer;
  double max_shard_gb = 5;
  bool force = false;
  Options options("export", "Writes the weights of a checkpoint as a Hugging Face folder.");
  options.add("source", source, "checkpoint, or run folder: its newest valid one", Need::kRequired);
  options.add("-o,--out", out, "folder to write", Need::kRequired);
  options.add("--dtype", dtype, "f32 or bf16 (default: bf16 after a bf16 run, else f32)");
  options.add("--tokenizer",
              tokenizer,
              "tokenizer.model, or folder whose tokenizer files are copied; 'byte': none "
              "(default: that of the run)");
  options.add("--max-shard-gb", max_shard_gb, "largest weight file, in 10^9 bytes");
  options.flag("--force", force, "replace a folder that is there");
  if (!options.parse(args)) return base::kOk;
  if (!(max_shard_gb > 0 && max_shard_gb < 1e9)) {
    throw base::UsageError("--max-shard-gb must be positive");
  }

  const std::filesystem::path checkpoint = train::require_checkpoint(source);
  const train::CheckpointInfo info = train::Checkpoint(checkpoint).info();
  const std::string spec = tokenizer.value_or(train::tokenizer_of(info));
  const model::HfExport request{.folder = out,
                                .type = export_type(dtype, info),
                                .max_shard_bytes = static_cast<std::uint64_t>(max_shard_gb * 1e9),
                                .tokenizer = train::tokenizer_files(spec),
                                .pieces = special_pieces(spec, info),
                                .force = force};
  base::RealFileSystem files;
  for (const std::string& warning : train::export_checkpoint(files, checkpoint, request)) {
    base::log_warning(warning);
  }
  std::printf("%s: step %lld, %s, %s\n",
              out.c_str(),
              static_cast<long long>(info.step),
              request.type == model::ExportType::kF32 ? "f32" : "bf16",
              model::describe(info.model).c_str());
  return base::kOk;
}

}  // namespace g2::cli
