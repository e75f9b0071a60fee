// SPDX-License-Identifier: MIT
#pragma once
// Shape checks for tests that assemble operations from data: a Device checks nothing.

#include "kernels/device.h"
#include "kernels/router/table.h"
#include "src/base/status.h"

namespace moe {
inline Status check_shape(const char* owner, const char* name, const Matrix& m, int64_t rows,
                          int64_t cols) {
  if (m.empty()) {
    return Status::error(MOE_ERR_ARGUMENT, "%s.%s: missing, expected (%lld, %lld)", owner, name,
                         static_cast<long long>(rows), static_cast<long long>(cols));
  }
  if (m.rows == rows && m.cols == cols) return {};
  return Status::error(MOE_ERR_SHAPE, "%s.%s: expected (%lld, %lld), found (%d, %d)", owner, name,
                       static_cast<long long>(rows), static_cast<long long>(cols), m.rows, m.cols);
}

inline Status check_router_weights(const FfnOp& op, int32_t d_in) {
  const RouterWeightsView& w = op.router_weights;
  switch (router_info(op.router).scores) {
    case RouterScores::kTable:
      if (w.table != nullptr && op.rows != nullptr) return {};
      return Status::error(MOE_ERR_ARGUMENT, "router: %s needs a table and token ids",
                           router_info(op.router).name);
    case RouterScores::kCosine:
      MOE_TRY(check_shape("router", "proj", w.proj, w.proj.rows, d_in));
      return check_shape("router", "embedding", w.embedding, op.n_experts, w.proj.rows);
    case RouterScores::kLinear:
      break;
  }
  return check_shape("router", "scores", w.scores, op.n_experts, d_in);
}

/// Every output's weight has d_in inputs. MOE_ERR_SHAPE.
inline Status check_linear(const LinearOp& op) {
  for (int32_t i = 0; i < op.n_outs; ++i) {
    const Matrix& m = *op.outs[i].weight;
    MOE_TRY(check_shape("linear", "weight", m, m.rows, op.d_in));
  }
  return {};
}

/// gate, up and down match each other and d_in. `name` prefixes the message. MOE_ERR_SHAPE.
inline Status check_ffn(const Ffn& ffn, int32_t d_in, const char* name) {
  const int32_t d_ff = ffn.up.rows;
  MOE_TRY(check_shape(name, "up", ffn.up, d_ff, d_in));
  if (!ffn.gate.empty()) MOE_TRY(check_shape(name, "gate", ffn.gate, d_ff, d_in));
  return check_shape(name, "down", ffn.down, d_in, d_ff);
}

/// Heads divide d_model; router, head, merge and shared expert have matching shapes; the router's
/// parameters are in range. Experts are in an ExpertSource: check them with check_ffn().
/// MOE_ERR_SHAPE, MOE_ERR_RANGE, or MOE_ERR_ARGUMENT for a missing matrix.
inline Status check_ffn(const FfnOp& op) {
  if (op.shared != nullptr) MOE_TRY(check_ffn(*op.shared, op.d_model, "shared"));
  if (!op.shared_gate.empty()) {
    MOE_TRY(check_shape("shared", "gate", op.shared_gate, 1, op.d_model));
  }
  if (op.n_experts == 0) return {};
  if (op.n_subheads < 1 || op.d_model % op.n_subheads != 0) {
    return Status::error(MOE_ERR_SHAPE, "n_subheads: %d does not divide d_model %d", op.n_subheads,
                         op.d_model);
  }
  for (const Matrix* m : {&op.head, &op.merge}) {
    if (m->empty()) continue;
    MOE_TRY(check_shape("moe", m == &op.head ? "head" : "merge", *m, op.d_model, op.d_model));
  }
  MOE_TRY(check_router_weights(op, op.d_model / op.n_subheads));
  return validate_router(op.router, op.n_experts);
}

}  // namespace moe
