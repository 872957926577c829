// Speed of the GPU attention paths on the shapes of the shipped models.
//
//   attention_bench [--json FILE]
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

nlohmann::json measure(const Case& c) {
  const std::size_t o_size = std::size_t(c.tokens) * c.q_heads * c.head_dim;
  const std::size_t qkv_size = o_size + 2 * std::size_t(c.tokens) * c.kv_heads * c.head_dim;
  const std::size_t rows = std::size_t(c.tokens) * c.q_heads;
  const DeviceArray<__nv_bfloat16> qkv(qkv_size), grad_qkv(qkv_size), o(o_size), grad_o(o_size);
  const DeviceArray<float> lse(rows), delta(rows);
  const DeviceArray<int> lo(c.tokens), hi(c.tokens);
  std::vector<int> host_lo(c.tokens), host_hi(c.tokens);
  double pairs = 0;
  for (int i = 0; i < c.tokens; ++i) {
    host_lo[i] = c.window > 0 ? std::max(0, i - c.window + 1) : 0;
    host_hi[i] = c.window > 0 ? std::min(c.tokens, i + c.window) - 1 : c.tokens - 1;
    pairs += i - host_lo[i] + 1;
  }
  const auto upload = [](auto* to, const auto& from) {
    check(cudaMemcpy(to, from.data(), from.size() * sizeof(from[0]), cudaMemcpyHostToDevice));
  };
  upload(qkv.get(), normal_values(qkv_size, 1));
  upload(grad_o.get(), normal_values(o_size, 2));
  upload(lo.get(), host_lo);
  upload(hi.get(), host_hi);

  const g2::kernels::AttentionShape shape{
      c.tokens, c.q_heads, c.kv_heads, c.head_dim, c.head_dim == 256 ? 1.0f / 16 : 1.0f / 12, 50};
  const double forward_ms = median_ms([&] {
    check(g2::kernels::attention_forward<__nv_bfloat16>(
        {shape, qkv.get(), lo.get(), o.get(), lse.get()}, c.path, nullptr));
  });
  const g2::kernels::AttentionBackward<__nv_bfloat16> backward{shape,
                                                               qkv.get(),
                                                               o.get(),
                                                               lse.get(),
                                                               grad_o.get(),
                                                               lo.get(),
                                                               hi.get(),
                                                               grad_qkv.get(),
                                                               delta.get()};
  const double backward_ms =
      median_ms([&] { check(g2::kernels::attention_backward(backward, c.path, nullptr)); });
  const BackwardParts parts = parts_of(c.path);
  const double delta_ms = median_ms([&] { check(detail::attention_delta(backward, nullptr)); });
  const double dq_ms = median_ms([&] { check(parts.dq(backward, nullptr)); });
  const double dkdv_ms = median_ms([&] { check(parts.dkdv(backward, nullptr)); });
  const double product = 2.0 * c.head_dim * c.q_heads * pairs;  // FLOPs of q k^T
  nlohmann::json result = {{"shape", c.name},
                           {"path", name_of(c.path)},
                           {"tokens", c.tokens},
                           {"q_heads", c.q_heads},
                           {"kv_heads", c.kv_heads},
                           {"head_dim", c.head_dim},
                           {"window", c.window}};
  for (const auto& [name, ms, products] : {std::tuple{"forward", forward_ms, 2},
                                           {"backward", backward_ms, 5},
                                           {"dq", dq_ms, 3},
                                           {"dkdv", dkdv_ms, 4}}) {
    const double floor_ms = products * product / kSustainedFlops * 1e3;
    result[name] = {{"ms", ms},
                    {"tflops", products * product / ms * 1e-9},
                    {"floor_ms", floor_ms},
                    {"of_floor", floor_ms / ms}};
    std::printf("%-11s %-6s h %-4d W %-5d %-9s %9.4f ms %7.1f TFLOP/s  floor %8.4f ms  %5.1f %%\n",
                c.name,
                name_of(c.path),
                c.head_dim,
                c.window,
                name,
                ms,
                products * product / ms * 1e-9,
                floor_ms,
                100 * floor_ms / ms);
  }
  const double delta_bytes = 4.0 * double(o_size) + 4.0 * double(rows);
  result["delta"] = {{"ms", delta_ms}, {"tb_per_s", delta_bytes / delta_ms * 1e-9}};
  std::printf("%-11s %-6s h %-4d W %-5d %-9s %9.4f ms %7.2f TB/s\n",
              c.name,
              name_of(c.path),
              c.head_dim,
              c.window,
              "delta",
              delta_ms,
              delta_bytes / delta_ms * 1e-9);
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

}  // namespace

int main(int argc, char** argv) {
  const bool writes_json = argc == 3 && std::strcmp(argv[1], "--json") == 0;
  if (argc != 1 && !writes_json) {
    std::fprintf(stderr, "usage: attention_bench [--json FILE]\n");
    return 2;
  }
  try {
    nlohmann::json report = {{"before", card_state()}, {"results", nlohmann::json::array()}};
    std::printf("before: %s\n", report["before"].get<std::string>().c_str());
    for (const Case& c : kCases) report["results"].push_back(measure(c));
    report["after"] = card_state();
    std::printf("after:  %s\n", report["after"].get<std::string>().c_str());
    if (writes_json) std::ofstream(argv[2]) << report.dump(2) << '\n';
  } catch (const std::exception& e) {
    std::fprintf(stderr, "attention_bench: %s\n", e.what());
    return 1;
  }
  return 0;
}
