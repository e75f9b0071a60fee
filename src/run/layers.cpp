// SPDX-License-Identifier: MIT
// Norms, attention or mixer, and FFN of each layer, with parts of a batch together where one
// operation can process them.
#include "src/run/layers.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "src/model/latent_matrices.h"

namespace moe {
namespace {

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

// A hook sees one session. Which experts `resident` skips depends on all rows of an operation, and
// a device with its own memory counts one session in each, with scratch for the file's router.
bool same_routing(const SessionState& a, const SessionState& b, int32_t layer) {
  const SessionRouters& one = a.routers;
  const SessionRouters& other = b.routers;
  if (one.hook.call != nullptr || other.hook.call != nullptr) return false;
  if (!a.device.uses_host_memory()) {
    const bool counted = one.counters.on() || other.counters.on();
    return !counted && !one.overridden() && !other.overridden();
  }
  if (!one.overridden() && !other.overridden()) return true;
  return one.of(layer) == other.of(layer) && one.of(layer).resident == 0;
}

// Sets where each part counts in this layer. False if none does.
bool set_stats(SessionState& lead, const Batch& batch, int32_t layer) {
  bool any = false;
  for (const BatchPart& part : batch.parts) {
    RoutingStats* const stats = part.session->routers.counters.of_pass(layer);
    lead.work().stats[static_cast<size_t>(batch.rows[part.first_row].session)] = stats;
    any = any || stats != nullptr;
  }
  return any;
}

/// view(part): the cache to use for the part.
template <class View>
void set_cache_views(SessionState& lead, const Batch& batch, View view) {
  for (const BatchPart& part : batch.parts) {
    lead.work().caches[static_cast<size_t>(batch.rows[part.first_row].session)] = view(part);
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
  // On a device with its own memory the lead has none if its cache is not latent.
  const WorkMemory& w = run.session->passes.own ? run.session->work() : lead.work();
  const LatentMatrices& matrices = *lead.model.latent_matrices();
  LatentHeads heads;
  heads.width = c.latent;
  heads.norm = lead.model.layer(layer).attention.latent_norm;
  heads.z = lead.work().latent + int64_t{run.first_row} * (c.latent + c.rope.dims);
  heads.keys = matrices.keys(layer);
  heads.values = matrices.values(layer);
  heads.max_rows = w.mla_rows;
  heads.key = w.mla_key;
  heads.q = w.mla_q;
  heads.out = w.mla_out;
  return heads;
}

void attend(SessionState& lead, const Batch& batch, int32_t layer) {
  const WorkMemory& w = lead.work();
  const AttentionConfig& c = lead.model.config().layers[static_cast<size_t>(layer)].attention;
  const AttentionWeights& a = lead.model.layer(layer).attention;
  set_cache_views(lead, batch,
                  [&](const BatchPart& part) { return part.session->kv.view(layer, part.text); });
  if (c.v_norm) {
    const Norm norm = {NormKind::kRms, lead.model.config().norm_eps, nullptr, nullptr};
    // In slices, because all values of a batch can be more than an operation counts.
    const int32_t most = INT32_MAX / c.n_kv_heads;
    int32_t n = 0;
    for (int32_t at = 0; at < batch.n_rows; at += n) {
      n = std::min(batch.n_rows - at, most);
      float* const v = w.v + int64_t{at} * c.n_kv_heads * c.head_dim;
      lead.device.norm(lead.stream(), {v, v, n * c.n_kv_heads, c.head_dim, norm, false, 1});
    }
  }
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
    op.k = c.shares_kv() ? nullptr : w.k + run.first_row * kv_width;
    op.v = c.shares_kv() ? nullptr : w.v + run.first_row * kv_width;
    op.out = w.mixed + run.first_row * q_width;
    op.rope_table = run.session->rope.table(layer);
    op.rope = op.rope_table != nullptr ? c.rope.kind : RopeKind::kNone;
    op.rope_dims = op.rope_table != nullptr || c.latent > 0 ? c.rope.dims : 0;
    lead.device.attention(lead.stream(), op);
  }
}

/// Destination of a block's output: added to x, or stored separately for the output norm.
struct BlockOut {
  float* y;
  bool accumulate;
  float scale;
};

BlockOut block_out(const SessionState& lead, const BlockNormWeights& norms) {
  if (norms.out.kind != NormKind::kNone) return {lead.work().branch, false, 1};
  return {lead.work().x, true, lead.model.config().residual_multiplier};
}

// Completes x = post(x + residual_multiplier * out(f(pre(x)))) after block_out().
void finish_block(SessionState& lead, const BlockNormWeights& norms, int32_t n_rows) {
  const ModelConfig& config = lead.model.config();
  const WorkMemory& w = lead.work();
  const int32_t d = config.d_model;
  if (norms.out.kind != NormKind::kNone) {
    lead.device.norm(lead.stream(),
                     {w.branch, w.x, n_rows, d, norms.out, true, config.residual_multiplier});
  }
  if (norms.post.kind != NormKind::kNone) {
    lead.device.norm(lead.stream(), {w.x, w.x, n_rows, d, norms.post, false, 1});
  }
}

// The shared expert of an MoE layer as a dense network whose output has a norm of its own.
void shared_network(SessionState& lead, const Batch& batch, const FfnConfig& c,
                    const LayerWeights& w, float* y) {
  const int32_t d = lead.model.config().d_model;
  FfnOp op;
  op.d_model = d;
  op.norm = w.ffn_norms.pre;
  op.act = c.act;
  op.shared = &w.ffn;
  op.n_rows = batch.n_rows;
  op.rows = batch.rows;
  op.x = lead.work().x;
  op.y = y;
  lead.device.ffn(lead.stream(), op);
  lead.device.norm(lead.stream(), {y, y, batch.n_rows, d, w.shared_out_norm, false, 1});
}

void feed_forward(SessionState& lead, const Batch& batch, int32_t layer) {
  const ModelConfig& config = lead.model.config();
  const FfnConfig& c = config.layers[static_cast<size_t>(layer)].ffn;
  const LayerWeights& w = lead.model.layer(layer);
  const bool apart = c.moe.apart;
  const WorkMemory& memory = lead.work();
  if (apart) shared_network(lead, batch, c, w, memory.branch);
  const BlockOut out = apart ? BlockOut{memory.beside, false, 1} : block_out(lead, w.ffn_norms);
  FfnOp op;
  op.d_model = config.d_model;
  op.accumulate = out.accumulate;
  op.scale = out.scale;
  op.norm = apart ? w.experts_norm : w.ffn_norms.pre;
  op.gate_in_norm = w.gate_in_norm;
  op.up_in_norm = w.up_in_norm;
  op.act = c.act;
  op.n_experts = c.kind == FfnKind::kMoe ? c.moe.n_experts : 0;
  op.n_subheads = c.kind == FfnKind::kMoe ? c.moe.n_subheads : 1;
  op.head = w.head;
  op.head_bias = w.head_bias;
  op.merge = w.merge;
  op.merge_bias = w.merge_bias;
  op.router_weights = w.router;
  op.router_norm = w.router_norm;
  op.expert_scale = w.expert_scale;
  op.experts = w.experts;
  op.shared = w.ffn.up.empty() || apart ? nullptr : &w.ffn;
  op.shared_gate = w.shared_gate;
  const bool main_layer = layer < config.n_main_layers();
  const bool by_session = lead.device.uses_host_memory();
  if (main_layer && by_session && set_stats(lead, batch, layer)) {
    op.session_stats = memory.stats.data();
  }
  const auto same = [layer](const SessionState& a, const SessionState& b) {
    return same_routing(a, b, layer);
  };
  Run run;
  for (size_t at = 0; next_run(batch, &at, same, &run);) {
    SessionState& session = *run.session;
    op.router = session.routers.of(layer);
    op.layer = layer;
    if (main_layer) {
      if (!by_session) op.stats = session.routers.counters.of_pass(layer);
      op.hook = session.routers.hook;
    }
    op.n_rows = run.n_rows;
    op.rows = batch.rows + run.first_row;
    op.x = lead.work().x + int64_t{run.first_row} * config.d_model;
    op.y = out.y + int64_t{run.first_row} * config.d_model;
    lead.device.ffn(lead.stream(), op);
  }
  if (apart) {
    lead.device.norm(lead.stream(), {memory.beside, memory.branch, batch.n_rows, config.d_model,
                                     w.experts_out_norm, true, 1});
  }
  finish_block(lead, w.ffn_norms, batch.n_rows);
}

bool all_keep_latent(const Batch& batch) {
  for (const BatchPart& part : batch.parts) {
    if (!part.session->keeps_latent()) return false;
  }
  return true;
}

// Computes q, k and v of an RMSNorm each of pre(x).
void project_normed(SessionState& lead, int32_t n_rows, const AttentionWeights& a,
                    const std::array<LinearOut, 3>& outs) {
  const WorkMemory& w = lead.work();
  const int32_t d = lead.model.config().d_model;
  lead.device.norm(lead.stream(), {w.x, w.branch, n_rows, d, a.norms.pre, false, 1});
  const Norm* const norms[] = {&a.q_in_norm, &a.k_in_norm, &a.v_in_norm};
  for (size_t i = 0; i < outs.size(); ++i) {
    lead.device.linear(lead.stream(), {w.branch, d, n_rows, d, *norms[i], &outs[i], 1});
  }
}

// Computes q, k and v of pre(x), before positions; with a latent cache, q and the latent.
void project_qkv(SessionState& lead, const Batch& batch, int32_t layer) {
  const int32_t n_rows = batch.n_rows;
  const ModelConfig& config = lead.model.config();
  const AttentionConfig& c = config.layers[static_cast<size_t>(layer)].attention;
  const AttentionWeights& a = lead.model.layer(layer).attention;
  const WorkMemory& w = lead.work();
  const int32_t d = config.d_model, kv_width = c.n_kv_heads * c.head_dim;
  const LinearOut q = {&a.q, a.q_bias, w.q, c.n_heads * c.head_dim, false, 1};
  const LinearOut k = {&a.k, a.k_bias, w.k, kv_width, false, 1};
  const LinearOut v = {
      c.v_from_k ? &a.k : &a.v, c.v_from_k ? a.k_bias : a.v_bias, w.v, kv_width, false, 1};
  const LinearOut gate = {&a.output_gate, a.output_gate_bias, w.gate, c.n_gates(), false, 1};
  const int32_t gates = c.output_gate ? 1 : 0;
  if (c.latent == 0) {
    if (c.in_norms) return project_normed(lead, n_rows, a, {q, k, v});
    const LinearOut q_gate[] = {q, gate};
    const LinearOut qkv[] = {q, k, v, gate};
    const LinearOut* const outs = c.shares_kv() ? q_gate : qkv;
    const int32_t n_outs = (c.shares_kv() ? 1 : 3) + gates;
    return lead.device.linear(lead.stream(), {w.x, d, n_rows, d, a.norms.pre, outs, n_outs});
  }
  const int32_t width = c.latent + c.rope.dims;
  const LinearOut q_latent = {&a.q_latent, nullptr, w.q_latent, c.q_latent, false, 1};
  const LinearOut from_x[] = {
      c.q_latent > 0 ? q_latent : q, {&a.latent, nullptr, w.latent, width, false, 1}, gate};
  const LinearOut from_latent[] = {k, v};
  const LinearOut rope = {&a.k_rope, nullptr, w.k, kv_width, true, 1};
  lead.device.linear(lead.stream(), {w.x, d, n_rows, d, a.norms.pre, from_x, 2 + gates});
  if (c.q_latent > 0) {
    lead.device.linear(lead.stream(),
                       {w.q_latent, c.q_latent, n_rows, c.q_latent, a.q_latent_norm, &q, 1});
  }
  if (all_keep_latent(batch)) return;
  lead.device.linear(lead.stream(),
                     {w.latent, width, n_rows, c.latent, a.latent_norm, from_latent, 2});
  lead.device.linear(lead.stream(),
                     {w.latent + c.latent, width, n_rows, c.rope.dims, Norm(), &rope, 1});
}

// Projects the attention output to the block's output.
void project_out(SessionState& lead, const Batch& batch, const AttentionConfig& c,
                 const AttentionWeights& a) {
  const int32_t q_width = c.n_heads * c.head_dim;
  const WorkMemory& w = lead.work();
  if (c.output_gate) {
    const int32_t shared = c.gate_by_head ? c.head_dim : 1;
    lead.device.gate(lead.stream(), {w.mixed, w.gate, batch.n_rows, q_width, shared});
  }
  const BlockOut out = block_out(lead, a.norms);
  const LinearOut o{&a.o, a.o_bias, out.y, lead.model.config().d_model, out.accumulate, out.scale};
  lead.device.linear(lead.stream(), {w.mixed, q_width, batch.n_rows, q_width, a.sub_norm, &o, 1});
  finish_block(lead, a.norms, batch.n_rows);
}

void self_attention(SessionState& lead, const Batch& batch, int32_t layer) {
  project_qkv(lead, batch, layer);
  attend(lead, batch, layer);
  project_out(lead, batch, lead.model.config().layers[static_cast<size_t>(layer)].attention,
              lead.model.layer(layer).attention);
}

// The outputs of all input matrices of a mixer side by side, of pre(x). Attention beside a mixer
// runs after this: it adds to x, and leaves these outputs alone.
void project_mixer_in(SessionState& lead, const Batch& batch, int32_t layer) {
  const MixerBlock& block = lead.model.config().layers[static_cast<size_t>(layer)].mixer;
  const MixerWeights& weights = *lead.model.layer(layer).mixer;
  const MixerInfo& info = mixer_info(block.mixer);
  const int32_t d = lead.model.config().d_model;
  const int64_t width = mixer_widths(block.mixer, d).in;
  LinearOut outs[kMaxMixerWeights];
  int32_t n = 0;
  float* y = lead.work().mixer_in;
  for (int i = 0; i < info.n_weights(); ++i) {
    const MixerWeight& weight = info.weights[i];
    if (weight.use == MixerUse::kIn) {
      outs[n++] = {&weights.matrices[i], nullptr, y, width, false, 1};
      y += weight.n(block.mixer, d);
    }
    if (weight.use == MixerUse::kInBias) outs[n - 1].bias = weights.vectors[i];
  }
  lead.device.linear(lead.stream(),
                     {lead.work().x, d, batch.n_rows, d, weights.norms.pre, outs, n});
}

void project_mixer_out(SessionState& lead, const Batch& batch, const MixerBlock& block,
                       const MixerWeights& weights) {
  const MixerInfo& info = mixer_info(block.mixer);
  const int32_t d = lead.model.config().d_model;
  const auto width = static_cast<int32_t>(mixer_widths(block.mixer, d).out);
  const BlockOut out = block_out(lead, weights.norms);
  LinearOut o = {nullptr, nullptr, out.y, d, out.accumulate, out.scale};
  for (int i = 0; i < info.n_weights(); ++i) {
    if (info.weights[i].use == MixerUse::kOut) o.weight = &weights.matrices[i];
    if (info.weights[i].use == MixerUse::kOutBias) o.bias = weights.vectors[i];
  }
  lead.device.linear(lead.stream(), {lead.work().mixed, width, batch.n_rows, width, Norm(), &o, 1});
  finish_block(lead, weights.norms, batch.n_rows);
}

// Completes what project_mixer_in() began.
void mix(SessionState& lead, const Batch& batch, int32_t layer) {
  const ModelConfig& config = lead.model.config();
  const MixerBlock& block = config.layers[static_cast<size_t>(layer)].mixer;
  const MixerWeights& weights = *lead.model.layer(layer).mixer;
  const MixerWidths widths = mixer_widths(block.mixer, config.d_model);
  const WorkMemory& w = lead.work();
  for (const BatchPart& part : batch.parts) {
    w.states[static_cast<size_t>(batch.rows[part.first_row].session)] =
        part.session->mixers.view(layer);
  }
  MixerOp op;
  op.n_rows = batch.n_rows;
  op.rows = batch.rows;
  op.layer = layer;
  op.d_model = config.d_model;
  op.config = block.mixer;
  op.in = w.mixer_in;
  op.ld_in = widths.in;
  op.out = w.mixed;
  op.ld_out = widths.out;
  op.vectors = weights.vectors;
  op.states = w.states.data();
  lead.device.mix(lead.stream(), op);
  project_mixer_out(lead, batch, block, weights);
}

// x = x + out_norm(down(act(gate(x)) * u)), u the layer's part of what compute_inputs() gave.
void layer_input(SessionState& lead, const Batch& batch, int32_t layer) {
  const ModelConfig& config = lead.model.config();
  const LayerWeights& weights = lead.model.layer(layer);
  const WorkMemory& w = lead.work();
  const int32_t d = config.d_model, width = config.layer_input.width, n_rows = batch.n_rows;
  const LinearOut gate = {&weights.input_gate, nullptr, w.input_gate, width, false, 1};
  lead.device.linear(lead.stream(), {w.x, d, n_rows, d, Norm(), &gate, 1});
  ActivateOp op;
  op.gate = w.input_gate;
  op.up = w.inputs + int64_t{layer} * width;
  op.ld_up = int64_t{config.n_layers()} * width;
  op.n_rows = n_rows;
  op.d = width;
  op.act.kind = config.layer_input.act;
  lead.device.activate(lead.stream(), op);
  const LinearOut down = {&weights.input_down, nullptr, w.branch, d, false, 1};
  lead.device.linear(lead.stream(), {w.input_gate, width, n_rows, width, Norm(), &down, 1});
  lead.device.norm(lead.stream(), {w.branch, w.x, n_rows, d, weights.input_out_norm, true, 1});
}

void cross_attention(SessionState& lead, const Batch& batch, int32_t layer) {
  const ModelConfig& config = lead.model.config();
  const AttentionConfig& c = config.layers[static_cast<size_t>(layer)].cross;
  const AttentionWeights& a = lead.model.layer(layer).cross;
  const WorkMemory& w = lead.work();
  const int32_t d = config.d_model;
  const LinearOut q = {&a.q, a.q_bias, w.q, c.n_heads * c.head_dim, false, 1};
  lead.device.linear(lead.stream(), {w.x, d, batch.n_rows, d, a.norms.pre, &q, 1});
  set_cache_views(lead, batch, [&](const BatchPart& part) {
    return part.session->kv.source_view(layer, part.session->kv.n_source);
  });
  AttentionOp op = attention_op(batch, c);
  op.q = w.q;
  op.out = w.mixed;
  lead.device.attention(lead.stream(), op);
  project_out(lead, batch, c, a);
}

}  // namespace

void run_layers(SessionState& lead, const Batch& batch, int32_t first, int32_t end) {
  const ModelConfig& config = lead.model.config();
  for (int32_t l = first; l < end && !cancel_asked(batch); ++l) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(l)];
    const bool mixes = kHasMixers && layer.has_mixer;
    if (mixes) project_mixer_in(lead, batch, l);
    if (layer.has_attention) self_attention(lead, batch, l);
    if (mixes) mix(lead, batch, l);
    if (layer.has_cross) cross_attention(lead, batch, l);
    if (layer.has_ffn) feed_forward(lead, batch, l);
    if (config.layer_input.width > 0) layer_input(lead, batch, l);
    if (layer.multiplier != 1) {
      lead.device.scale(lead.stream(),
                        {lead.work().x, batch.n_rows, config.d_model, layer.multiplier});
    }
  }
}

