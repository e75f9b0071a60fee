// SPDX-License-Identifier: MIT
#include "src/run/memory.h"

#include <algorithm>
#include <cinttypes>

#include "kernels/expert_memory.h"
#include "kernels/router/table.h"
#include "src/base/format.h"
#include "src/run/beam.h"
#include "src/run/session_state.h"

namespace moe {
namespace {

Status check_range(const char* field, int64_t found, int64_t low, int64_t high) {
  if (found >= low && found <= high) return {};
  return Status::error(MOE_ERR_RANGE, "session: %s: expected %lld..%lld, found %lld", field,
                       static_cast<long long>(low), static_cast<long long>(high),
                       static_cast<long long>(found));
}

void add_line(MemoryAccount* account, const char* what, uint64_t bytes) {
  if (bytes == 0) return;
  if (!checked_add(account->total, bytes, &account->total)) account->total = UINT64_MAX;
  if (account->n_lines == MemoryAccount::kMaxLines) {  // further lines are added to the last one
    account->lines[account->n_lines - 1].bytes += bytes;
    return;
  }
  account->lines[account->n_lines++] = {what, bytes};
}

// What calls allocate, of which there is one at a time. generate() copies the logits for a callback
// that changes them.
uint64_t call_bytes(const Model& model, const SessionOptions& o) {
  const ModelConfig& config = model.config();
  const uint64_t logits = static_cast<uint64_t>(config.n_outputs()) * sizeof(float);
  uint64_t bytes =
      std::max({logits, encode_bytes(model.device(), config), scoring_bytes(o.context)});
  if constexpr (kSavesSessions) bytes = std::max(bytes, saving_bytes(config, o.kv));
  return bytes;
}

uint64_t host_state_bytes(const ModelConfig& config, const SessionOptions& o) {
  const uint64_t layers = config.layers.size();
  constexpr uint64_t kHandles = 64;
  return kHandles + sizeof(SessionState) + static_cast<uint64_t>(o.context) * sizeof(int32_t) +
         WorkMemory::host_bytes(o.chunk) + RoutingCounters::bytes(config) +
         KvCache::host_bytes(config, kv_shape(o)) +
         layers * (2 * sizeof(RouterConfig) + sizeof(const float*));
}

// A search's log-probabilities and the tokens of all hypotheses, which are copied as they grow.
uint64_t search_bytes(const ModelConfig& config, const SessionOptions& o) {
  if (!config.is_encoder_decoder()) return 0;
  constexpr uint64_t kPerToken = 3 * 2 * sizeof(int32_t);
  const auto tokens = static_cast<uint64_t>(o.context) * static_cast<uint64_t>(o.max_beam);
  constexpr uint64_t kPerText = 128;  // running, ended and returned ones
  return static_cast<uint64_t>(config.vocab_size) * sizeof(float) + tokens * kPerToken +
         static_cast<uint64_t>(o.max_beam) * kPerText;
}

Status check_latent(const AttentionConfig& a) {
  if (can_keep_latent(a)) return {};
  if (a.latent == 0) {
    return Status::error(MOE_ERR_UNSUPPORTED, "no multi-head latent attention");
  }
  return Status::error(MOE_ERR_UNSUPPORTED, "it has qk_norm, qkv_clip or fully rotated keys");
}

Status check_latent(const Model& model) {
  if constexpr (!kLatentCaches) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "session: kv latent: not in this build (MOE_LATENT=OFF)");
  }
  const ModelConfig& config = model.config();
  if (!model.device().uses_host_memory()) {
    return Status::error(MOE_ERR_UNSUPPORTED, "session: kv latent: only on the CPU");
  }
  if (config.is_encoder() || config.is_encoder_decoder()) {
    return Status::error(MOE_ERR_UNSUPPORTED, "session: kv latent: only for decoders");
  }
  for (int32_t l = 0; l < config.n_layers(); ++l) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(l)];
    if (!layer.has_attention) continue;
    MOE_TRY(check_latent(layer.attention).with_context("session: kv latent: layer %d", l));
  }
  return {};
}

