// SPDX-License-Identifier: MIT
// Hidden states and encoders.

#include "src/c_api/handles.h"

namespace moe {
namespace {

Status encode(moe_session* session, const int32_t* tokens, size_t n_tokens,
              const moe_encode_params* given) {
  MOE_TRY(check_session(session));
  if (tokens == nullptr && n_tokens != 0) return null_argument("tokens");
  if (given == nullptr) return null_argument("params");
  moe_encode_params p{};
  MOE_TRY(read_params(given, "params", &p));
  const int pooling = enum_number(p.pooling);
  if (pooling < MOE_POOL_DEFAULT || pooling > MOE_POOL_LAST) {
    return Status::error(MOE_ERR_ARGUMENT, "params.pooling: expected 0..3, found %d", pooling);
  }
  const int normalize = enum_number(p.normalize);
  if (normalize < MOE_NORMALIZE_DEFAULT || normalize > MOE_NORMALIZE_ON) {
    return Status::error(MOE_ERR_ARGUMENT, "params.normalize: expected 0..2, found %d", normalize);
  }
  MOE_TRY(check_reserved(p.reserved));
  const moe_model& model = *session->model;
  const bool pairs = model.model->config().second_positions ||
                     (model.text.tokenizer && model.text.tokenizer->knows_pairs());
  if (p.second > 0 && !pairs) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "params.second: the model file does not say how two texts are told apart");
  }
  const TextVectorConfig& vector = session->model->model->config().text_vector;
  const bool as_in_file = p.pooled != nullptr && pooling == MOE_POOL_DEFAULT;
  if (as_in_file && vector.max_tokens > 0 && n_tokens > static_cast<size_t>(vector.max_tokens)) {
    return Status::error(MOE_ERR_TOO_LONG,
                         "%zu tokens, the model's vectors are of texts of at most %d", n_tokens,
                         vector.max_tokens);
  }
  const HeadKind head = session->model->model->config().head.kind;
  const size_t all = head == HeadKind::kClasses ? 1 : n_tokens;
  if (p.outputs != nullptr && p.rows == nullptr && p.n_rows != all) {
    return Status::error(MOE_ERR_ARGUMENT, "params.n_rows: expected %zu, found %zu", all, p.n_rows);
  }
  if (p.outputs != nullptr && p.rows != nullptr && p.n_rows == 0) p.outputs = nullptr;
  Encoding out;
  out.hidden = p.hidden;
  out.pooled = p.pooled;
  static_assert(static_cast<int>(Pooling::kLast) + 1 == MOE_POOL_LAST);
  out.pooling = pooling == MOE_POOL_DEFAULT ? vector.pooling : static_cast<Pooling>(pooling - 1);
  out.normalise =
      normalize == MOE_NORMALIZE_DEFAULT ? vector.normalise : normalize == MOE_NORMALIZE_ON;
  out.outputs = p.outputs;
  out.second = p.second;
  if (p.rows != nullptr) out.rows = {p.rows, p.n_rows};
  return session->session->encode({tokens, n_tokens}, out);
}

}  // namespace
}  // namespace moe

moe_status moe_session_encode(moe_session* session, const int32_t* tokens, size_t n_tokens,
                              const moe_encode_params* params, moe_error* error) {
  return moe::deliver(moe::encode(session, tokens, n_tokens, params), error);
}
