// Reference logs: what an independent implementation computed for a config, step by step.
//
// JSON Lines. First the header:
//   {"type":"reference", "made_by":.., "command":.., "versions":{..}, "dtype":..,
//    "settings":{"optimizer.beta1":0.9, ..},   every setting that changes what is computed
//    "data_hash":.., "init_hash":.., "tolerances":{"loss":{"abs":..,"rel":..}, ..}}
// then a line a step, numbered from 1; log-probabilities and weight norms at chosen steps only:
//   {"step":1, "loss":.., "grad_norm":.., "lr":..,
//    "logprobs":[..],           of the step's first valid targets, before the update
//    "weights":{"name":norm}}   L2 norms after the update
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/dataset.h"
#include "model/model.h"

namespace g2::train {

struct Tolerance {
  double absolute = 0;
  double relative = 0;
  double limit(double reference) const;  // largest allowed |ours - reference|
};

struct ReferenceStep {
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  std::vector<double> logprobs;
  std::map<std::string, double> weights;
};

struct ReferenceLog {
  std::map<std::string, std::string> settings;  // values as JSON
  std::string data_hash;
  std::string init_hash;
  std::map<std::string, Tolerance> tolerances;  // "loss", "grad_norm", "lr", "logprob", "weight"
  std::vector<ReferenceStep> steps;
};

// Throws DataError naming file, line and what is wrong.
ReferenceLog read_reference(const std::filesystem::path& path);

// The settings of a config that change what is computed, by path, values as JSON: not how it is
// computed (precision, micro-batch, recomputation, chunks, threads), and not where data lies.
std::map<std::string, std::string> result_settings(const config::RunConfig& config);

// Hash of the master weights as floats, in table order.
std::string weights_hash(model::Model& model);

// Writes the token batches of the first `steps` steps for scripts/make_reference.py: a header line
// with settings and hashes, then {"step":1,"ids":[..],"targets":[..],"positions":[..],"lo":[..]} a
// step, rows of seq_len one after another, lo counted from each row's start.
void export_batches(const config::RunConfig& config,
                    const model::Gemma2Config& model,
                    const data::Dataset& dataset,
                    const std::string& init_hash,
                    std::int64_t steps,
                    const std::filesystem::path& path);

}  // namespace g2::train
