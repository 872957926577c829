#include "cuda/matmul.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cuda/status.h"

namespace g2::cuda {
namespace {

using base::cat;

constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;
constexpr int kCandidates = 8;
// Smaller products end before their launch would: timing them tells nothing.
constexpr double kSmallestTimedFlops = 2e9;
constexpr float kTimedMs = 200;  // under load the clock settles at what the power limit allows
constexpr int kMinRounds = 4;
constexpr int kMaxRounds = 100;
constexpr double kWorthwhile = 0.99;  // of the first suggestion's time

cudaDataType_t cuda_type(DType dtype) {
  return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
}

// The largest power of two up to 16 that divides all three addresses.
std::int64_t alignment_of(const Product& p) {
  const auto bits = reinterpret_cast<std::uintptr_t>(p.a.data) |
                    reinterpret_cast<std::uintptr_t>(p.b.data) |
                    reinterpret_cast<std::uintptr_t>(p.c) | 16;
  return std::int64_t{1} << std::countr_zero(bits);
}

PlanKey key_of(const Product& p) {
  return {.in = p.in,
          .out = p.out,
          .a_transposed = p.a.transposed,
          .b_transposed = p.b.transposed,
          .m = p.m,
          .n = p.n,
          .k = p.k,
          .a_ld = p.a.ld,
          .b_ld = p.b.ld,
          .c_ld = p.c_ld,
          .alignment = alignment_of(p)};
}

std::string describe(const PlanKey& k) {
  return cat("product [", k.m, ", ", k.n, "] over ", k.k, " in ", dtype_name(k.in));
}

// A median that costs little: of at most kMaxRounds values.
float median(std::vector<float> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "making an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "timing"); }
  float ms_since(const Event& start) const {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start.event_, event_), "timing");
    return ms;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

// cuBLASLt counts columns first: it is asked for c^T [n, m] = op(b)^T op(a)^T.
struct Matmul::Prepared {
  const CublasLt& lt;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  Prepared(const CublasLt& lt_in, const PlanKey& k) : lt(lt_in) {
    check(lt.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    set_transposed(CUBLASLT_MATMUL_DESC_TRANSA, k.b_transposed);
    set_transposed(CUBLASLT_MATMUL_DESC_TRANSB, k.a_transposed);
    first = layout(k.in, k.b_transposed ? k.k : k.n, k.b_transposed ? k.n : k.k, k.b_ld);
    second = layout(k.in, k.a_transposed ? k.m : k.k, k.a_transposed ? k.k : k.m, k.a_ld);
    result = layout(k.out, k.n, k.m, k.c_ld);
  }
  ~Prepared() {
    lt.layout_destroy(first);
    lt.layout_destroy(second);
    lt.layout_destroy(result);
    lt.desc_destroy(desc);
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  void set_transposed(cublasLtMatmulDescAttributes_t which, bool transposed) {
    const cublasOperation_t op = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(lt.desc_set(desc, which, &op, sizeof(op)), "describing a product");
  }
  cublasLtMatrixLayout_t layout(DType dtype,
                                std::int64_t rows,
                                std::int64_t columns,
                                std::int64_t ld) {
    cublasLtMatrixLayout_t made = nullptr;
    check(lt.layout_create(&made,
                           cuda_type(dtype),
                           static_cast<std::uint64_t>(rows),
                           static_cast<std::uint64_t>(columns),
                           ld),
          "describing a matrix");
    return made;
  }
  void use(const Algorithm& words) { algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(words); }

  bool runs(cublasLtHandle_t handle, const Algorithm& words) const {
    const auto candidate = std::bit_cast<cublasLtMatmulAlgo_t>(words);
    cublasLtMatmulHeuristicResult_t found{};
    return lt.check(handle, desc, first, second, result, result, &candidate, &found) ==
               CUBLAS_STATUS_SUCCESS &&
           found.state == CUBLAS_STATUS_SUCCESS && found.workspaceSize <= kWorkspaceBytes;
  }

  // cuBLASLt's suggestions, best guess first.
  std::vector<Algorithm> suggestions(cublasLtHandle_t handle, const PlanKey& key) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check(lt.preference_create(&preference), "asking for algorithms");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t which, const auto& value) {
      check(lt.preference_set(preference, which, &value, sizeof(value)), "asking for algorithms");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    // Never partial sums in the output type: that may be bf16.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    const auto alignment = static_cast<std::uint32_t>(key.alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found{};
    int count = 0;
    const cublasStatus_t status = lt.heuristic(
        handle, desc, first, second, result, result, preference, kCandidates, found.data(), &count);
    lt.preference_destroy(preference);
    std::vector<Algorithm> algorithms;
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; ++i) {
      if (found[i].state == CUBLAS_STATUS_SUCCESS) {
        algorithms.push_back(std::bit_cast<Algorithm>(found[i].algo));
      }
    }
    if (algorithms.empty()) {
      throw base::DeviceError(cat(describe(key), ": cuBLASLt has no algorithm"));
    }
    return algorithms;
  }
};

Matmul::Matmul(CudaDevice& device, std::filesystem::path plan_file)
    : device_(device),
      lt_(cublaslt()),
      workspace_(device, kWorkspaceBytes),
      plan_file_(std::move(plan_file)),
      table_(std::make_unique<PlanTable>(lt_.version(), device.model())) {
  if (!plan_file_.empty() && std::filesystem::exists(plan_file_) &&
      !table_->add_json(base::read_file(plan_file_), plan_file_.string())) {
    base::log_warning(cat(plan_file_.string(),
                          " is of another GPU model or cuBLASLt version: matrix products are timed "
                          "anew, so this run's bits may differ from before"));
  }
  check(lt_.create(&handle_), "starting cuBLASLt");
}

Matmul::~Matmul() {
  prepared_.clear();
  lt_.destroy(handle_);
}

void Matmul::run(const Product& product, const Product& planned) {
  launch(product, prepared(product, planned), product.accumulate);
}

void Matmul::launch(const Product& product, const Prepared& p, bool accumulate) {
  const float one = 1;
  const float beta = accumulate ? 1 : 0;
  const cublasStatus_t status = lt_.matmul(handle_,
                                           p.desc,
                                           &one,
                                           product.b.data,
                                           p.first,
                                           product.a.data,
                                           p.second,
                                           &beta,
                                           product.c,
                                           p.result,
                                           product.c,
                                           p.result,
                                           &p.algorithm,
                                           workspace_.data(),
                                           kWorkspaceBytes,
                                           device_.stream());
  if (status != CUBLAS_STATUS_SUCCESS) check(status, describe(key_of(product)));
}

const Matmul::Prepared& Matmul::prepared(const Product& product, const Product& planned) {
  const PlanKey key = key_of(product);
  const auto found = prepared_.find(key);
  if (found != prepared_.end()) return *found->second;
  auto made = std::make_unique<Prepared>(lt_, key);
  const Algorithm algorithm = choose(planned, key_of(planned));
  made->use(made->runs(handle_, algorithm) ? algorithm : made->suggestions(handle_, key).front());
  return *prepared_.emplace(key, std::move(made)).first->second;
}

Algorithm Matmul::choose(const Product& product, const PlanKey& key) {
  if (const auto known = table_->find(key)) return *known;
  Prepared p(lt_, key);
  const std::vector<Algorithm> algorithms = p.suggestions(handle_, key);
  const double flops =
      2.0 * static_cast<double>(key.m) * static_cast<double>(key.n) * static_cast<double>(key.k);
  // What is added to cannot be computed twice; such a product takes the first suggestion.
  if (plan_file_.empty() || flops < kSmallestTimedFlops || product.accumulate) {
    return algorithms.front();
  }
  const Algorithm chosen = fastest(product, p, algorithms);
  table_->set(key, chosen);
  base::write_file_atomic(plan_file_, table_->to_json());
  return chosen;
}

// All in turn, again and again, so that each meets the same clocks.
Algorithm Matmul::fastest(const Product& product,
                          Prepared& p,
                          const std::vector<Algorithm>& algorithms) {
  std::vector<Event> events(algorithms.size() + 1);
  std::vector<std::vector<float>> times(algorithms.size());
  float elapsed = 0;
  for (int round = 0; round < kMaxRounds && (round < kMinRounds || elapsed < kTimedMs); ++round) {
    events[0].record(device_.stream());
    for (std::size_t i = 0; i < algorithms.size(); ++i) {
      p.use(algorithms[i]);
      launch(product, p, false);
      events[i + 1].record(device_.stream());
    }
    device_.synchronize();
    elapsed += events.back().ms_since(events.front());
    for (std::size_t i = 0; round > 0 && i < algorithms.size(); ++i) {
      times[i].push_back(events[i + 1].ms_since(events[i]));
    }
  }
  std::size_t best = 0;
  for (std::size_t i = 1; i < algorithms.size(); ++i) {
    if (median(times[i]) < median(times[best]) * kWorthwhile) best = i;
  }
  base::log_debug(cat(describe(key_of(product)),
                      ": ",
                      base::number_text(median(times[best])),
                      " ms, the first suggestion ",
                      base::number_text(median(times[0])),
                      " ms"));
  return algorithms[best];
}

}  // namespace g2::cuda
