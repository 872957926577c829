#include "train/metrics_log.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace g2::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

fs::path free_name(const fs::path& path) {
  for (int n = 1;; ++n) {
    fs::path name = path.string() + base::cat(".abandoned-", n);
    if (!fs::exists(name)) return name;
  }
}

// Lines up to the given step stay, the others (and a torn last line) go to a file beside. Gives the
// step of the last evaluation that stays, or -1.
std::int64_t cut(const fs::path& path, std::optional<std::int64_t> keep_through_step) {
  std::int64_t last_evaluation = -1;
  const std::string text = base::read_file(path);
  std::string kept;
  std::string moved;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find('\n', begin);
    end = end == std::string::npos ? text.size() : end + 1;
    const std::string line = text.substr(begin, end - begin);
    const auto object = nlohmann::json::parse(line, nullptr, false);
    const bool is_step =
        object.is_object() && object.contains("step") && object["step"].is_number_integer();
    const bool keep = keep_through_step && object.is_object() &&
                      (!is_step || object["step"].get<std::int64_t>() <= *keep_through_step);
    if (keep && is_step && object.contains("val_loss")) last_evaluation = object["step"];
    (keep ? kept : moved) += line;
    begin = end;
  }
  if (!moved.empty()) {
    base::write_file_atomic(free_name(path), moved);
    base::write_file_atomic(path, kept);
  }
  return last_evaluation;
}

}  // namespace

MetricsLog::MetricsLog(const fs::path& path, std::optional<std::int64_t> keep_through_step)
    : path_(path) {
  if (fs::exists(path)) last_evaluation_ = cut(path, keep_through_step);
  file_.open(path, std::ios::binary | std::ios::app);
  if (!file_) throw base::IoError(base::cat(path.string(), ": cannot open for writing"));
}

void MetricsLog::write(const ordered_json& line) {
  file_ << line.dump() << '\n' << std::flush;
  if (!file_) throw base::IoError(base::cat(path_.string(), ": cannot write; is the disk full?"));
}

void MetricsLog::header(const ordered_json& fields) {
  ordered_json line{{"type", "header"}};
  line.update(fields);
  write(line);
}

void MetricsLog::step(const StepResult& r) {
  ordered_json line{{"step", r.step},
                    {"loss", number(r.loss)},
                    {"grad_norm", number(r.grad_norm)},
                    {"lr", r.learning_rate},
                    {"tokens", r.tokens},
                    {"tokens_per_s", number(r.tokens_per_s)},
                    {"ms", number(r.ms)},
                    {"valid_targets", r.valid_targets},
                    {"epoch", r.epoch}};
  if (r.z_loss != 0) line["z_loss"] = number(r.z_loss);
  if (r.mfu) line["mfu"] = number(*r.mfu);
  if (r.mem_gib) line["mem_gib"] = number(*r.mem_gib);
  if (!r.skipped.empty()) line["skipped"] = r.skipped;
  if (r.skipped_steps > 0) line["skipped_steps"] = r.skipped_steps;
  write(line);
}

void MetricsLog::evaluation(const EvalResult& r) {
  last_evaluation_ = r.step;
  ordered_json line{
      {"step", r.step}, {"val_loss", number(r.val_loss)}, {"val_tokens", r.val_tokens}};
  if (r.val_bpb) line["val_bpb"] = number(*r.val_bpb);
  write(line);
}

}  // namespace g2::train
