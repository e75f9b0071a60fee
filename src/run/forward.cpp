#include "src/run/forward.h"

#include <algorithm>

#include "src/model/latent_matrices.h"
#include "src/run/head.h"
#include "src/run/session_state.h"

namespace moe {
namespace {

/// The rows of one pass as the device sees them.
struct Batch {
  const SessionState& lead;
  std::span<BatchPart> parts;
  const BatchRow* rows;
  const KvCacheView* caches;
  int32_t n_rows;
};

Batch lay_out(SessionState& lead, std::span<BatchPart> parts) {
  int32_t n_rows = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    BatchPart& part = parts[p];
    part.first_row = n_rows;
    for (size_t i = 0; i < part.tokens.size(); ++i, ++n_rows) {
      const int32_t position = part.position + static_cast<int32_t>(i);
      lead.work.rows[static_cast<size_t>(n_rows)] = {static_cast<int32_t>(p), position,
                                                     part.tokens[i]};
    }
  }
  return {lead, parts, lead.work.rows.data(), lead.work.caches.data(), n_rows};
}

// In a call of several passes, a cancel of a session in another pass counts too.
bool cancel_asked(const Batch& batch) {
  for (const Session* session : batch.lead.group) {
    if (SessionCall::state_of(*session).cancel_asked()) return true;
  }
  for (const BatchPart& part : batch.parts) {
    if (part.session->cancel_asked()) return true;
  }
  return false;
}

// A preempted cancel() can reach the stream after its call has ended. The call that it hits was not
// cancelled, so the skipped work must be repeated.
bool cancelled_late(SessionState& lead, const Batch& batch, const Status& status) {
  if (status.code() != MOE_ERR_CANCELLED || cancel_asked(batch)) return false;
  lead.stream->cancelled.store(false);
  return true;
}

/// Consecutive parts that one operation can process.
struct Run {
  SessionState* session;  // of its first part
  int32_t first_row;
  int32_t n_rows;
};

template <class Same>
bool next_run(const Batch& batch, size_t* at, Same same, Run* run) {
  if (*at == batch.parts.size()) return false;
  const BatchPart& first = batch.parts[*at];
  do {
    ++*at;
  } while (*at < batch.parts.size() && same(*first.session, *batch.parts[*at].session));
  const int32_t end = *at < batch.parts.size() ? batch.parts[*at].first_row : batch.n_rows;
  *run = {first.session, first.first_row, end - first.first_row};
  return true;
}

// Position tables can depend on the context (longrope).
bool same_tables(const SessionState& a, const SessionState& b) {
  return a.options.context == b.options.context;
}

bool same_operation(const SessionState& a, const SessionState& b) {
  return same_tables(a, b) && a.keeps_latent() == b.keeps_latent();
}

bool same_routing(const SessionState& a, const SessionState& b) {
  return !a.own_routing() && !b.own_routing();
}

/// view(part): the cache to use for the part.
template <class View>
void show_caches(SessionState& lead, const Batch& batch, View view) {
  for (const BatchPart& part : batch.parts) {
    lead.work.caches[static_cast<size_t>(batch.rows[part.first_row].session)] = view(part);
  }
}

AttentionOp attention_op(const Batch& batch, const AttentionConfig& c) {
  AttentionOp op;
  op.n_rows = batch.n_rows;
  op.rows = batch.rows;
  op.caches = batch.caches;
  op.n_heads = c.n_heads;
  op.n_kv_heads = c.n_kv_heads;
  op.head_dim = c.head_dim;
  op.window = c.window;
  op.causal = c.causal;
  op.multiplier =
      c.multiplier != 0 ? c.multiplier : 1 / __builtin_sqrtf(static_cast<float>(c.head_dim));
  op.cap = c.score_cap;
  return op;
}

LatentHeads latent_heads(const SessionState& lead, int32_t layer, const Run& run) {
  const AttentionConfig& c = lead.model.config().layers[static_cast<size_t>(layer)].attention;
  const WorkMemory& w = run.session->work;  // the lead has none if its cache is not latent
  const LatentMatrices& matrices = *lead.model.latent_matrices();
  LatentHeads heads;
  heads.width = c.latent;
  heads.norm = lead.model.layer(layer).attention.latent_norm;
  heads.z = lead.work.latent + int64_t{run.first_row} * (c.latent + c.rope.dims);
  heads.keys = matrices.keys(layer);
  heads.values = matrices.values(layer);
  heads.max_rows = w.wide_rows;
  heads.key = w.wide_key;
  heads.q = w.wide_q;
  heads.seen = w.seen;
  return heads;
}

void attend(SessionState& lead, const Batch& batch, int32_t layer) {
  const WorkMemory& w = lead.work;
  const AttentionConfig& c = lead.model.config().layers[static_cast<size_t>(layer)].attention;
  const AttentionWeights& a = lead.model.layer(layer).attention;
  show_caches(lead, batch,
              [&](const BatchPart& part) { return part.session->kv.view(layer, part.text); });
  AttentionOp op = attention_op(batch, c);
  op.qk_norm = c.qk_norm;
  if (c.qkv_clip > 0) op.clip = c.qkv_clip;
  op.q_norm = a.q_norm;
  op.k_norm = a.k_norm;
  op.sinks = a.sinks;
  const int64_t q_width = int64_t{c.n_heads} * c.head_dim;
  const int64_t kv_width = int64_t{c.n_kv_heads} * c.head_dim;
  Run run;
  for (size_t at = 0; next_run(batch, &at, same_operation, &run);) {
    LatentHeads heads;
    op.latent = nullptr;
    if (run.session->keeps_latent()) {
      heads = latent_heads(lead, layer, run);
      op.latent = &heads;
    }
    op.n_rows = run.n_rows;
    op.rows = batch.rows + run.first_row;
    op.q = w.q + run.first_row * q_width;
    op.k = w.k + run.first_row * kv_width;
    op.v = w.v + run.first_row * kv_width;
    op.out = w.mixed + run.first_row * q_width;
    op.rope_table = run.session->rope.table(layer);
    op.rope = op.rope_table != nullptr ? c.rope.kind : RopeKind::kNone;
    op.rope_dims = op.rope_table != nullptr ? c.rope.dims : 0;
    lead.device.attention(*lead.stream, op);
  }
}

/// Destination of a block's output: added to x, or stored separately for the output norm.
struct BlockOut {
  float* y;
  bool accumulate;
  float scale;
};

BlockOut block_out(const SessionState& lead, const BlockNormWeights& norms) {
  if (norms.out.kind != NormKind::kNone) return {lead.work.branch, false, 1};
  return {lead.work.x, true, lead.model.config().residual_multiplier};
}

// Completes x = post(x + residual_multiplier * out(f(pre(x)))) after block_out().
void finish_block(SessionState& lead, const BlockNormWeights& norms, int32_t n_rows) {
  const ModelConfig& config = lead.model.config();
  const WorkMemory& w = lead.work;
  const int32_t d = config.d_model;
  if (norms.out.kind != NormKind::kNone) {
    lead.device.norm(*lead.stream,
                     {w.branch, w.x, n_rows, d, norms.out, true, config.residual_multiplier});
  }
  if (norms.post.kind != NormKind::kNone) {
    lead.device.norm(*lead.stream, {w.x, w.x, n_rows, d, norms.post, false, 1});
  }
}

void feed_forward(SessionState& lead, const Batch& batch, int32_t layer) {
  const ModelConfig& config = lead.model.config();
  const FfnConfig& c = config.layers[static_cast<size_t>(layer)].ffn;
  const LayerWeights& w = lead.model.layer(layer);
  const BlockOut out = block_out(lead, w.ffn_norms);
  MoeOp op;
  op.d_model = config.d_model;
  op.accumulate = out.accumulate;
  op.scale = out.scale;
  op.norm = w.ffn_norms.pre;
  op.act = c.act;
  op.n_experts = c.kind == FfnKind::kMoe ? c.moe.n_experts : 0;
  op.n_subheads = c.kind == FfnKind::kMoe ? c.moe.n_subheads : 1;
  op.head = w.head;
  op.head_bias = w.head_bias;
  op.merge = w.merge;
  op.merge_bias = w.merge_bias;
  op.router_weights = w.router;
  op.experts = w.experts;
  op.shared = w.ffn.up.empty() ? nullptr : &w.ffn;
  op.shared_gate = w.shared_gate;
  Run run;
  for (size_t at = 0; next_run(batch, &at, same_routing, &run);) {
    SessionState& session = *run.session;
    op.router = session.routers[static_cast<size_t>(layer)];
    op.stats = session.counting ? session.counters.of_pass(layer) : nullptr;
    op.layer = layer;
    op.hook = session.hook;
    op.n_rows = run.n_rows;
    op.rows = batch.rows + run.first_row;
    op.x = lead.work.x + int64_t{run.first_row} * config.d_model;
    op.y = out.y + int64_t{run.first_row} * config.d_model;
    lead.device.moe(*lead.stream, op);
  }
  finish_block(lead, w.ffn_norms, batch.n_rows);
}

bool wants_logits(const Batch& batch, int32_t row) {
  const BatchPart& part = batch.parts[static_cast<size_t>(batch.rows[row].session)];
  const bool last = static_cast<size_t>(row - part.first_row) + 1 == part.tokens.size();
  if (part.rows == LogitRows::kSome) {
    return std::binary_search(part.some.begin(), part.some.end(), row - part.first_row);
  }
  return part.rows == LogitRows::kAll || (part.rows == LogitRows::kLast && last);
}

// True if the row remains on the device, in its session's memory.
bool keeps_row(const BatchPart& part) {
  return part.session->keeps_rows && part.rows == LogitRows::kLast;
}

// Delivers row `row` of the batch, which is row `from` of `rows`, to its session.
Status deliver_logits(SessionState& lead, const Batch& batch, int32_t row, int32_t from,
                      const float* rows) {
  const BatchPart& part = batch.parts[static_cast<size_t>(batch.rows[row].session)];
  SessionState& session = *part.session;
  session.on_device = keeps_row(part);
  if (session.on_device) {
    session.chosen.take(session.spec, lead.device.choice(*lead.stream, from));
    return {};
  }
  const size_t n_outputs = session.logits.size();
  float* logits = session.logits.data();
  MOE_TRY(lead.device.download(logits, rows + static_cast<size_t>(from) * n_outputs,
                               n_outputs * sizeof(float)));
  if (part.rows != LogitRows::kAll && part.rows != LogitRows::kSome) return {};
  return part.sink.take(part.sink.user, static_cast<size_t>(row - part.first_row), logits);
}

// Copies rows that remain on the device to their sessions, and computes what sampling needs.
void keep_rows(SessionState& lead, const Batch& batch, int32_t row, int32_t n,
               const float* logits) {
  ChoiceSpec specs[kMaxChoiceRows];
  float* copies[kMaxChoiceRows] = {};
  bool any = false;
  for (int32_t i = 0; i < n; ++i) {
    const BatchPart& part = batch.parts[static_cast<size_t>(batch.rows[row + i].session)];
    if (!keeps_row(part)) continue;
    const SessionState& session = *part.session;
    specs[i] = session.spec;
    if (session.work.kept != logits) copies[i] = session.work.kept;
    any = any || wants_anything(specs[i]) || copies[i] != nullptr;
  }
  const int32_t vocab_size = lead.model.config().vocab_size;
  if (any) lead.device.choose(*lead.stream, {logits, n, vocab_size, specs, copies});
}

float* row_at(const SessionState& lead, int64_t row) {
  return lead.work.x + row * lead.model.config().d_model;
}

// Computes the logits of n rows from `row` on into `logits`, or into the session's own row.
void run_head(SessionState& lead, const Batch& batch, int32_t row, int32_t n, float* logits) {
  const BatchPart& first = batch.parts[static_cast<size_t>(batch.rows[row].session)];
  if (n == 1 && keeps_row(first)) logits = first.session->work.kept;
  compute_head(lead, row_at(lead, row), n, logits);
  keep_rows(lead, batch, row, n, logits);
}

// Computes the requested rows of logits, as many at a time as fit in the layers' scratch.
Status write_logits(SessionState& lead, const Batch& batch) {
  for (int32_t r = 0; r < batch.n_rows && !cancel_asked(batch);) {
    int32_t n = 0;
    while (n < lead.work.late_rows && r + n < batch.n_rows && wants_logits(batch, r + n)) ++n;
    if (n == 0) {
      ++r;
      continue;
    }
    Status status;
    do {
      run_head(lead, batch, r, n, lead.work.late_logits);
      status = lead.device.sync(*lead.stream);
    } while (cancelled_late(lead, batch, status));
    MOE_TRY(status);
    for (int32_t i = 0; i < n; ++i, ++r) {
      MOE_TRY(deliver_logits(lead, batch, r, i, lead.work.late_logits));
    }
  }
  return {};
}

// Log-probabilities of a part's targets, as many rows at a time.
Status write_scores(SessionState& lead, const Batch& batch, const BatchPart& part) {
  const ScoredRows& scored = part.scored;
  double logprobs[kLateLogitRows];
  for (size_t i = 0; i < scored.targets.size() && !cancel_asked(batch);) {
    const auto most = static_cast<size_t>(lead.work.late_rows);
    const size_t n = std::min(most, scored.targets.size() - i);
    const float* x = row_at(lead, part.first_row + static_cast<int64_t>(scored.first + i));
    Status status;
    do {
      compute_head(lead, x, static_cast<int32_t>(n), lead.work.late_logits);
      status = lead.device.sync(*lead.stream);
    } while (cancelled_late(lead, batch, status));
    MOE_TRY(status);
    MOE_TRY(read_scores(lead, scored.targets.subspan(i, n), logprobs));
    for (size_t j = 0; j < n; ++j, ++i) {
      scored.sink.take(scored.sink.user, scored.first_index + i, logprobs[j]);
    }
  }
  return {};
}

// Norms a decoder's hidden states in place, since such a part needs nothing else. Not for encoders,
// whose head may still read them.
void norm_hidden(SessionState& lead, const Batch& batch) {
  const int32_t d = lead.model.config().d_model;
  const Norm& norm = lead.model.weights().final_norm;
  for (const BatchPart& part : batch.parts) {
    if (part.hidden == nullptr || norm.kind == NormKind::kNone) continue;
    float* x = lead.work.x + int64_t{part.first_row} * d;
    lead.device.norm(*lead.stream,
                     {x, x, static_cast<int32_t>(part.tokens.size()), d, norm, false, 1});
  }
}

// Copies the hidden states after the final norm where requested.
Status write_hidden(SessionState& lead, const Batch& batch) {
  const int32_t d = lead.model.config().d_model;
  const Norm& norm = lead.model.weights().final_norm;
  for (const BatchPart& part : batch.parts) {
    if (part.hidden == nullptr || cancel_asked(batch)) continue;
    const float* x = lead.work.x + int64_t{part.first_row} * d;
    const auto n = static_cast<int32_t>(part.tokens.size());
    if (norm.kind != NormKind::kNone && lead.model.config().is_encoder()) {
      Status status;
      do {
        lead.device.norm(*lead.stream, {x, lead.work.branch, n, d, norm, false, 1});
        status = lead.device.sync(*lead.stream);
      } while (cancelled_late(lead, batch, status));
      MOE_TRY(status);
      x = lead.work.branch;
    }
    MOE_TRY(lead.device.download(part.hidden, x,
                                 part.tokens.size() * static_cast<size_t>(d) * sizeof(float)));
  }
  return {};
}

bool all_keep_latent(const Batch& batch) {
  for (const BatchPart& part : batch.parts) {
    if (!part.session->keeps_latent()) return false;
  }
  return true;
}

// Computes q, k and v of pre(x), before positions; with a latent cache, q and the latent.
void project_qkv(SessionState& lead, const Batch& batch, int32_t layer) {
  const int32_t n_rows = batch.n_rows;
  const ModelConfig& config = lead.model.config();
  const AttentionConfig& c = config.layers[static_cast<size_t>(layer)].attention;
  const AttentionWeights& a = lead.model.layer(layer).attention;
  const WorkMemory& w = lead.work;
  const int32_t d = config.d_model, kv_width = c.n_kv_heads * c.head_dim;
  const LinearOut q = {&a.q, a.q_bias, w.q, c.n_heads * c.head_dim, false, 1};
  const LinearOut k = {&a.k, a.k_bias, w.k, kv_width, false, 1};
  const LinearOut v = {&a.v, a.v_bias, w.v, kv_width, false, 1};
  if (c.latent == 0) {
    const LinearOut qkv[] = {q, k, v};
    return lead.device.linear(*lead.stream, {w.x, d, n_rows, d, a.norms.pre, qkv, 3});
  }
  const int32_t width = c.latent + c.rope.dims;
  const LinearOut q_latent = {&a.q_latent, nullptr, w.q_latent, c.q_latent, false, 1};
  const LinearOut from_x[] = {c.q_latent > 0 ? q_latent : q,
                              {&a.latent, nullptr, w.latent, width, false, 1}};
  const LinearOut from_latent[] = {k, v};
  const LinearOut rope = {&a.k_rope, nullptr, w.k, kv_width, true, 1};
  lead.device.linear(*lead.stream, {w.x, d, n_rows, d, a.norms.pre, from_x, 2});
  if (c.q_latent > 0) {
    lead.device.linear(*lead.stream,
                       {w.q_latent, c.q_latent, n_rows, c.q_latent, a.q_latent_norm, &q, 1});
  }
  if (all_keep_latent(batch)) return;
  lead.device.linear(*lead.stream,
                     {w.latent, width, n_rows, c.latent, a.latent_norm, from_latent, 2});
  lead.device.linear(*lead.stream,
                     {w.latent + c.latent, width, n_rows, c.rope.dims, Norm(), &rope, 1});
}

// Projects the attention output to the block's output.
void project_out(SessionState& lead, const Batch& batch, const AttentionConfig& c,
                 const AttentionWeights& a) {
  const int32_t q_width = c.n_heads * c.head_dim;
  const BlockOut out = block_out(lead, a.norms);
  const LinearOut o{&a.o, a.o_bias, out.y, lead.model.config().d_model, out.accumulate, out.scale};
  lead.device.linear(*lead.stream,
                     {lead.work.mixed, q_width, batch.n_rows, q_width, a.sub_norm, &o, 1});
  finish_block(lead, a.norms, batch.n_rows);
}

void self_attention(SessionState& lead, const Batch& batch, int32_t layer) {
  project_qkv(lead, batch, layer);
  attend(lead, batch, layer);
  project_out(lead, batch, lead.model.config().layers[static_cast<size_t>(layer)].attention,
              lead.model.layer(layer).attention);
}

void cross_attention(SessionState& lead, const Batch& batch, int32_t layer) {
  const ModelConfig& config = lead.model.config();
  const AttentionConfig& c = config.layers[static_cast<size_t>(layer)].cross;
  const AttentionWeights& a = lead.model.layer(layer).cross;
  const WorkMemory& w = lead.work;
  const int32_t d = config.d_model;
  const LinearOut q = {&a.q, a.q_bias, w.q, c.n_heads * c.head_dim, false, 1};
  lead.device.linear(*lead.stream, {w.x, d, batch.n_rows, d, a.norms.pre, &q, 1});
  show_caches(lead, batch, [&](const BatchPart& part) {
    return part.session->kv.source_view(layer, part.session->n_source);
  });
  AttentionOp op = attention_op(batch, c);
  op.q = w.q;
  op.out = w.mixed;
  lead.device.attention(*lead.stream, op);
  project_out(lead, batch, c, a);
}

// Computes and caches the cross attention's keys and values of the encoder's output.
void keep_source(SessionState& lead, const Batch& batch, int32_t layer) {
  const ModelConfig& config = lead.model.config();
  const AttentionConfig& c = config.layers[static_cast<size_t>(layer)].cross;
  const AttentionWeights& a = lead.model.layer(layer).cross;
  const WorkMemory& w = lead.work;
  const int32_t d = config.d_model, kv_width = c.n_kv_heads * c.head_dim;
  const LinearOut kv[] = {{&a.k, a.k_bias, w.k, kv_width, false, 1},
                          {&a.v, a.v_bias, w.v, kv_width, false, 1}};
  lead.device.linear(*lead.stream, {w.x, d, batch.n_rows, d, Norm(), kv, 2});
  show_caches(lead, batch, [&](const BatchPart& part) {
    return part.session->kv.source_view(layer, batch.n_rows);
  });
  AttentionOp op = attention_op(batch, c);
  op.k = w.k;
  op.v = w.v;
  lead.device.attention(*lead.stream, op);
}

// True if every session has one token and requests its logits, and all rows fit.
bool is_decode(const SessionState& lead, const Batch& batch) {
  if (batch.n_rows > lead.work.logit_rows) return false;
  for (const BatchPart& part : batch.parts) {
    if (part.tokens.size() != 1 || part.rows != LogitRows::kLast) return false;
  }
  return true;
}

uint64_t bits_of(float high, float low) {
  return static_cast<uint64_t>(__builtin_bit_cast(uint32_t, high)) << 32 |
         __builtin_bit_cast(uint32_t, low);
}

// Empty if the step's operations differ between calls. is_decode() is false for more than
// kMaxChoiceRows sessions.
StepKey key_of(const SessionState& lead, const Batch& batch, bool decode) {
  StepKey key;
  static_assert(1 + 3 * std::max(kLogitRows, kDeviceLogitRows) <= StepKey::kWords);
  if (!decode || !lead.model.experts_stay()) return key;
  key.add(batch.parts.size());
  for (const BatchPart& part : batch.parts) {
    if (part.session->counting) return {};
    key.add(part.session->number);
    const ChoiceSpec& spec = part.session->spec;
    key.add(bits_of(spec.temperature, spec.min_p));
    key.add(bits_of(spec.share, 0) | static_cast<uint32_t>(spec.n_candidates));
  }
  return key;
}

void embed(SessionState& lead, const Batch& batch, const Matrix& positions, const Norm& norm) {
  const ModelConfig& config = lead.model.config();
  float* const x = lead.work.x;
  for (const BatchPart& part : batch.parts) {
    if (part.session->counting) part.session->counters.begin_pass();
  }
  lead.device.embed(*lead.stream, lead.model.weights().embedding, positions, batch.rows,
                    batch.n_rows, config.embedding_multiplier, x);
  if (norm.kind == NormKind::kNone) return;
  lead.device.norm(*lead.stream, {x, x, batch.n_rows, config.d_model, norm, false, 1});
}

void run_layers(SessionState& lead, const Batch& batch, int32_t first, int32_t end) {
  const ModelConfig& config = lead.model.config();
  for (int32_t l = first; l < end && !cancel_asked(batch); ++l) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(l)];
    if (layer.has_attention) self_attention(lead, batch, l);
    if (layer.has_cross) cross_attention(lead, batch, l);
    if (layer.has_ffn) feed_forward(lead, batch, l);
  }
}

