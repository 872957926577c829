// Speed of the CPU backend at hidden-256 shapes: each op, and a whole training step, beside the
// rate OpenBLAS reaches by itself on a large product with the same number of threads.
//
//   build/cpu/tests/bench/cpu_bench --benchmark_filter=step      # scripts/bench_cpu.py adds
//   PyTorch
//
// G2_BENCH_THREADS sets the thread count (default: every usable processor). Column `sgemm` is the
// share of OpenBLAS's rate, measured right before each benchmark; `cpu_share` is the same per
// second of processor time, which other programs on the machine disturb less.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <random>
#include <vector>

#include "cpu/cpu_device.h"
#include "cpu/cpu_ops.h"
#include "cpu/openblas.h"
#include "model/model.h"

namespace g2 {
namespace {

constexpr std::int64_t kRows = 8;
constexpr std::int64_t kSeqLen = 256;
constexpr std::int64_t kTokens = kRows * kSeqLen;
constexpr std::int64_t kHidden = 256;
constexpr std::int64_t kIntermediate = 1024;
constexpr AttentionShape kAttention{
    .q_heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 0.125, .softcap = 50};

int thread_count() {
  const char* text = std::getenv("G2_BENCH_THREADS");
  return text == nullptr ? 0 : std::atoi(text);
}

struct Bench {
  cpu::CpuDevice device{thread_count()};
  cpu::CpuOps ops{device.pool()};
  std::deque<Buffer> memory;
  std::minstd_rand rng{1};

