#include "train/verify.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "base/hash.h"
#include "base/stop_signal.h"
#include "base/text.h"
#include "train/evaluation.h"

namespace g2::train {
namespace {

using base::cat;

Comparison compare(const ReferenceLog& log,
                   std::int64_t step,
                   std::string quantity,
                   const char* tolerance,
                   double ours,
                   double reference) {
  const auto found = log.tolerances.find(tolerance);
  if (found == log.tolerances.end()) {
    throw base::DataError(cat("the reference log has no tolerance for '", tolerance, "'"));
  }
  return {step, std::move(quantity), ours, reference, found->second.limit(reference)};
}

void keep_worst(std::vector<Comparison>& all, std::vector<Comparison> candidates) {
  if (candidates.empty()) return;
  all.push_back(*std::max_element(
      candidates.begin(), candidates.end(), [](const Comparison& a, const Comparison& b) {
        return a.share() < b.share();
      }));
}

double norm_of(model::Model& model, const model::Parameter& p) {
  const Tensor range = model.master().rows(p.offset, p.offset + p.count);
  double squares = 0;
  const auto add = [&](auto zero) {
    std::vector<decltype(zero)> values(static_cast<std::size_t>(p.count));
    model.device().copy_to_host(values.data(), range.data, range.bytes());
    for (const auto value : values) squares += double{value} * double{value};
  };
  if (range.dtype == DType::kF64) {
    add(0.0);
  } else {
    add(0.0F);
  }
  return std::sqrt(squares);
}

// Log-probabilities of a step's first valid targets, from the weights before its update.
std::vector<double> first_logprobs(model::Model& model,
                                   const std::vector<data::Batch>& batches,
                                   std::size_t count) {
  std::vector<double> logprobs;
  for (const data::Batch& batch : batches) {
    if (logprobs.size() == count) break;
    const auto n = static_cast<std::size_t>(batch.tokens());
    const DType acc = model.master().dtype;
    const Buffer memory(model.device(), n * dtype_bytes(acc));
    model.forward_loss(micro_batch(batch), Tensor(memory.data(), acc, {batch.tokens()}));
    std::vector<double> losses(n);
    if (acc == DType::kF64) {
      model.device().copy_to_host(losses.data(), memory.data(), memory.bytes());
    } else {
      std::vector<float> narrow(n);
      model.device().copy_to_host(narrow.data(), memory.data(), memory.bytes());
      losses.assign(narrow.begin(), narrow.end());
    }
    for (std::size_t i = 0; i < n && logprobs.size() < count; ++i) {
      if (batch.targets[i] != data::kIgnored) logprobs.push_back(-losses[i]);
    }
  }
  return logprobs;
}

}  // namespace

double Comparison::difference() const {
  return std::abs(ours - reference);
}
double Comparison::share() const {
  if (std::isnan(difference())) return INFINITY;
  return difference() == 0 ? 0 : difference() / limit;
}
bool Comparison::holds() const {
  return difference() <= limit;
}

bool VerifyReport::holds() const {
  return std::all_of(
      comparisons.begin(), comparisons.end(), [](const Comparison& c) { return c.holds(); });
}
const Comparison& VerifyReport::worst() const {
  return *std::max_element(
      comparisons.begin(), comparisons.end(), [](const Comparison& a, const Comparison& b) {
        return a.share() < b.share();
      });
}

void require_same_run(const ReferenceLog& reference,
                      const config::RunConfig& config,
                      const data::Dataset& dataset,
                      const std::string& init_hash) {
  const std::map<std::string, std::string> ours = result_settings(config);
  std::string differences;
  const auto note =
      [&](const std::string& what, const std::string& in_reference, const std::string& in_config) {
        differences += cat(differences.empty() ? "" : ", ",
                           what,
                           " is ",
                           in_config,
                           ", the reference has ",
                           in_reference);
      };
  for (const auto& [path, value] : reference.settings) {
    const auto found = ours.find(path);
    const std::string here = found == ours.end() ? "not given" : found->second;
    if (here != value) note(path, value, here);
  }
  for (const auto& [path, value] : ours) {
    if (!reference.settings.contains(path)) note(path, "not given", value);
  }
  if (reference.data_hash != base::hex64(dataset.hash)) {
    note("the data's hash", reference.data_hash, base::hex64(dataset.hash));
  }
  if (reference.init_hash != init_hash)
    note("the initial weights' hash", reference.init_hash, init_hash);
  if (!differences.empty()) {
    throw base::UsageError(cat("verify: the reference log belongs to another run: ", differences));
  }
}

VerifyReport verify(Trainer& trainer, const ReferenceLog& reference, std::int64_t steps) {
  VerifyReport report;
  const auto available = static_cast<std::int64_t>(reference.steps.size());
  const std::int64_t last = steps > 0 ? std::min(steps, available) : available;
  const ReferenceStep* expected = nullptr;
  trainer.before_step = [&](std::int64_t step, const std::vector<data::Batch>& batches) {
    expected = &reference.steps[static_cast<std::size_t>(step - 1)];
    std::vector<Comparison> all;
    const std::vector<double> ours =
        first_logprobs(trainer.model(), batches, expected->logprobs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      all.push_back(compare(
          reference, step, cat("logprob[", i, "]"), "logprob", ours[i], expected->logprobs[i]));
    }
    keep_worst(report.comparisons, std::move(all));
  };
  while (trainer.step() < last && !base::stop_requested()) {
    const StepResult r = trainer.train_step();
    report.comparisons.push_back(
        compare(reference, r.step, "loss", "loss", r.loss, expected->loss));
    report.comparisons.push_back(
        compare(reference, r.step, "grad_norm", "grad_norm", r.grad_norm, expected->grad_norm));
    report.comparisons.push_back(
        compare(reference, r.step, "lr", "lr", r.learning_rate, expected->learning_rate));
    std::vector<Comparison> norms;
    for (const auto& [name, norm] : expected->weights) {
      const model::Parameter* p = trainer.model().table().find(name);
      if (p == nullptr)
        throw base::DataError(cat("the reference log names '", name, "', which the model has not"));
      norms.push_back(compare(
          reference, r.step, "norm of " + name, "weight", norm_of(trainer.model(), *p), norm));
    }
    keep_worst(report.comparisons, std::move(norms));
  }
  trainer.before_step = nullptr;
  return report;
}

std::vector<Distance> distances(const VerifyReport& report,
                                const ReferenceLog& reference,
                                const ReferenceLog& peer) {
  if (peer.settings != reference.settings || peer.data_hash != reference.data_hash ||
      peer.init_hash != reference.init_hash) {
    throw base::DataError(
        "verify: the peer's log has other settings, data or initial weights than the reference");
  }
  const auto distance = [&](const char* quantity, double ReferenceStep::*value) {
    double ours = 0;
    double theirs = 0;
    std::int64_t count = 0;
    for (const Comparison& c : report.comparisons) {
      if (c.quantity != quantity) continue;
      if (c.step > static_cast<std::int64_t>(peer.steps.size())) {
        throw base::DataError(cat("verify: the peer's log ends before step ", c.step));
      }
      const double other = peer.steps[static_cast<std::size_t>(c.step - 1)].*value - c.reference;
      ours += (c.ours - c.reference) * (c.ours - c.reference);
      theirs += other * other;
      ++count;
    }
    const double n = static_cast<double>(std::max<std::int64_t>(count, 1));
    return Distance{quantity, std::sqrt(ours / n), std::sqrt(theirs / n)};
  };
  return {distance("loss", &ReferenceStep::loss), distance("grad_norm", &ReferenceStep::grad_norm)};
}

std::string distance_table(const std::vector<Distance>& all) {
  std::string text = "  distance from the reference (rms)   ours         peer         ratio\n";
  for (const Distance& d : all) {
    std::array<char, 160> buffer{};
    std::snprintf(buffer.data(),
                  buffer.size(),
                  "  %-34s  %-12.4e %-12.4e %.3f%s\n",
                  d.quantity.c_str(),
                  d.ours,
                  d.peer,
                  d.ours / d.peer,
                  d.holds() ? "" : "  FAILS");
    text += buffer.data();
  }
  return text;
}

std::string report_table(const VerifyReport& report) {
  std::string text =
      "  step  quantity                         ours              reference         difference  "
      "limit\n";
  const auto line = [&](const Comparison& c) {
    std::array<char, 256> buffer{};
    std::snprintf(buffer.data(),
                  buffer.size(),
                  "%6lld  %-32s %-17.10g %-17.10g %-11.2e %-9.2e%s\n",
                  static_cast<long long>(c.step),
                  c.quantity.c_str(),
                  c.ours,
                  c.reference,
                  c.difference(),
                  c.limit,
                  c.holds() ? "" : "  FAILS");
    text += buffer.data();
  };
  for (const Comparison& c : report.comparisons) line(c);
  text += "worst, as a share of its limit:\n";
  line(report.worst());
  return text;
}

}  // namespace g2::train
