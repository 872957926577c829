// Shared by the tests: temporary folders, random values, error measures.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace g2::test {

// A fresh folder, removed with everything in it at the end of the scope.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

void write_text(const std::filesystem::path& path, const std::string& text);

// The message of the E that `body` throws, or "no error".
template <typename E, typename Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const E& e) {
    return e.what();
  }
  return "no error";
}

// The repository's root, for tests that read shipped files.
std::filesystem::path source_root();

// Normal values times `std_dev`, rounded to T.
template <typename T>
std::vector<T> normal(std::mt19937_64& rng, std::size_t count, double std_dev = 1) {
  std::normal_distribution<double> distribution(0, std_dev);
  std::vector<T> values(count);
  for (T& value : values) value = T(distribution(rng));
  return values;
}

template <typename To, typename From>
std::vector<To> converted(const std::vector<From>& values) {
  std::vector<To> out(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = To(static_cast<double>(values[i]));
  return out;
}

// ||got - want|| / ||want||, NaN when anything is not a number; 0 for two zero vectors.
template <typename G, typename W>
double relative_l2(std::span<const G> got, std::span<const W> want) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double w = static_cast<double>(want[i]);
    const double d = static_cast<double>(got[i]) - w;
    difference += d * d;
    norm += w * w;
  }
  if (difference == 0) return 0;
  return std::sqrt(difference / norm);
}

template <typename G, typename W>
double relative_l2(const std::vector<G>& got, const std::vector<W>& want) {
  return relative_l2(std::span<const G>(got), std::span<const W>(want));
}

// max_i |got_i - want_i| / |want_i|, absolute where want is 0.
template <typename G, typename W>
double max_relative_error(const std::vector<G>& got, const std::vector<W>& want) {
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double w = static_cast<double>(want[i]);
    const double d = std::abs(static_cast<double>(got[i]) - w);
    const double error = w == 0 ? d : d / std::abs(w);
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

}  // namespace g2::test
