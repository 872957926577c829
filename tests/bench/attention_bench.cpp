// Speed of the GPU attention paths on the shapes of the shipped models.
//
//   attention_bench [--only TEXT] [--json FILE]
//
// --only keeps the lines whose "shape path" begins with TEXT, as in "2B" or "27B global wgmma".
//
// Prints, for each shape and path, milliseconds (median), TFLOP/s and the share of the floor: the
// time of the same products at the rate the GPU's own matrix library sustains.
// TFLOP/s count 4 h H pairs forward and 10 h H pairs backward, the five products no algorithm can
// do without, over visible (query, key) pairs only; backward includes delta. Its parts dq and dkdv
// count the 3 and 4 products they really do.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/attention_detail.h"
#include "tensor/dtype.h"

namespace {

using g2::bf16;
using g2::kernels::AttentionPath;
namespace detail = g2::kernels::detail;

constexpr double kSustainedFlops = 790e12;  // bf16 8192^3 product on an H200, random values
constexpr int kWarmUps = 5;
constexpr int kRepeats = 20;

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) { check(cudaMalloc(&data_, count * sizeof(T))); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }
  T* get() const { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
};

struct Case {
  const char* name;
  int tokens, q_heads, kv_heads, head_dim, window;
  AttentionPath path;
};

constexpr std::array kCases = {
    Case{"2B global", 8192, 8, 4, 256, 0, AttentionPath::kWgmma},
    Case{"2B window", 8192, 8, 4, 256, 4096, AttentionPath::kWgmma},
    Case{"9B global", 8192, 16, 8, 256, 0, AttentionPath::kWgmma},
    Case{"27B global", 8192, 32, 16, 128, 0, AttentionPath::kWgmma},
    Case{"27B window", 8192, 32, 16, 128, 4096, AttentionPath::kWgmma},
    Case{"2B global", 8192, 8, 4, 256, 0, AttentionPath::kMma},
    Case{"2B window", 8192, 8, 4, 256, 4096, AttentionPath::kMma},
    Case{"27B global", 8192, 32, 16, 128, 0, AttentionPath::kMma},
    Case{"2B global", 2048, 8, 4, 256, 0, AttentionPath::kSimt},
};

const char* name_of(AttentionPath path) {
  switch (path) {
    case AttentionPath::kSimt:
      return "simt";
    case AttentionPath::kMma:
      return "mma";
    case AttentionPath::kWgmma:
      return "wgmma";
  }
  return "?";
}

using BackwardPart = cudaError_t (*)(const g2::kernels::AttentionBackward<__nv_bfloat16>&,
                                     cudaStream_t);
struct BackwardParts {
  BackwardPart dq, dkdv;
};

BackwardParts parts_of(AttentionPath path) {
  switch (path) {
    case AttentionPath::kMma:
      return {detail::attention_dq_mma, detail::attention_dkdv_mma};
    case AttentionPath::kWgmma:
      return {detail::attention_dq_wgmma, detail::attention_dkdv_wgmma};
    default:
      return {detail::attention_dq_simt, detail::attention_dkdv_simt};
  }
}

std::vector<bf16> normal_values(std::size_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> distribution;
  std::vector<bf16> period(1 << 20), values(count);
  for (bf16& x : period) x = bf16(distribution(rng));
  for (std::size_t i = 0; i < count; ++i) values[i] = period[i % period.size()];
  return values;
}

double median_ms(const std::function<void()>& launch) {
  for (int i = 0; i < kWarmUps; ++i) launch();
  std::array<cudaEvent_t, kRepeats + 1> events;
  for (cudaEvent_t& event : events) check(cudaEventCreate(&event));
  check(cudaEventRecord(events[0]));
  for (int i = 1; i <= kRepeats; ++i) {
    launch();
    check(cudaEventRecord(events[i]));
  }
  check(cudaDeviceSynchronize());
  std::array<float, kRepeats> ms;
  for (int i = 0; i < kRepeats; ++i) check(cudaEventElapsedTime(&ms[i], events[i], events[i + 1]));
  for (cudaEvent_t event : events) check(cudaEventDestroy(event));
  std::sort(ms.begin(), ms.end());
  return (ms[kRepeats / 2 - 1] + ms[kRepeats / 2]) / 2;
}

// A case's arrays on the device, filled, and the argument structs over them.
class Problem {
 public:
  explicit Problem(const Case& c)
      : shape_{c.tokens,
               c.q_heads,
               c.kv_heads,
               c.head_dim,
               c.head_dim == 256 ? 1.0f / 16 : 1.0f / 12,
               50},
        o_size_(std::size_t(c.tokens) * c.q_heads * c.head_dim),
        qkv_size_(o_size_ + 2 * std::size_t(c.tokens) * c.kv_heads * c.head_dim) {
    std::vector<int> lo(c.tokens), hi(c.tokens);
    for (int i = 0; i < c.tokens; ++i) {
      lo[i] = c.window > 0 ? std::max(0, i - c.window + 1) : 0;
      hi[i] = c.window > 0 ? std::min(c.tokens, i + c.window) - 1 : c.tokens - 1;
      pairs_ += i - lo[i] + 1;
    }
    const auto upload = [](auto* to, const auto& from) {
      check(cudaMemcpy(to, from.data(), from.size() * sizeof(from[0]), cudaMemcpyHostToDevice));
    };
    upload(qkv_.get(), normal_values(qkv_size_, 1));
    upload(grad_o_.get(), normal_values(o_size_, 2));
    upload(lo_.get(), lo);
    upload(hi_.get(), hi);
  }

