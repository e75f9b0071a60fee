// SPDX-License-Identifier: MIT
// Computes the frequencies of each kind of scaling (Llama 3, YaRN, LongRoPE), then the table, with
// a direct sine at the start of every block of positions.
#include "kernels/rope.h"

#include "kernels/math.h"

namespace moe {
namespace {

constexpr double kTwoPi = 6.283185307179586477;
constexpr double kLargestAngle = 33554432.0;  // of sincos_double
constexpr int32_t kBlock = 64;                // positions between directly computed sines

Status positive(const char* field, double v) {
  if (v > 0 && v < 1e30) return {};
  return Status::error(MOE_ERR_RANGE, "rope: %s: expected a finite number above 0, found %g", field,
                       v);
}

double clamp01(double v) { return v < 0 ? 0 : (v > 1 ? 1 : v); }

double llama3_frequency(const RopeConfig& c, double f) {
  const double turns = c.original_context * f / kTwoPi;
  if (turns < c.low_freq_factor) return f / c.factor;
  if (turns > c.high_freq_factor) return f;
  const double width = static_cast<double>(c.high_freq_factor) - c.low_freq_factor;
  const double smooth = width > 0 ? (turns - c.low_freq_factor) / width : 1;
  return (1 - smooth) * f / c.factor + smooth * f;
}

// The (fractional) dim pair with `turns` turns over the original context.
double yarn_dim(const RopeConfig& c, double turns) {
  return c.dims * log_double(c.original_context / (turns * kTwoPi)) / (2 * log_double(c.theta));
}

double yarn_frequency(const RopeConfig& c, int32_t j, double f) {
  double low = yarn_dim(c, c.beta_fast);
  double high = yarn_dim(c, c.beta_slow);
  if (c.truncate) {
    low = __builtin_floor(low);
    high = __builtin_ceil(high);
  }
  low = low < 0 ? 0 : low;
  high = high > c.dims - 1 ? c.dims - 1 : high;
  if (low == high) high += 0.001;
  const double interpolated = clamp01((j - low) / (high - low));
  return f / c.factor * interpolated + f * (1 - interpolated);
}

double frequency(const RopeConfig& c, int32_t context, int32_t j) {
  const double f = pow_double(c.theta, -2.0 * j / c.dims);
  switch (c.scaling) {
    case RopeScaling::kLinear:
      return f / c.factor;
    case RopeScaling::kLlama3:
      return llama3_frequency(c, f);
    case RopeScaling::kYarn:
      return yarn_frequency(c, j, f);
    case RopeScaling::kLongrope:
      return f / (context > c.original_context ? c.long_factor : c.short_factor)[j];
    case RopeScaling::kProportional:
      return j < c.turning / 2 ? f / c.factor : 0;
    case RopeScaling::kNone:
      break;
  }
  return f;
}

double attention_factor(const RopeConfig& c, int32_t context) {
  if (c.scaling != RopeScaling::kYarn && c.scaling != RopeScaling::kLongrope) return 1;
  if (c.attention_factor > 0) return c.attention_factor;
  if (c.scaling == RopeScaling::kYarn) {
    return c.factor > 1 ? 0.1 * log_double(c.factor) + 1 : 1;
  }
  const double f = c.factor > 1 ? c.factor : static_cast<double>(context) / c.original_context;
  if (f <= 1) return 1;
  return __builtin_sqrt(1 + log_double(f) / log_double(c.original_context));
}

// One frequency's column: a direct sine every kBlock positions, rotated by one step in between.
void fill_column(double f, double scale, int32_t context, int64_t stride, float* out) {
  double step_sin = 0;
  double step_cos = 0;
  sincos_double(f, &step_sin, &step_cos);
  for (int32_t block = 0; block < context; block += kBlock) {
    double s = 0;
    double c = 0;
    sincos_double(block * f, &s, &c);
    for (int32_t p = block; p < context && p < block + kBlock; ++p) {
      out[p * stride] = static_cast<float>(c * scale);
      out[p * stride + 1] = static_cast<float>(s * scale);
      const double turned = c * step_cos - s * step_sin;
      s = s * step_cos + c * step_sin;
      c = turned;
    }
  }
}

Status validate_longrope(const RopeConfig& c) {
  if (c.short_factor == nullptr || c.long_factor == nullptr) {
    return Status::error(MOE_ERR_ARGUMENT, "rope: longrope needs short_factor and long_factor");
  }
  if (c.original_context < 2) return positive("original_context - 1", c.original_context - 1);
  for (int32_t j = 0; j < c.dims / 2; ++j) {
    MOE_TRY(positive("short_factor", c.short_factor[j]));
    MOE_TRY(positive("long_factor", c.long_factor[j]));
  }
  return {};
}

}  // namespace

Status validate_rope(const RopeConfig& c) {
  if (c.kind == RopeKind::kNone) return {};
  if (c.dims < 2 || c.dims % 2 != 0 || c.dims > 65536) {
    return Status::error(MOE_ERR_RANGE, "rope: dims: expected an even number in 2..65536, found %d",
                         c.dims);
  }
  MOE_TRY(positive("theta", c.theta));
  if (c.scaling == RopeScaling::kNone) return {};
  MOE_TRY(positive("factor", c.factor));
  if (c.scaling == RopeScaling::kLinear) return {};
  if (c.scaling == RopeScaling::kProportional) {
    if (c.turning >= 0 && c.turning <= c.dims && c.turning % 2 == 0) return {};
    return Status::error(MOE_ERR_RANGE, "rope: turning: expected an even number in 0..%d, found %d",
                         c.dims, c.turning);
  }
  MOE_TRY(positive("original_context", c.original_context));
  if (c.scaling == RopeScaling::kLlama3) {
    MOE_TRY(positive("low_freq_factor", c.low_freq_factor));
    return positive("high_freq_factor", c.high_freq_factor);
  }
  if (c.attention_factor != 0) MOE_TRY(positive("attention_factor", c.attention_factor));
  if (c.scaling == RopeScaling::kLongrope) return validate_longrope(c);
  MOE_TRY(positive("beta_fast", c.beta_fast));
  MOE_TRY(positive("beta_slow", c.beta_slow));
  return positive("theta - 1", c.theta - 1);
}

Status build_rope_table(const RopeConfig& config, int32_t context, float* out) {
  MOE_TRY(validate_rope(config));
  if (config.kind == RopeKind::kNone) return {};
  if (context < 1) {
    return Status::error(MOE_ERR_RANGE, "rope: context: expected at least 1, found %d", context);
  }
  const double scale = attention_factor(config, context);
  for (int32_t j = 0; j < config.dims / 2; ++j) {
    const double f = frequency(config, context, j);
    if (!(f * context < kLargestAngle)) {
      return Status::error(MOE_ERR_RANGE, "rope: frequency %g times context %d: expected below %g",
                           f, context, kLargestAngle);
    }
    fill_column(f, scale, context, config.dims, out + 2 * j);
  }
  return {};
}

}  // namespace moe
