#include "kernels/fill_normal.h"

#include "kernels/elementwise.cuh"

namespace g2::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWords = 4;  // of a Philox block, one block a thread

struct Words {
  std::uint32_t x[kWords];
};

__device__ Words philox(Words counter, std::uint32_t key0, std::uint32_t key1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * counter.x[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * counter.x[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter.x[1] ^ key0,
               static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter.x[3] ^ key1,
               static_cast<std::uint32_t>(p0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

template <int kCount>
__device__ double polynomial(const double (&coefficients)[kCount], double x) {
  double value = coefficients[kCount - 1];
#pragma unroll
  for (int i = kCount - 2; i >= 0; --i) value = value * x + coefficients[i];
  return value;
}

// ln(x) for a positive normal x: x = m 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2
// atanh((m-1)/(m+1)).
__device__ double exact_steps_log(double x) {
  constexpr double kLn2 = 0.69314718055994530942;
  int exponent = 0;
  double m = frexp(x, &exponent);
  if (m < 0.70710678118654752440) {
    m = m * 2.0;
    exponent = exponent - 1;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double series = 1.0 / 25.0;
#pragma unroll
  for (int k = 23; k >= 1; k -= 2) series = series * s2 + 1.0 / k;
  return exponent * kLn2 + 2.0 * s * series;
}

__device__ constexpr double kCentralNumerator[] = {3.3871328727963666080e0,
                                                   1.3314166789178437745e+2,
                                                   1.9715909503065514427e+3,
                                                   1.3731693765509461125e+4,
                                                   4.5921953931549871457e+4,
                                                   6.7265770927008700853e+4,
                                                   3.3430575583588128105e+4,
                                                   2.5090809287301226727e+3};
__device__ constexpr double kCentralDenominator[] = {1.0,
                                                     4.2313330701600911252e+1,
                                                     6.8718700749205790830e+2,
                                                     5.3941960214247511077e+3,
                                                     2.1213794301586595867e+4,
                                                     3.9307895800092710610e+4,
                                                     2.8729085735721942674e+4,
                                                     5.2264952788528545610e+3};
__device__ constexpr double kTailNumerator[] = {1.42343711074968357734e0,
                                                4.63033784615654529590e0,
                                                5.76949722146069140550e0,
                                                3.64784832476320460504e0,
                                                1.27045825245236838258e0,
                                                2.41780725177450611770e-1,
                                                2.27238449892691845833e-2,
                                                7.74545014278341407640e-4};
__device__ constexpr double kTailDenominator[] = {1.0,
                                                  2.05319162663775882187e0,
                                                  1.67638483018380384940e0,
                                                  6.89767334985100004550e-1,
                                                  1.48103976427480074590e-1,
                                                  1.51986665636164571966e-2,
                                                  5.47593808499534494600e-4,
                                                  1.05075007164441684324e-9};
__device__ constexpr double kFarNumerator[] = {6.65790464350110377720e0,
                                               5.46378491116411436990e0,
                                               1.78482653991729133580e0,
                                               2.96560571828504891230e-1,
                                               2.65321895265761230930e-2,
                                               1.24266094738807843860e-3,
                                               2.71155556874348757815e-5,
                                               2.01033439929228813265e-7};
__device__ constexpr double kFarDenominator[] = {1.0,
                                                 5.99832206555887937690e-1,
                                                 1.36929880922735805310e-1,
                                                 1.48753612908506148525e-2,
                                                 7.86869131145613259100e-4,
                                                 1.84631831751005468180e-5,
                                                 1.42151175831644588870e-7,
                                                 2.04426310338993978564e-15};

__device__ double normal_quantile(double p) {
  const double q = p - 0.5;
  if (fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(kCentralNumerator, r) / polynomial(kCentralDenominator, r);
  }
  const double r = sqrt(-exact_steps_log(q < 0 ? p : 1.0 - p));
  const double value =
      r <= 5.0 ? polynomial(kTailNumerator, r - 1.6) / polynomial(kTailDenominator, r - 1.6)
               : polynomial(kFarNumerator, r - 5.0) / polynomial(kFarDenominator, r - 5.0);
  return q < 0 ? -value : value;
}

__global__ void __launch_bounds__(kThreads) fill_normal_kernel(FillNormal p) {
  const std::int64_t block = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const Words words = philox({static_cast<std::uint32_t>(block),
                              static_cast<std::uint32_t>(block >> 32),
                              p.stream,
                              static_cast<std::uint32_t>(p.seed >> 32)},
                             static_cast<std::uint32_t>(p.seed),
                             p.purpose);
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    const std::int64_t i = block * kWords + k;
    if (i >= p.count) return;
    const double u = (words.x[k] + 0.5) * 0x1p-32;
    p.y[i] = static_cast<float>(p.std_dev * normal_quantile(u));
  }
}

}  // namespace

cudaError_t fill_normal(const FillNormal& p, cudaStream_t stream) {
  if (p.count < 0) return cudaErrorInvalidValue;
  if (p.count == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(ceil_div(p.count, std::int64_t{kThreads} * kWords));
  fill_normal_kernel<<<blocks, kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace g2::kernels
