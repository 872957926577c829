#include "cuda/plan_table.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace g2::cuda {
namespace {

using nlohmann::ordered_json;

std::string hex(std::uint64_t value) {
  std::array<char, 20> text{'0', 'x'};
  const auto end = std::to_chars(text.data() + 2, text.data() + text.size(), value, 16).ptr;
  return {text.data(), end};
}

std::uint64_t from_hex(const std::string& text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const bool has_prefix = text.starts_with("0x") && text.size() > 2;
  if (!has_prefix || std::from_chars(text.data() + 2, end, value, 16).ptr != end) {
    throw base::DataError(base::cat("'", text, "' is no hexadecimal number"));
  }
  return value;
}

DType dtype_from(const std::string& name) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    if (dtype_name(dtype) == name) return dtype;
  }
  throw base::DataError(base::cat("'", name, "' is neither f32 nor bf16"));
}

ordered_json json_of(const PlanKey& key, const Algorithm& algorithm) {
  const std::string trans = {key.a_transposed ? 't' : 'n', key.b_transposed ? 't' : 'n'};
  ordered_json words;
  for (const std::uint64_t word : algorithm) words.push_back(hex(word));
  return {{"in", dtype_name(key.in)},
          {"out", dtype_name(key.out)},
          {"trans", trans},
          {"mnk", {key.m, key.n, key.k}},
          {"ld", {key.a_ld, key.b_ld, key.c_ld}},
          {"alignment", key.alignment},
          {"algorithm", words}};
}

PlanKey key_from(const ordered_json& plan) {
  const auto trans = plan.at("trans").get<std::string>();
  const auto mnk = plan.at("mnk").get<std::array<std::int64_t, 3>>();
  const auto ld = plan.at("ld").get<std::array<std::int64_t, 3>>();
  return {.in = dtype_from(plan.at("in")),
          .out = dtype_from(plan.at("out")),
          .a_transposed = trans.at(0) == 't',
          .b_transposed = trans.at(1) == 't',
          .m = mnk[0],
          .n = mnk[1],
          .k = mnk[2],
          .a_ld = ld[0],
          .b_ld = ld[1],
          .c_ld = ld[2],
          .alignment = plan.at("alignment")};
}

Algorithm algorithm_from(const ordered_json& plan) {
  const auto words = plan.at("algorithm").get<std::array<std::string, 8>>();
  Algorithm algorithm;
  for (std::size_t i = 0; i < words.size(); ++i) algorithm[i] = from_hex(words[i]);
  return algorithm;
}

}  // namespace

std::optional<Algorithm> PlanTable::find(const PlanKey& key) const {
  const auto found = plans_.find(key);
  return found == plans_.end() ? std::nullopt : std::optional(found->second);
}

std::string PlanTable::to_json() const {
  std::string text = base::cat(
      "{\"cublaslt\": ", library_, ", \"gpu\": ", ordered_json(gpu_).dump(), ", \"plans\": [");
  const char* separator = "\n";
  for (const auto& [key, algorithm] : plans_) {
    text += separator + json_of(key, algorithm).dump();
    separator = ",\n";
  }
  return text + "\n]}\n";
}

bool PlanTable::add_json(std::string_view text, std::string_view source) {
  try {
    const ordered_json root = ordered_json::parse(text);
    if (root.at("cublaslt") != library_ || root.at("gpu") != gpu_) return false;
    for (const ordered_json& plan : root.at("plans")) set(key_from(plan), algorithm_from(plan));
    return true;
  } catch (const nlohmann::json::exception& e) {
    throw base::DataError(base::cat(source, ": no table of plans: ", base::json_reason(e.what())));
  } catch (const std::exception& e) {
    throw base::DataError(base::cat(source, ": no table of plans: ", e.what()));
  }
}

}  // namespace g2::cuda