// Additional options of an encoder-decoder.
Status resolve_search(const ModelConfig& config, const SessionOptions& given, SessionOptions* o) {
  if (!config.is_encoder_decoder()) {
    if (o->max_beam == 0) return {};
    return Status::error(MOE_ERR_UNSUPPORTED, "session: max_beam: only for an encoder-decoder");
  }
  MOE_TRY(check_range("max_beam", o->max_beam, 0, kMaxBeam));
  if (o->max_beam == 0) o->max_beam = BeamOptions().beam;
  if (o->source == 0) {  // may be resolved already
    o->source = std::min(config.source_length, given.context > 0 ? given.context : kMaxChunk);
  }
  return {};
}

double megabytes(uint64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

// Reader threads are counted there. Weights are read before the session and the expert cache are
// allocated, which may leave enough memory for reading.
uint64_t reading_bytes(const Model& model, uint64_t session_bytes) {
  const uint64_t weights = model.reading_bytes();
  const uint64_t experts = model.expert_reading_bytes();
  const uint64_t slot = model.cache_shape().slot_bytes;
  if (slot == 0) return std::max(weights, experts);
  return std::max(experts, weights - std::min(weights, session_bytes + slot));
}

void add_cache(const Model& model, uint64_t cap, MemoryAccount* account) {
  const ExpertCacheShape& shape = model.cache_shape();
  if (shape.slot_bytes == 0) return;
  account->reader_bytes = shape.reader_bytes;
  add_line(account, "expert readers", shape.reader_bytes);
  const uint64_t left = cap - std::min(cap, account->total);
  const uint64_t n = std::clamp<uint64_t>(left / shape.slot_bytes, 1, shape.most_slots);
  account->cache_bytes = shape.bytes(n);
  add_line(account, "expert cache", account->cache_bytes);
}

Status account_resolved(const Model& model, const SessionOptions& o, MemoryAccount* out) {
  const ModelConfig& config = model.config();
  uint64_t kv = 0;
  uint64_t rope = 0;
  uint64_t work = 0;
  if (!KvCache::bytes(config, kv_shape(o), &kv) || !RopeTables::bytes(config, o.context, &rope) ||
      !WorkMemory::device_bytes(model.device(), config, o.chunk, o.kv, &work)) {
    return Status::error(MOE_ERR_TOO_LONG, "session: a context of %d overflows", o.context);
  }
  const StreamShape shape = stream_shape(model, o);
  const size_t scratch = model.device().stream_bytes(shape);
  const size_t host_scratch = model.device().host_stream_bytes(shape);
  if (scratch == 0) {
    return Status::error(MOE_ERR_TOO_LONG, "session: the scratch of %d rows overflows", o.chunk);
  }
  const uint64_t output_bytes = static_cast<uint64_t>(config.n_outputs()) * sizeof(float);
  MemoryAccount account;
  for (const MemoryLine& line : model.memory_lines()) add_line(&account, line.what, line.bytes);
  const ExpertMemory* experts = model.device().expert_memory();
  if (experts != nullptr) {
    add_line(&account, "asynchronous uploads",
             experts->staging_bytes(model.largest_expert_bytes()));
  }
  add_line(&account, "matrices for the latent cache", model.latent_matrix_bytes(is_latent(o.kv)));
  account.other_bytes = o.other_sessions_bytes;
  account.kv_bytes = kv;
  add_line(&account, "other sessions", o.other_sessions_bytes);
  const uint64_t others = account.total;
  add_line(&account, config.is_encoder() ? "keys and values" : "KV cache", kv);
  add_line(&account, "position tables", rope);
  add_line(&account, "activations", work);
  add_line(&account, model.device().uses_host_memory() ? "scratch" : "device scratch", scratch);
  add_line(&account, "host scratch", host_scratch);
  const uint64_t report = model.device().can_sample() ? StoredReport::bytes(config.vocab_size) : 0;
  add_line(&account, "sampling", output_bytes + Sampler::bytes(config.vocab_size) + report);
  add_line(&account, "beam search", search_bytes(config, o));
  add_line(&account, "session", host_state_bytes(config, o));
  add_line(&account, "temporary memory of calls", call_bytes(model, o));
  add_line(&account, "read buffers", reading_bytes(model, account.total - others));
  account.session_bytes = account.total - others;
  account.device_bytes = scratch;
  for (const uint64_t block : {kv, rope, work}) {
    account.device_bytes += experts == nullptr ? block : experts->taken_by(block);
  }
  account.chunk_bytes = work + scratch + host_scratch + WorkMemory::host_bytes(o.chunk);
  add_cache(model, o.memory_cap, &account);
  *out = account;
  return {};
}

// A larger chunk takes GPU memory from experts and later sessions: use it if the session then needs
// at most a quarter of what the weights leave.
Result<int32_t> default_chunk(const Model& model, const SessionOptions& options) {
  if (model.device().uses_host_memory()) return kDefaultChunk;
  constexpr uint64_t kShare = 4;
  const uint64_t limit = model.device().memory_limit();
  if (limit == 0) return kDefaultDeviceChunk;
  SessionOptions large = options;
  large.chunk = std::min(kDefaultDeviceChunk, options.context);
  MemoryAccount account;
  MOE_TRY(account_resolved(model, large, &account));
  const uint64_t weights = std::min(limit, model.weight_bytes());
  const bool fits = account.device_bytes <= (limit - weights) / kShare;
  return fits ? kDefaultDeviceChunk : kDefaultChunk;
}

// See resolve_options().
Status follow_cap(const Model& model, int32_t usual, SessionOptions* o) {
  const ExpertCacheShape& shape = model.cache_shape();
  const bool cache = shape.slot_bytes > 0;
  const int32_t context = o->context;
  uint64_t chunk_bytes = 0;
  uint64_t left = 0;  // for the chunk and the expert cache
  const auto measure = [&](int32_t most) -> Status {
    MemoryAccount account;
    o->chunk = std::min(most, context);
    MOE_TRY(account_resolved(model, *o, &account));
    chunk_bytes = account.chunk_bytes;
    const uint64_t others = account.total - account.cache_bytes - chunk_bytes;
    left = o->memory_cap - std::min(o->memory_cap, others);
    return {};
  };
  MOE_TRY(measure(usual));
  if (chunk_bytes + shape.bytes(shape.most_slots) <= left) return {};
  for (int32_t most = cache ? kMaxChunk : usual;; most /= 2) {
    MOE_TRY(measure(most));
    const uint64_t share = o->chunk > kShortChunk ? kLongChunkShare : kShortChunkShare;
    const bool fits = chunk_bytes <= (cache ? left / share : left);
    if (fits || most <= kLeastChunk) return {};
  }
}

}  // namespace