  Tensor floats(std::initializer_list<std::int64_t> shape, double std_dev = 1) {
    Tensor t(nullptr, DType::kF32, shape);
    t.data = memory.emplace_back(device, t.bytes()).data();
    const auto width = static_cast<float>(std_dev * std::sqrt(12.0));
    for (std::int64_t i = 0; i < t.size(); ++i) {
      t.as<float>()[i] = width * (static_cast<float>(rng()) * 0x1p-31F - 0.5F);
    }
    return t;
  }
  Tensor integers(const std::vector<std::int32_t>& values) {
    Tensor t(nullptr, DType::kI32, {static_cast<std::int64_t>(values.size())});
    t.data = memory.emplace_back(device, t.bytes()).data();
    std::copy(values.begin(), values.end(), t.as<std::int32_t>());
    return t;
  }
  Tensor doubles(std::int64_t count) {
    Tensor t(nullptr, DType::kF64, {count});
    t.data = memory.emplace_back(device, t.bytes()).data();
    std::fill_n(t.as<double>(), count, 0.0);
    return t;
  }
};

Bench& bench() {
  static Bench instance;
  return instance;
}

struct Clock {
  std::chrono::steady_clock::time_point wall = std::chrono::steady_clock::now();
  std::clock_t cpu = std::clock();
  double wall_seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count();
  }
  double cpu_seconds() const { return static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC; }
};

struct Rate {
  double wall = 0;  // FLOP/s
  double cpu = 0;   // FLOP per second of processor time
};

// OpenBLAS with threads of its own on one large product; the best of a few.
Rate sgemm_rate() {
  constexpr int kSize = 2048;
  constexpr double kFlops = 2.0 * kSize * kSize * kSize;
  static const Tensor a = bench().floats({kSize, kSize});
  static const Tensor b = bench().floats({kSize, kSize});
  static const Tensor c = bench().floats({kSize, kSize});
  const cpu::OpenBlas& blas = *cpu::openblas();
  blas.set_num_threads(bench().device.pool().size());
  Rate rate;
  for (int repeat = 0; repeat < 6; ++repeat) {
    const Clock clock;
    blas.sgemm(CblasRowMajor,
               CblasNoTrans,
               CblasNoTrans,
               kSize,
               kSize,
               kSize,
               1,
               a.as<float>(),
               kSize,
               b.as<float>(),
               kSize,
               0,
               c.as<float>(),
               kSize);
    rate.wall = std::max(rate.wall, kFlops / clock.wall_seconds());
    rate.cpu = std::max(rate.cpu, kFlops / clock.cpu_seconds());
  }
  blas.set_num_threads(1);
  return rate;
}

// Runs body and reports its rate; flops 0: bytes moved matter instead.
template <typename Body>
void measure(benchmark::State& state, double flops, double bytes, const Body& body) {
  const Rate sgemm = flops > 0 ? sgemm_rate() : Rate{};
  body();
  Rate best;
  double fastest = INFINITY;
  for (auto _ : state) {
    const Clock clock;
    body();
    const double seconds = clock.wall_seconds();
    state.SetIterationTime(seconds);
    fastest = std::min(fastest, seconds);
    best.cpu = std::max(best.cpu, flops / clock.cpu_seconds());
  }
  best.wall = flops / fastest;
  state.counters["best_us"] = fastest * 1e6;
  if (bytes > 0) state.counters["GB/s"] = bytes / fastest / 1e9;
  if (flops > 0) {
    state.counters["GFLOP/s"] = best.wall / 1e9;
    state.counters["sgemm"] = best.wall / sgemm.wall;
    state.counters["cpu_share"] = best.cpu / sgemm.cpu;
  }
}

void sgemm(benchmark::State& state) {
  Rate rate;
  for (auto _ : state) {
    rate = sgemm_rate();
    state.SetIterationTime(1);
  }
  state.counters["GFLOP/s"] = rate.wall / 1e9;
}

void linear_forward(benchmark::State& state) {
  const std::int64_t in = state.range(0), out = state.range(1);
  const LinearForward p{
      bench().floats({kTokens, in}), bench().floats({out, in}), bench().floats({kTokens, out})};
  measure(state, 2.0 * kTokens * in * out, 0, [&] { bench().ops.linear_forward(p); });
}

void linear_dgrad(benchmark::State& state) {
  const std::int64_t in = state.range(0), out = state.range(1);
  const LinearDgrad p{
      bench().floats({kTokens, out}), bench().floats({out, in}), bench().floats({kTokens, in})};
  measure(state, 2.0 * kTokens * in * out, 0, [&] { bench().ops.linear_dgrad(p); });
}

void linear_wgrad(benchmark::State& state) {
  const std::int64_t in = state.range(0), out = state.range(1);
  const LinearWgrad p{bench().floats({kTokens, out}),
                      bench().floats({kTokens, in}),
                      bench().floats({out, in}),
                      false};
  measure(state, 2.0 * kTokens * in * out, 0, [&] { bench().ops.linear_wgrad(p); });
}

// Intervals of kTokens / seq_len rows.
struct Intervals {
  std::vector<std::int32_t> lo, hi;
};
Intervals intervals(std::int64_t seq_len) {
  Intervals out;
  for (std::int64_t i = 0; i < kTokens; ++i) {
    out.lo.push_back(static_cast<std::int32_t>(i / seq_len * seq_len));
    out.hi.push_back(static_cast<std::int32_t>((i / seq_len + 1) * seq_len - 1));
  }
  return out;
}

AttentionBackward attention_arguments(std::int64_t head_dim, std::int64_t seq_len) {
  AttentionShape shape = kAttention;
  shape.head_dim = head_dim;
  const std::int64_t width = shape.q_heads * head_dim;
  const std::int64_t row = (shape.q_heads + 2 * shape.kv_heads) * head_dim;
  const Intervals at = intervals(seq_len);
  return {.shape = shape,
          .qkv = bench().floats({kTokens, row}),
          .o = bench().floats({kTokens, width}),
          .lse = bench().floats({shape.q_heads, kTokens}),
          .grad_o = bench().floats({kTokens, width}),
          .lo = bench().integers(at.lo),
          .hi = bench().integers(at.hi),
          .grad_qkv = bench().floats({kTokens, row}),
          .delta = bench().floats({shape.q_heads, kTokens})};
}

// Multiply-adds of one product over visible (query, key) pairs, times 2.
double pair_flops(const AttentionShape& s, std::int64_t seq_len) {
  return 2.0 * static_cast<double>(kTokens * s.q_heads * s.head_dim) *
         static_cast<double>(seq_len + 1) / 2;
}

void attention_forward(benchmark::State& state) {
  const AttentionBackward b = attention_arguments(state.range(0), state.range(1));
  const AttentionForward p{b.shape, b.qkv, b.lo, b.o, b.lse};
  measure(
      state, 2 * pair_flops(p.shape, state.range(1)), 0, [&] { bench().ops.attention_forward(p); });
}

void attention_backward(benchmark::State& state) {
  const AttentionBackward p = attention_arguments(state.range(0), state.range(1));
  bench().ops.attention_forward({p.shape, p.qkv, p.lo, p.o, p.lse});
  measure(state, 5 * pair_flops(p.shape, state.range(1)), 0, [&] {
    bench().ops.attention_backward(p);
  });
}

void lm_head_loss(benchmark::State& state) {
  const std::int64_t vocab = state.range(0);
  std::vector<std::int32_t> targets(kTokens);
  for (std::int32_t& y : targets) y = static_cast<std::int32_t>(bench().rng() % vocab);
  const auto workspace = static_cast<std::int64_t>(bench().ops.lm_head_workspace_bytes(
      DType::kF32, kTokens, kHidden, vocab, std::size_t{64} << 20, true));
  const LmHeadLoss p{.x = bench().floats({kTokens, kHidden}),
                     .w = bench().floats({vocab, kHidden}, 0.05),
                     .targets = bench().integers(targets),
                     .softcap = 30,
                     .z_weight = 0,
                     .grad_scale = 1.0 / kTokens,
                     .sums = bench().doubles(2),
                     .loss = {},
                     .top1 = {},
                     .grad_x = bench().floats({kTokens, kHidden}),
                     .grad_w = bench().floats({vocab, kHidden}),
                     .accumulate_grad_w = false,
                     .flags = bench().integers({0}),
                     .workspace = bench().integers(std::vector<std::int32_t>(workspace / 4))};
  measure(state, 6.0 * kTokens * kHidden * static_cast<double>(vocab), 0, [&] {
    bench().ops.lm_head_loss(p);
  });
}

constexpr double kTokenBytes = 4.0 * kTokens;

void rmsnorm_add_forward(benchmark::State& state) {
  const auto x = [] { return bench().floats({kTokens, kHidden}); };
  const RmsnormAddForward p{.branch = x(),
                            .w_post = bench().floats({kHidden}),
                            .residual = x(),
                            .w_pre = bench().floats({kHidden}),
                            .eps = 1e-6,
                            .sum = x(),
                            .y = x(),
                            .r_post = bench().floats({kTokens}),
                            .r_pre = bench().floats({kTokens})};
  measure(state, 0, 4 * kHidden * kTokenBytes, [&] { bench().ops.rmsnorm_add_forward(p); });
}

void rmsnorm_backward(benchmark::State& state) {
  const auto x = [] { return bench().floats({kTokens, kHidden}); };
  const RmsnormBackward p{.grad_y = x(),
                          .x = x(),
                          .w = bench().floats({kHidden}),
                          .r = bench().floats({kTokens}),
                          .residual = x(),
                          .grad_x = x(),
                          .grad_w = bench().floats({kHidden}),
                          .accumulate_grad_w = false};
  measure(state, 0, 4 * kHidden * kTokenBytes, [&] { bench().ops.rmsnorm_backward(p); });
}

void rope(benchmark::State& state) {
  std::vector<std::int32_t> positions(kTokens);
  for (std::int64_t i = 0; i < kTokens; ++i) positions[i] = static_cast<std::int32_t>(i % kSeqLen);
  const std::int64_t heads = kAttention.q_heads + kAttention.kv_heads;
  const Rope p{.x = bench().floats({kTokens, (heads + kAttention.kv_heads) * kAttention.head_dim}),
               .positions = bench().integers(positions),
               .table = bench().floats({kSeqLen, kAttention.head_dim}, 0.5),
               .heads = heads,
               .inverse = false};
  measure(state, 0, 2 * static_cast<double>(heads * kAttention.head_dim) * kTokenBytes, [&] {
    bench().ops.rope(p);
  });
}

void geglu_forward(benchmark::State& state) {
  const GegluForward p{bench().floats({kTokens, 2 * kIntermediate}),
                       bench().floats({kTokens, kIntermediate})};
  measure(state, 0, 3 * kIntermediate * kTokenBytes, [&] { bench().ops.geglu_forward(p); });
}

void geglu_backward(benchmark::State& state) {
  const GegluBackward p{bench().floats({kTokens, kIntermediate}),
                        bench().floats({kTokens, 2 * kIntermediate}),
                        bench().floats({kTokens, 2 * kIntermediate})};
  measure(state, 0, 5 * kIntermediate * kTokenBytes, [&] { bench().ops.geglu_backward(p); });
}

void embedding(benchmark::State& state) {
  std::vector<std::int32_t> ids(kTokens);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(bench().rng() % 4096);
  const EmbeddingForward p{bench().integers(ids),
                           bench().floats({4096, kHidden}),
                           16,
                           bench().floats({kTokens, kHidden})};
  measure(state, 0, 2 * kHidden * kTokenBytes, [&] { bench().ops.embedding_forward(p); });
}

constexpr std::int64_t kParameters = 6 << 20;

void adamw(benchmark::State& state) {
  const auto x = [] { return bench().floats({kParameters}); };
  Adamw p{.master = x(),
          .m = x(),
          .v = x(),
          .grad = x(),
          .copy = {},
          .factor = bench().doubles(1),
          .learning_rate = 1e-3,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .eps = 1e-8,
          .weight_decay = 0.1,
          .step = 3};
  std::fill_n(p.v.as<float>(), kParameters, 1.0F);
  measure(state, 0, 7 * 4.0 * kParameters, [&] { bench().ops.adamw(p); });
}

void block_sums_of_squares(benchmark::State& state) {
  const BlockSumsOfSquares p{bench().floats({kParameters}),
                             bench().doubles(kParameters / kNormBlock)};
  measure(state, 0, 4.0 * kParameters, [&] { bench().ops.block_sums_of_squares(p); });
}

void fill_normal(benchmark::State& state) {
  const FillNormal p{bench().floats({kParameters / 16}), 1, 2, 0.02};
  measure(state, 0, 4.0 * kParameters / 16, [&] { bench().ops.fill_normal(p); });
}

model::Gemma2Config step_config(std::int64_t hidden, std::int64_t layers, std::int64_t vocab) {
  model::Gemma2Config c;
  c.vocab_size = vocab;
  c.hidden_size = hidden;
  c.intermediate_size = 4 * hidden;
  c.num_hidden_layers = static_cast<int>(layers);
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = hidden / 4;
  c.query_pre_attn_scalar = static_cast<double>(c.head_dim);
  c.sliding_window = 128;
  c.max_position_embeddings = 1024;
  return c;
}

// Floating-point operations of products only, exact visible pairs, forward and backward.
double step_flops(const model::Gemma2Config& c, std::int64_t seq_len) {
  const auto d = static_cast<double>(c.hidden_size);
  const auto q = static_cast<double>(c.num_attention_heads * c.head_dim);
  const auto kv = static_cast<double>(c.num_key_value_heads * c.head_dim);
  const auto t = static_cast<double>(seq_len);
  const double w = std::min(t, static_cast<double>(c.sliding_window));
  double keys = 0;
  for (int l = 0; l < c.num_hidden_layers; ++l) {
    keys += c.is_sliding(l) ? (w * (w + 1) / 2 + (t - w) * w) / t : (t + 1) / 2;
  }
  const double linear = 2 * d * q + 2 * d * kv + 3 * d * static_cast<double>(c.intermediate_size);
  return kTokens * (6 * (c.num_hidden_layers * linear + d * static_cast<double>(c.vocab_size)) +
                    12 * q * keys);
}

// Forward, loss, backward, gradient norm, clipping and update of one micro-batch.
void step(benchmark::State& state) {
  const model::Gemma2Config config = step_config(state.range(0), state.range(1), state.range(2));
  const std::int64_t seq_len = state.range(3);
  cpu::CpuOps& ops = bench().ops;
  model::Model m(config,
                 bench().device,
                 ops,
                 {.dtype = DType::kF32, .max_tokens = kTokens, .max_positions = seq_len});
  m.initialise(1);
  const std::int64_t n = m.master().size();
  const Tensor moments[2] = {bench().floats({n}, 0), bench().floats({n}, 0)};
  const std::int64_t blocks = (n + kNormBlock - 1) / kNormBlock;
  const Tensor sums = bench().doubles(blocks), norm = bench().doubles(1),
               factor = bench().doubles(1);
  const std::vector<std::int32_t> lo = intervals(seq_len).lo;
  std::vector<std::int32_t> ids(kTokens), targets(kTokens), positions(kTokens);
  for (std::int64_t i = 0; i < kTokens; ++i) {
    ids[i] = static_cast<std::int32_t>(bench().rng() % config.vocab_size);
    targets[i] = static_cast<std::int32_t>(bench().rng() % config.vocab_size);
    positions[i] = static_cast<std::int32_t>(i - lo[i]);
  }
  std::int64_t count = 0;
  measure(state, step_flops(config, seq_len), 0, [&] {
    m.begin_sums();
    m.forward_backward({.rows = kTokens / seq_len,
                        .seq_len = seq_len,
                        .ids = ids,
                        .targets = targets,
                        .positions = positions,
                        .lo = lo},
                       1.0 / kTokens,
                       true);
    ops.block_sums_of_squares({m.grads(), sums});
    ops.clip_factor({sums, 1.0, norm, factor});
    ops.adamw({.master = m.master(),
               .m = moments[0],
               .v = moments[1],
               .grad = m.grads(),
               .copy = {},
               .factor = factor,
               .learning_rate = 1e-3,
               .beta1 = 0.9,
               .beta2 = 0.95,
               .eps = 1e-8,
               .weight_decay = 0.1,
               .step = ++count});
  });
  state.counters["tokens/s"] = kTokens * 1e6 / state.counters["best_us"];
}

BENCHMARK(sgemm)->Iterations(1)->UseManualTime();
#define G2_BENCH(name) BENCHMARK(name)->UseManualTime()->Unit(benchmark::kMicrosecond)
G2_BENCH(step)
    ->ArgNames({"d", "layers", "vocab", "T"})
    ->Args({256, 6, 260, 256})
    ->Args({256, 6, 4096, 256})
    ->Args({256, 4, 260, 1024})
    ->Args({128, 4, 260, 128});
G2_BENCH(linear_forward)->Args({256, 512})->Args({256, 256})->Args({256, 2048})->Args({1024, 256});
G2_BENCH(linear_dgrad)->Args({256, 512})->Args({256, 256})->Args({256, 2048})->Args({1024, 256});
G2_BENCH(linear_wgrad)->Args({256, 512})->Args({256, 256})->Args({256, 2048})->Args({1024, 256});
G2_BENCH(attention_forward)->Args({64, 256})->Args({32, 128})->Args({64, 1024});
G2_BENCH(attention_backward)->Args({64, 256})->Args({32, 128})->Args({64, 1024});
G2_BENCH(lm_head_loss)->Arg(260)->Arg(4096);
G2_BENCH(rmsnorm_add_forward);
G2_BENCH(rmsnorm_backward);
G2_BENCH(rope);
G2_BENCH(geglu_forward);
G2_BENCH(geglu_backward);
G2_BENCH(embedding);
G2_BENCH(adamw);
G2_BENCH(block_sums_of_squares);
G2_BENCH(fill_normal);

}  // namespace
}  // namespace g2

BENCHMARK_MAIN();
