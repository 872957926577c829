// Training compared with a reference log, step by step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/reference_log.h"
#include "train/trainer.h"

namespace g2::train {

// One compared number: the worst of its kind in its step.
struct Comparison {
  std::int64_t step = 0;
  std::string quantity;  // "loss", "grad_norm", "lr", "logprob[3]", "norm of model.norm.weight"
  double ours = 0;
  double reference = 0;
  double limit = 0;  // of |ours - reference|

  double difference() const;
  double share() const;  // of the limit; above 1 it fails
  bool holds() const;    // false too where ours is not a number
};

struct VerifyReport {
  std::vector<Comparison> comparisons;
  bool holds() const;
  const Comparison& worst() const;  // requires that there is one
};

// Throws UsageError when the reference belongs to other settings, data or initial weights, naming
// the difference: such a comparison would say nothing.
void require_same_run(const ReferenceLog& reference,
                      const config::RunConfig& config,
                      const data::Dataset& dataset,
                      const std::string& init_hash);

// Takes the first `steps` steps of the reference (0: all) and compares each. No checkpoint is
// written.
VerifyReport verify(Trainer& trainer, const ReferenceLog& reference, std::int64_t steps);

// How far two ways of computing in bf16 are from the same fp32 reference, over the compared steps.
struct Distance {
  std::string quantity;  // "loss", "grad_norm"
  double ours = 0;       // root mean square of the difference to the reference
  double peer = 0;
  static constexpr double kAllowedRatio = 1.5;
  bool holds() const { return ours <= kAllowedRatio * peer; }
};

// `peer` is a reference log of the same run computed in bf16 by the reference's implementation.
// Throws DataError when it belongs to another run or has fewer steps than were compared.
std::vector<Distance> distances(const VerifyReport& report,
                                const ReferenceLog& reference,
                                const ReferenceLog& peer);

std::string distance_table(const std::vector<Distance>& distances);

// step, quantity, ours, reference, difference, limit: a line each, and the worst; for a terminal.
std::string report_table(const VerifyReport& report);

}  // namespace g2::train