  g2::kernels::AttentionForward<__nv_bfloat16> forward() const {
    return {shape_, qkv_.get(), lo_.get(), o_.get(), lse_.get()};
  }
  g2::kernels::AttentionBackward<__nv_bfloat16> backward() const {
    return {shape_,
            qkv_.get(),
            o_.get(),
            lse_.get(),
            grad_o_.get(),
            lo_.get(),
            hi_.get(),
            grad_qkv_.get(),
            delta_.get()};
  }
  double product_flops() const { return 2.0 * shape_.head_dim * shape_.q_heads * pairs_; }
  double delta_bytes() const { return 4.0 * double(o_size_) + 4.0 * double(rows()); }

 private:
  std::size_t rows() const { return std::size_t(shape_.tokens) * shape_.q_heads; }

  g2::kernels::AttentionShape shape_;
  std::size_t o_size_, qkv_size_;
  double pairs_ = 0;
  DeviceArray<__nv_bfloat16> qkv_{qkv_size_}, grad_qkv_{qkv_size_}, o_{o_size_}, grad_o_{o_size_};
  DeviceArray<float> lse_{rows()}, delta_{rows()};
  DeviceArray<int> lo_{std::size_t(shape_.tokens)}, hi_{std::size_t(shape_.tokens)};
};

nlohmann::json measure(const Case& c) {
  const Problem problem(c);
  const auto forward = problem.forward();
  const auto backward = problem.backward();
  const BackwardParts parts = parts_of(c.path);
  const double forward_ms =
      median_ms([&] { check(g2::kernels::attention_forward(forward, c.path, nullptr)); });
  const double backward_ms =
      median_ms([&] { check(g2::kernels::attention_backward(backward, c.path, nullptr)); });
  const double delta_ms = median_ms([&] { check(detail::attention_delta(backward, nullptr)); });
  const double dq_ms = median_ms([&] { check(parts.dq(backward, nullptr)); });
  const double dkdv_ms = median_ms([&] { check(parts.dkdv(backward, nullptr)); });

  nlohmann::json result = {{"shape", c.name},
                           {"path", name_of(c.path)},
                           {"tokens", c.tokens},
                           {"q_heads", c.q_heads},
                           {"kv_heads", c.kv_heads},
                           {"head_dim", c.head_dim},
                           {"window", c.window}};
  const auto start_line = [&](const char* part, double ms) {
    std::printf("%-11s %-6s N %-5d h %-4d W %-5d %-9s %9.4f ms ",
                c.name,
                name_of(c.path),
                c.tokens,
                c.head_dim,
                c.window,
                part,
                ms);
  };
  for (const auto& [part, ms, products] : {std::tuple{"forward", forward_ms, 2},
                                           {"backward", backward_ms, 5},
                                           {"dq", dq_ms, 3},
                                           {"dkdv", dkdv_ms, 4}}) {
    const double flops = products * problem.product_flops();
    const double tflops = flops / ms * 1e-9;
    const double floor_ms = flops / kSustainedFlops * 1e3;
    result[part] = {
        {"ms", ms}, {"tflops", tflops}, {"floor_ms", floor_ms}, {"of_floor", floor_ms / ms}};
    start_line(part, ms);
    std::printf("%7.1f TFLOP/s  floor %8.4f ms  %5.1f %%\n", tflops, floor_ms, 100 * floor_ms / ms);
  }
  const double tb_per_s = problem.delta_bytes() / delta_ms * 1e-9;
  result["delta"] = {{"ms", delta_ms}, {"tb_per_s", tb_per_s}};
  start_line("delta", delta_ms);
  std::printf("%7.2f TB/s\n", tb_per_s);
  std::fflush(stdout);
  return result;
}

// One line about the card as it is now; empty where nvidia-smi is missing.
std::string card_state() {
  FILE* pipe = popen(
      "nvidia-smi --format=csv,noheader "
      "--query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw,power.limit,temperature.gpu "
      "2>/dev/null",
      "r");
  if (pipe == nullptr) return {};
  char line[512] = {};
  const bool has_line = std::fgets(line, sizeof line, pipe) != nullptr;
  pclose(pipe);
  return has_line ? std::string(line, std::strcspn(line, "\n")) : std::string();
}

struct Options {
  std::string only;
  std::string json;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i += 2) {
    const bool is_only = std::strcmp(argv[i], "--only") == 0;
    const bool is_json = std::strcmp(argv[i], "--json") == 0;
    if (i + 1 == argc || (!is_only && !is_json)) return false;
    (is_only ? options.only : options.json) = argv[i + 1];
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: attention_bench [--only TEXT] [--json FILE]\n");
    return 2;
  }
  try {
    nlohmann::json report = {{"before", card_state()}, {"results", nlohmann::json::array()}};
    std::printf("before: %s\n", report["before"].get<std::string>().c_str());
    for (const Case& c : kCases) {
      const std::string name = std::string(c.name) + " " + name_of(c.path);
      if (name.starts_with(options.only)) report["results"].push_back(measure(c));
    }
    report["after"] = card_state();
    std::printf("after:  %s\n", report["after"].get<std::string>().c_str());
    if (!options.json.empty()) std::ofstream(options.json) << report.dump(2) << '\n';
  } catch (const std::exception& e) {
    std::fprintf(stderr, "attention_bench: %s\n", e.what());
    return 1;
  }
  return 0;
}
