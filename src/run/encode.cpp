// Encoders: a whole text in one pass, and what is asked of it.

#include <algorithm>

#include "src/run/logits.h"
#include "src/run/session_state.h"

namespace moe {
namespace {

Status check_text(const SessionState& state, std::span<const int32_t> tokens) {
  if (!state.model.config().is_encoder()) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "the model is a decoder: encoders alone encode whole texts");
  }
  if (tokens.empty()) return Status::error(MOE_ERR_RANGE, "there is no token to encode");
  const SessionOptions& o = state.options;
  if (tokens.size() > static_cast<size_t>(o.context)) {
    const int32_t most = std::min(state.model.config().context_length, kMaxChunk);
    return Status::error(MOE_ERR_TOO_LONG,
                         o.context < most
                             ? "%zu tokens do not fit: the session's context holds %d; create it "
                               "with a larger one (--context), at most %d"
                             : "%zu tokens do not fit: at most %d, the most that there is",
                         tokens.size(), o.context, most);
  }
  if (tokens.size() > static_cast<size_t>(o.chunk)) {
    return Status::error(
        MOE_ERR_TOO_LONG,
        o.chunk < kMaxChunk
            ? "an encoder sees a text whole: at most %d tokens, found %zu; create "
              "the session with a larger chunk (--chunk), at most %d"
            : "an encoder sees a text whole: at most %d tokens, the most that there is, "
              "found %zu",
        o.chunk, tokens.size(), kMaxChunk);
  }
  return check_ids(state, tokens);
}

Status check_rows(const ModelConfig& config, size_t n_tokens, std::span<const int32_t> rows) {
  if (config.head.kind == HeadKind::kNone) {
    return Status::error(MOE_ERR_UNSUPPORTED, "outputs: the model has no head");
  }
  if (config.head.kind == HeadKind::kClasses && !rows.empty()) {
    return Status::error(MOE_ERR_ARGUMENT, "rows: the model has one output for the whole text");
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const int32_t low = i == 0 ? 0 : rows[i - 1] + 1;
    if (rows[i] >= low && static_cast<size_t>(rows[i]) < n_tokens) continue;
    return Status::error(MOE_ERR_RANGE, "rows: expected ascending numbers in 0..%zu, found %d",
                         n_tokens - 1, rows[i]);
  }
  return {};
}

/// Where the rows of outputs go, one after the other.
struct OutputRows {
  float* to;
  size_t width;
  static Status take(void* user, size_t, const float* from) {
    OutputRows& out = *static_cast<OutputRows*>(user);
    MOE_TRY(check_finite({from, out.width}));
    std::copy_n(from, out.width, out.to);
    out.to += out.width;
    return {};
  }
};

Status check_hidden(const float* hidden, size_t n_tokens, size_t d) {
  for (size_t i = 0; i < n_tokens * d; ++i) {
    if (is_finite(hidden[i])) continue;
    return Status::error(MOE_ERR_NON_FINITE, "the hidden state of token %zu is no finite number",
                         i / d);
  }
  return {};
}

void pool(const float* hidden, size_t n_tokens, size_t d, Pooling pooling, float* out) {
  for (size_t i = 0; i < d; ++i) {
    double sum = 0;
    const size_t n = pooling == Pooling::kFirst ? 1 : n_tokens;
    for (size_t t = 0; t < n; ++t) sum += static_cast<double>(hidden[t * d + i]);
    out[i] = static_cast<float>(sum / static_cast<double>(n));
  }
}

}  // namespace

Status Session::encode(std::span<const int32_t> tokens, const Encoding& out) {
  static constexpr int32_t kFirstRow = 0;
  SessionCall call(*this);
  MOE_TRY(call.status());
  SessionState& state = call.state();
  const ModelConfig& config = state.model.config();
  const auto d = static_cast<size_t>(config.d_model);
  MOE_TRY(check_text(state, tokens));
  BatchPart part;
  part.session = &state;
  part.tokens = tokens;
  OutputRows rows{out.outputs, state.logits.size()};
  if (out.outputs != nullptr) {
    MOE_TRY(check_rows(config, tokens.size(), out.rows));
    part.rows = out.rows.empty() ? LogitRows::kAll : LogitRows::kSome;
    part.some = out.rows;
    part.sink = {OutputRows::take, &rows};
    if (config.head.kind == HeadKind::kClasses) {
      part.rows = LogitRows::kSome;
      part.some = {&kFirstRow, 1};
    }
  }
  Array<float> own(state.model.allocator());
  part.hidden = out.hidden;
  if (part.hidden == nullptr && out.pooled != nullptr) {
    MOE_TRY(own.resize(tokens.size() * d));
    part.hidden = own.data();
  }
  MOE_TRY(run_batch(state, {&part, 1}));
  if (state.counting) state.counters.keep_pass();
  if (part.hidden == nullptr) return {};
  MOE_TRY(check_hidden(part.hidden, tokens.size(), d));
  if (out.pooled != nullptr) pool(part.hidden, tokens.size(), d, out.pooling, out.pooled);
  return {};
}

}  // namespace moe
