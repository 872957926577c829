#include "train/reference_log.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "config/effective.h"

namespace g2::train {
namespace {

using base::cat;
using nlohmann::json;
using nlohmann::ordered_json;

// Sections and settings that say how or where, not what.
bool changes_result(std::string_view path) {
  for (const std::string_view other : {"run.dir",
                                       "log.",
                                       "device.",
                                       "dist.",
                                       "checkpoint.",
                                       "data.train",
                                       "data.validation",
                                       "data.tokenizer",
                                       "data.text_key",
                                       "data.skip_bad",
                                       "train.max_steps",
                                       "train.micro_batch",
                                       "train.precision",
                                       "train.recompute",
                                       "train.lm_head_buffer_mib",
                                       "train.eval_every",
                                       "train.eval_sequences",
                                       "train.on_nonfinite",
                                       "model.path",
                                       "model.preset"}) {
    if (path.starts_with(other)) return false;
  }
  return true;
}

ReferenceStep parse_step(const json& line) {
  ReferenceStep step;
  step.loss = line.at("loss").get<double>();
  step.grad_norm = line.at("grad_norm").get<double>();
  step.learning_rate = line.at("lr").get<double>();
  if (line.contains("logprobs")) step.logprobs = line["logprobs"].get<std::vector<double>>();
  if (line.contains("weights")) step.weights = line["weights"].get<std::map<std::string, double>>();
  return step;
}

void parse_header(const json& line, ReferenceLog& log) {
  for (const auto& item : line.at("settings").items())
    log.settings[item.key()] = item.value().dump();
  log.data_hash = line.at("data_hash").get<std::string>();
  log.init_hash = line.at("init_hash").get<std::string>();
  for (const auto& item : line.at("tolerances").items()) {
    log.tolerances[item.key()] = {item.value().at("abs").get<double>(),
                                  item.value().at("rel").get<double>()};
  }
}

}  // namespace

double Tolerance::limit(double reference) const {
  return absolute + relative * std::abs(reference);
}

ReferenceLog read_reference(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw base::IoError(cat(path.string(), ": cannot open the reference log"));
  ReferenceLog log;
  std::string text;
  for (std::int64_t number = 1; std::getline(file, text); ++number) {
    try {
      const json line = json::parse(text);
      if (number == 1) {
        parse_header(line, log);
      } else if (line.at("step").get<std::int64_t>() != number - 1) {
        throw base::DataError(cat(path.string(), ":", number, ": expected step ", number - 1));
      } else {
        log.steps.push_back(parse_step(line));
      }
    } catch (const json::exception& e) {
      throw base::DataError(
          cat(path.string(), ":", number, ": not a line of a reference log: ", e.what()));
    }
  }
  if (log.steps.empty())
    throw base::DataError(cat(path.string(), ": no step in the reference log"));
  return log;
}

std::map<std::string, std::string> result_settings(const config::RunConfig& config) {
  const json effective = json::parse(config::effective_json(config), nullptr, true, true);
  std::map<std::string, std::string> settings;
  for (const auto& section : effective.items()) {
    for (const auto& item : section.value().items()) {
      const std::string path = section.key() + "." + item.key();
      if (changes_result(path)) settings[path] = item.value().dump();
    }
  }
  return settings;
}

std::string weights_hash(model::Model& model) {
  base::Hasher128 hasher;
  const Tensor& master = model.master();
  for (const model::Parameter& p : model.table().parameters()) {
    const Tensor range = master.rows(p.offset, p.offset + p.count);
    std::vector<float> values(static_cast<std::size_t>(p.count));
    if (master.dtype == DType::kF32) {
      model.device().copy_to_host(values.data(), range.data, range.bytes());
    } else {
      std::vector<double> wide(values.size());
      model.device().copy_to_host(wide.data(), range.data, range.bytes());
      std::transform(
          wide.begin(), wide.end(), values.begin(), [](double x) { return static_cast<float>(x); });
    }
    hasher.update(values.data(), values.size() * sizeof(float));
  }
  return hasher.hex();
}

void export_batches(const config::RunConfig& config,
                    const model::Gemma2Config& model,
                    const data::Dataset& dataset,
                    const std::string& init_hash,
                    std::int64_t steps,
                    const std::filesystem::path& path) {
  std::ofstream file(path);
  ordered_json settings;
  for (const auto& [key, value] : result_settings(config)) settings[key] = json::parse(value);
  ordered_json header{
      {"type", "batches"},
      {"settings", settings},
      {"schedule_total_steps", config.schedule.total_steps.value_or(config.train.max_steps)},
      {"embedding_decays", config.optimizer.decay_embedding},
      {"data_hash", base::hex64(dataset.hash)},
      {"init_hash", init_hash},
      {"rows", config.train.global_batch},
      {"seq_len", config.data.seq_len},
      {"pad_token_id", model.pad_token_id}};
  file << header.dump() << '\n';
  data::Batch batch;
  for (std::int64_t step = 0; step < steps; ++step) {
    dataset.train->fill(step * config.train.global_batch, config.train.global_batch, batch);
    std::vector<std::int32_t> lo = batch.lo;
    for (std::size_t n = 0; n < lo.size(); ++n) {
      lo[n] -= static_cast<std::int32_t>(n / static_cast<std::size_t>(batch.seq_len) *
                                         static_cast<std::size_t>(batch.seq_len));
    }
    file << json{{"step", step + 1},
                 {"ids", batch.ids},
                 {"targets", batch.targets},
                 {"positions", batch.positions},
                 {"lo", lo}}
                .dump()
         << '\n';
  }
  if (!file.flush()) throw base::IoError(cat(path.string(), ": cannot write"));
}

}  // namespace g2::train