// From token ids to the last layer's residual stream.
void run_text(SessionState& lead, const Batch& batch) {
  const ModelConfig& config = lead.model.config();
  const ModelWeights& weights = lead.model.weights();
  embed(lead, batch, weights.position_embedding, weights.embedding_norm);
  run_layers(lead, batch, config.n_encoder_layers, config.n_layers());
  if (!config.is_encoder()) norm_hidden(lead, batch);
}

// From a source's ids to the memory that the decoder attends to.
void run_source(SessionState& lead, const Batch& batch) {
  const ModelConfig& config = lead.model.config();
  const ModelWeights& weights = lead.model.weights();
  float* const x = lead.work.x;
  embed(lead, batch, weights.source_positions, weights.source_embedding_norm);
  run_layers(lead, batch, 0, config.n_encoder_layers);
  if (config.encoder_norm) {
    lead.device.norm(*lead.stream,
                     {x, x, batch.n_rows, config.d_model, weights.encoder_norm, false, 1});
  }
  for (int32_t l = config.n_encoder_layers; l < config.n_layers(); ++l) {
    if (config.layers[static_cast<size_t>(l)].has_cross) keep_source(lead, batch, l);
  }
}

}  // namespace

Status forward(SessionState& lead, std::span<BatchPart> parts) {
  const Batch batch = lay_out(lead, parts);
  const bool decode = is_decode(lead, batch);
  const StepKey key = key_of(lead, batch, decode);
  Status status;
  do {
    bool done = false;
    while (!done) {
      done = !lead.device.begin_step(*lead.stream, batch.rows, batch.n_rows, key);
      if (done) break;
      run_text(lead, batch);
      if (decode) run_head(lead, batch, 0, batch.n_rows, lead.work.logits);
      done = lead.device.end_step(*lead.stream);
    }
    status = lead.device.sync(*lead.stream);
  } while (cancelled_late(lead, batch, status));
  if (status.ok() && decode) {
    for (int32_t r = 0; r < batch.n_rows; ++r) {
      MOE_TRY(deliver_logits(lead, batch, r, r, lead.work.logits));
    }
  } else if (status.ok()) {
    for (const BatchPart& part : parts) {
      if (status.ok()) status = write_scores(lead, batch, part);
    }
    if (status.ok()) status = write_logits(lead, batch);
    if (status.ok()) status = write_hidden(lead, batch);
  }
  if (cancel_asked(batch)) return Status::error(MOE_ERR_CANCELLED, "cancelled");
  return status;
}

Status forward_source(SessionState& state, std::span<const int32_t> tokens, float* hidden) {
  BatchPart part;
  part.session = &state;
  part.tokens = tokens;
  const Batch batch = lay_out(state, {&part, 1});
  Status status;
  do {
    run_source(state, batch);
    status = state.device.sync(*state.stream);
  } while (cancelled_late(state, batch, status));
  if (cancel_asked(batch)) return Status::error(MOE_ERR_CANCELLED, "cancelled");
  if (!status.ok() || hidden == nullptr) return status;
  const auto d = static_cast<size_t>(state.model.config().d_model);
  return state.device.download(hidden, state.work.x, tokens.size() * d * sizeof(float));
}

}  // namespace moe