Result<SessionOptions> resolve_options(const Model& model, const SessionOptions& options) {
  const int32_t most = model.config().context_length;
  SessionOptions o = options;
  MOE_TRY(check_range("context (--context)", o.context, 0, most));
  MOE_TRY(check_range("chunk", o.chunk, 0, kMaxChunk));
  const bool encoder = model.config().is_encoder();
  const bool reads_whole = encoder || model.config().is_encoder_decoder();
  if (o.kv == KvType::kLatent) MOE_TRY(check_latent(model));
  if (encoder) o.kv = KvType::kF32;
  if (o.kv == KvType::kF32 && !encoder && !model.device().uses_host_memory()) {
    return Status::error(MOE_ERR_UNSUPPORTED, "session: kv f32: for decoders only on the CPU");
  }
  MOE_TRY(resolve_search(model.config(), options, &o));
  if (o.context == 0) o.context = std::min(most, kDefaultContext);
  bool follows = false;  // adapt the chunk to the cap, unless it was given
  int32_t usual = kDefaultChunk;
  if (o.chunk == 0) {
    o.chunk_follows = true;
    if (!reads_whole) {
      MOE_ASSIGN(usual, default_chunk(model, o));
    }
    o.chunk = reads_whole ? kMaxChunk : usual;  // an encoder sees a text whole
    for (const LayerConfig& layer : model.config().layers) {
      if (has_capacity(layer.ffn)) o.chunk = kMaxChunk;
    }
    follows = o.chunk == usual;
  }
  if (o.memory_cap == 0) o.memory_cap = model.memory_cap();
  follows = follows && o.memory_cap > 0;
  o.chunk = std::min(o.chunk, std::max(o.context, o.source));
  if (follows) MOE_TRY(follow_cap(model, usual, &o));
  return o;
}

