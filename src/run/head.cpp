// SPDX-License-Identifier: MIT
// Runs the final norm and the head, some as a dense layer before it, and turns rows of logits to
// log-probabilities.
#include "src/run/head.h"

#include "src/run/batch.h"
#include "src/run/logits.h"

namespace moe {
namespace {

// A dense layer and an activation before the matrix: together they form an FFN.
void run_transformed(SessionState& lead, const Norm& norm, const float* x, int32_t n,
                     float* logits) {
  const ModelConfig& config = lead.model.config();
  const ModelWeights& weights = lead.model.weights();
  FfnOp op;
  op.x = x;
  op.y = logits;
  op.n_rows = n;
  op.d_model = config.d_model;
  op.scale = config.logit_multiplier;
  op.norm = norm;
  op.act.kind = config.head.act;
  op.shared = &weights.transformed_head;
  lead.device.ffn(lead.stream(), op);
}

}  // namespace

void compute_head(SessionState& lead, const float* x, int32_t n, float* logits) {
  compute_head(lead, lead.model.weights().final_norm, x, n, logits);
}

void compute_head(SessionState& lead, const Norm& norm, const float* x, int32_t n, float* logits) {
  const ModelConfig& config = lead.model.config();
  const ModelWeights& weights = lead.model.weights();
  const int32_t d = config.d_model;
  if (config.head.dense) {
    run_transformed(lead, norm, x, n, logits);
  } else {
    const LinearOut out{&weights.head, weights.head_bias,      logits, config.n_outputs(),
                        false,         config.logit_multiplier};
    lead.device.linear(lead.stream(), {x, d, n, d, norm, &out, 1});
  }
  if (config.logit_cap > 0) {
    lead.device.cap(lead.stream(), {logits, n, config.n_outputs(), config.logit_cap});
  }
}

namespace {

/// Log-probabilities of rows of logits; NaN for a row that is not finite.
struct RowScores {
  const float* logits;
  size_t width;
  const int32_t* targets;
  double* logprobs;

  Status score(size_t i) const {
    return log_probability({logits + i * width, width}, targets[i], &logprobs[i]);
  }
  static void part(void* user, int64_t begin, int64_t end) {
    const RowScores& rows = *static_cast<const RowScores*>(user);
    for (int64_t i = begin; i < end; ++i) {
      const auto row = static_cast<size_t>(i);
      if (!rows.score(row).ok()) rows.logprobs[row] = __builtin_nan("");
    }
  }
};

// Rows in device memory are downloaded one by one.
Status read_downloaded(SessionState& lead, std::span<const int32_t> targets, double* logprobs) {
  const std::span<float> row = lead.logits.row();
  for (size_t i = 0; i < targets.size(); ++i) {
    const float* from = lead.work().scratch_logits + i * row.size();
    MOE_TRY(lead.device.download(row.data(), from, row.size() * sizeof(float)));
    MOE_TRY(log_probability({row.data(), row.size()}, targets[i], &logprobs[i]));
  }
  return {};
}

}  // namespace

Status read_scores(SessionState& lead, std::span<const int32_t> targets, double* logprobs) {
  if (!lead.device.uses_host_memory()) return read_downloaded(lead, targets, logprobs);
  const size_t width = lead.logits.row().size();
  RowScores rows{lead.work().scratch_logits, width, targets.data(), logprobs};
  constexpr int64_t kWork = 8;  // relative cost of a logit
  lead.device.share(static_cast<int64_t>(targets.size()), kWork * static_cast<int64_t>(width),
                    RowScores::part, &rows);
  for (size_t i = 0; i < targets.size(); ++i) {
    if (logprobs[i] != logprobs[i]) return rows.score(i);
  }
  return {};
}

}  // namespace moe