void compute_inputs(SessionState& lead, const Batch& batch) {
  const ModelConfig& config = lead.model.config();
  const LayerInputConfig& in = config.layer_input;
  if (in.width == 0) return;
  const ModelWeights& weights = lead.model.weights();
  const WorkMemory& w = lead.work();
  const int32_t d = config.d_model, n_layers = config.n_layers();
  if (weights.layer_input_rows != nullptr) {
    lead.device.embed_from(lead.stream(), *weights.layer_input_rows, weights.layer_inputs.cols,
                           batch.rows, batch.n_rows, in.multiplier, w.inputs);
  } else {
    lead.device.embed(lead.stream(), weights.layer_inputs, Matrix(), batch.rows, batch.n_rows,
                      in.multiplier, w.inputs);
  }
  const LinearOut out = {&weights.layer_projection,    nullptr, w.projected,
                         int64_t{n_layers} * in.width, false,   1};
  lead.device.linear(lead.stream(), {w.x, d, batch.n_rows, d, Norm(), &out, 1});
  lead.device.norm(lead.stream(), {w.projected, w.inputs, batch.n_rows * n_layers, in.width,
                                   weights.layer_projection_norm, true, in.projection_multiplier});
}

void store_source(SessionState& lead, const Batch& batch, int32_t layer) {
  const ModelConfig& config = lead.model.config();
  const AttentionConfig& c = config.layers[static_cast<size_t>(layer)].cross;
  const AttentionWeights& a = lead.model.layer(layer).cross;
  const WorkMemory& w = lead.work();
  const int32_t d = config.d_model, kv_width = c.n_kv_heads * c.head_dim;
  const LinearOut kv[] = {{&a.k, a.k_bias, w.k, kv_width, false, 1},
                          {&a.v, a.v_bias, w.v, kv_width, false, 1}};
  lead.device.linear(lead.stream(), {w.x, d, batch.n_rows, d, Norm(), kv, 2});
  set_cache_views(lead, batch, [&](const BatchPart& part) {
    return part.session->kv.source_view(layer, batch.n_rows);
  });
  AttentionOp op = attention_op(batch, c);
  op.k = w.k;
  op.v = w.v;
  lead.device.attention(lead.stream(), op);
}

}  // namespace moe