KvShape kv_shape(const SessionOptions& o) {
  return {o.context, o.kv, o.source, std::max(o.max_beam, 1)};
}

StreamShape stream_shape(const Model& model, const SessionOptions& options) {
  const ModelConfig& config = model.config();
  StreamShape s;
  s.max_rows = options.chunk;
  s.d_model = config.d_model;
  s.max_d_in = config.d_model;
  s.max_context = std::max(options.context, options.source);
  s.vocab_size = config.vocab_size;
  if (config.head.dense) s.max_d_ff = config.d_model;
  for (int32_t l = 0; l < config.n_layers(); ++l) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(l)];
    const AttentionConfig& a = layer.attention;
    const AttentionConfig& cross = layer.cross;
    s.max_heads = std::max({s.max_heads, a.n_heads, cross.n_heads});
    s.max_head_dim = std::max({s.max_head_dim, a.head_dim, cross.head_dim});
    s.max_d_in = std::max(s.max_d_in, cross.n_heads * cross.head_dim);
    s.max_d_ff = std::max(s.max_d_ff, layer.ffn.d_ff);
    s.max_d_in =
        std::max({s.max_d_in, a.n_heads * a.head_dim, a.latent, a.q_latent, layer.ffn.d_ff});
    if (layer.ffn.kind != FfnKind::kMoe) continue;
    const MoeConfig& moe = layer.ffn.moe;
    s.max_d_ff = std::max(s.max_d_ff, moe.shared.d_ff);
    s.max_d_in = std::max(s.max_d_in, moe.shared.d_ff);
    s.max_experts = std::max(s.max_experts, moe.n_experts);
    s.max_subheads = std::max(s.max_subheads, moe.n_subheads);
    const int32_t own = router_max_k(moe.router, moe.n_experts);
    s.max_own_routed = std::max(s.max_own_routed, own);
    // A later override may select every expert.
    s.max_routed = std::max(s.max_routed, has_softmax(moe.router) ? moe.n_experts : own);
    s.max_d_e = std::max(s.max_d_e, model.layer(l).d_e);
    s.max_d_in = std::max(s.max_d_in, s.max_d_e);
  }
  return s;
}

Status account_memory(const Model& model, const SessionOptions& options, MemoryAccount* out) {
  MOE_ASSIGN(const SessionOptions o, resolve_options(model, options));
  return account_resolved(model, o, out);
}

Status check_budget(const MemoryAccount& account, uint64_t cap) {
  if (cap == 0 || account.total <= cap) return {};
  const uint64_t readers = account.reader_bytes;
  const uint64_t others = account.other_bytes;
  const MemoryLine parts[] = {{"weights and tables", account.total - account.session_bytes -
                                                         account.cache_bytes - readers - others},
                              {"other sessions", others},
                              {"KV cache", account.kv_bytes},
                              {"scratch", account.session_bytes - account.kv_bytes},
                              {"expert readers", readers},
                              {"expert cache", account.cache_bytes}};
  char sum[256];  // short enough to remain complete after a path
  int used = 0;
  for (const MemoryLine& part : parts) {
    if (part.bytes == 0) continue;
    used += format(sum + used, sizeof sum - static_cast<size_t>(used), "%s%s %.3f",
                   used == 0 ? "" : " + ", part.what, megabytes(part.bytes));
    used = std::clamp(used, 0, static_cast<int>(sizeof sum) - 1);
  }
  return Status::error(MOE_ERR_BUDGET,
                       "the cap of %.3f MB is too small: %" PRIu64 " bytes at least, %.3f MB: %s",
                       megabytes(cap), account.total, megabytes(account.total), sum);
}

}  // namespace moe
