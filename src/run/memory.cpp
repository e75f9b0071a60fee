// SPDX-License-Identifier: MIT
// Chooses the chunk that a cap allows, and adds up what sessions and workspaces take, line by line.
#include "src/run/memory.h"

#include <algorithm>

#include "kernels/expert_memory.h"
#include "kernels/router/table.h"
#include "src/run/beam.h"
#include "src/run/last_logits.h"
#include "src/run/mixer_states.h"
#include "src/run/rope_tables.h"
#include "src/run/session_call.h"
#include "src/run/session_routers.h"
#include "src/run/workspace.h"

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

// A session's calls allocate this, one call at a time. Making the session counts as its first call.
uint64_t call_bytes(const Model& model, const SessionOptions& o) {
  const ModelConfig& config = model.config();
  Device& device = model.device();
  return std::max({RopeTables::temporary_bytes(device, config, o.context),
                   encode_bytes(device, config), generating_bytes(config),
                   saving_bytes(device, config, o.kv), scoring_bytes(o.context)});
}

Status check_latent(const AttentionConfig& a) {
  if (can_keep_latent(a)) return {};
  if (a.latent == 0) {
    return Status::error(MOE_ERR_UNSUPPORTED, "no multi-head latent attention");
  }
  return Status::error(MOE_ERR_UNSUPPORTED, "it has qk_norm, qkv_clip or fully rotated keys");
}

Status check_latent(const Model& model) {
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

/// One session, without the workspaces of its passes.
struct SessionBytes {
  uint64_t kv = 0;
  uint64_t mixers = 0;
  uint64_t rope = 0;
  uint64_t logits = 0;
  uint64_t search = 0;
  uint64_t state = 0;
  uint64_t calls = 0;
  uint64_t total() const { return kv + mixers + rope + logits + search + state + calls; }
};

Status session_bytes(const Model& model, const SessionOptions& o, SessionBytes* out) {
  const ModelConfig& config = model.config();
  SessionBytes bytes;
  if (!KvCache::bytes(config, kv_shape(o), &bytes.kv) ||
      !MixerStates::bytes(config, &bytes.mixers) ||
      !RopeTables::bytes(config, o.context, &bytes.rope)) {
    return Status::error(MOE_ERR_TOO_LONG, "session: a context of %d overflows", o.context);
  }
  LastLogits logits;
  bytes.logits = measured([&](Carver& c) { logits.lay_out(c, model.device(), config); });
  if (config.is_encoder_decoder()) bytes.search = search_bytes(config, o.max_beam, o.context);
  bytes.state = session_host_bytes(model, o) - bytes.logits;
  bytes.calls = call_bytes(model, o);
  *out = bytes;
  return {};
}

uint64_t left_beside(const Model& model, const Sharers& sharers, uint64_t used) {
  return model.budget().bytes_beside(sharers.least ? UINT64_MAX : used);
}

/// Writes the lines of an account.
class Accountant {
 public:
  Accountant(const Model& model, const Sharers& sharers) : model_(model), sharers_(sharers) {}

  void add_model(bool latent) {
    for (const MemoryLine& line : model_.memory_lines()) add(line.what, line.bytes);
    add("asynchronous uploads", model_.staging_bytes());
    add("matrices for the latent cache", model_.latent_matrix_bytes(latent));
    add("other sessions", sharers_.bytes);
    account_.other_bytes = sharers_.bytes;
  }
  void add_sessions(const SessionBytes& each, bool keeps_workspace, const WorkspaceBytes& pass) {
    const auto n = static_cast<uint64_t>(sharers_.n_sessions);
    const uint64_t before = account_.total;
    add(model_.config().is_encoder() ? "keys and values" : "KV cache", n * each.kv);
    add("states of mixers", n * each.mixers);
    add("position tables", n * each.rope);
    add("logits", n * each.logits);
    add("beam search", n * each.search);
    add("session", n * each.state);
    add("temporary memory of calls", n * each.calls);
    const uint64_t passes = keeps_workspace ? n : 1;
    add("activations", passes * pass.activations);
    if (keeps_workspace) {
      add("device scratch", passes * pass.scratch);
      add("host scratch", passes * (pass.host_scratch + pass.lists));
    } else {
      add("scratch", passes * (pass.scratch + pass.lists));
    }
    add("sampling", passes * pass.sampling);
    account_.kv_bytes = n * each.kv;
    account_.session_bytes = each.total() + (keeps_workspace ? pass.total() : 0);
    account_.pass_bytes = pass.total();
    account_.chunk_bytes = pass.chunk();
    account_.scratch_bytes = account_.total - before - account_.kv_bytes;
    const ExpertMemory* device = model_.device().expert_memory();
    account_.device_bytes = pass.scratch;
    for (const uint64_t block : {each.kv, each.mixers, each.rope, pass.activations}) {
      account_.device_bytes += device == nullptr ? block : device->taken_by(block);
    }
  }
  void add_cache() {
    const ExpertCacheShape& shape = model_.cache_shape();
    const uint64_t reading = model_.expert_reading_bytes();
    uint64_t cache = 0;
    if (shape.slot_bytes != 0) {
      add("expert readers", shape.reader_bytes);
      const uint64_t left = left_beside(model_, sharers_, account_.total + reading);
      cache = shape.bytes(std::clamp<uint64_t>(left / shape.slot_bytes, 1, shape.most_slots));
    }
    // Weights are read before sessions, workspace and cache are allocated, which may leave room.
    const uint64_t later =
        account_.other_bytes + account_.kv_bytes + account_.scratch_bytes + cache;
    const uint64_t weights = model_.reading_bytes();
    add("read buffers", std::max(reading, weights - std::min(weights, later)));
    account_.reader_bytes = shape.reader_bytes;
    account_.cache_bytes = cache;
    add("expert cache", cache);
  }
  MemoryAccount& account() { return account_; }

 private:
  void add(const char* what, uint64_t bytes) { add_line(&account_, what, bytes); }

  const Model& model_;
  const Sharers& sharers_;
  MemoryAccount account_;
};

// The bytes that are left for the workspace and the expert cache.
uint64_t left_for_passes(const Model& model, const Sharers& sharers, bool latent,
                         const SessionBytes& each) {
  uint64_t used = 0;
  const bool fits =
      checked_mul(each.total(), static_cast<uint64_t>(sharers.n_sessions), &used) &&
      checked_add(used, model.own_bytes() + model.latent_matrix_bytes(latent), &used) &&
      checked_add(used, sharers.bytes, &used);
  return left_beside(model, sharers, fits ? used : UINT64_MAX);
}

Status account_resolved(const Model& model, const SessionOptions& o, const Sharers& sharers,
                        MemoryAccount* out) {
  SessionBytes each;
  MOE_TRY(session_bytes(model, o, &each));
  const PassDemand demand = pass_demand(model, o, false);
  PassDemands all = sharers.demands;
  all.add(demand);
  const bool latent = is_latent(o.kv);
  const int32_t rows = automatic_rows(model, all, left_for_passes(model, sharers, latent, each));
  WorkspaceBytes pass;
  MOE_TRY(workspace_bytes(model, all.shape(rows), &pass));
  uint64_t all_sessions = 0;
  if (!checked_mul(each.total() + pass.total(), static_cast<uint64_t>(sharers.n_sessions),
                   &all_sessions)) {
    return Status::error(MOE_ERR_TOO_LONG, "session: the memory of %d sessions overflows",
                         sharers.n_sessions);
  }
  Accountant accountant(model, sharers);
  accountant.add_model(latent);
  accountant.add_sessions(each, !lends_workspaces(model), pass);
  accountant.add_cache();
  accountant.account().chunk = demand.chunk(rows);
  *out = accountant.account();
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
  MOE_TRY(account_resolved(model, large, {}, &account));
  const uint64_t weights = std::min(limit, model.weight_bytes());
  const bool fits = account.device_bytes <= (limit - weights) / kShare;
  return fits ? kDefaultDeviceChunk : kDefaultChunk;
}

bool needs_whole_text(const ModelConfig& config) {
  if (config.is_encoder() || config.is_encoder_decoder()) return true;
  for (const LayerConfig& layer : config.layers) {
    if (has_capacity(layer.ffn)) return true;
  }
  return false;
}

}  // namespace

Result<SessionOptions> resolve_options(const Model& model, const SessionOptions& options) {
  const int32_t most = model.config().context_length;
  SessionOptions o = options;
  MOE_TRY(check_range("context (--context)", o.context, 0, most));
  MOE_TRY(check_range("chunk", o.chunk, 0, kMaxChunk));
  const bool encoder = model.config().is_encoder();
  if (o.kv == KvType::kLatent) MOE_TRY(check_latent(model));
  if (encoder) o.kv = KvType::kF32;
  if (o.kv == KvType::kF32 && !encoder && !model.device().uses_host_memory()) {
    return Status::error(MOE_ERR_UNSUPPORTED, "session: kv f32: for decoders only on the CPU");
  }
  MOE_TRY(resolve_search(model.config(), options, &o));
  if (o.context == 0) o.context = std::min(most, kDefaultContext);
  if (o.chunk == 0) {
    o.chunk_follows = true;
    o.chunk = kMaxChunk;
    if (!needs_whole_text(model.config()) && !lends_workspaces(model)) {
      MOE_ASSIGN(o.chunk, default_chunk(model, o));
    }
  }
  o.chunk = std::min(o.chunk, std::max(o.context, o.source));
  return o;
}

PassDemand pass_demand(const Model& model, const SessionOptions& o, bool has_capacity) {
  PassDemand demand;
  demand.rows = o.chunk;
  demand.context = std::max(o.context, o.source);
  demand.latent = is_latent(o.kv);
  const bool whole = has_capacity || needs_whole_text(model.config());
  if (o.chunk_follows && whole) demand.rows = std::min(demand.context, kMaxChunk);
  demand.automatic = o.chunk_follows && !whole && lends_workspaces(model);
  return demand;
}

void PassDemands::add(const PassDemand& demand) {
  int32_t& most = demand.automatic ? automatic_rows : fixed_rows;
  most = std::max(most, demand.rows);
  context = std::max(context, demand.context);
  latent = latent || demand.latent;
}

PassShape PassDemands::shape(int32_t rows) const {
  return {std::max(fixed_rows, std::min(automatic_rows, rows)), context, latent};
}

int32_t automatic_rows(const Model& model, const PassDemands& demands, uint64_t left) {
  if (demands.automatic_rows == 0 || left == UINT64_MAX) return kDefaultChunk;
  const ExpertCacheShape& cache = model.cache_shape();
  const auto bytes_of = [&](int32_t rows) {
    WorkspaceBytes bytes;
    return workspace_bytes(model, demands.shape(rows), &bytes).ok() ? bytes : WorkspaceBytes();
  };
  const WorkspaceBytes usual = bytes_of(kDefaultChunk);
  const uint64_t all = cache.bytes(cache.most_slots);
  if (usual.total() + all <= left) return kDefaultChunk;
  // A workspace that has so many rows for another session serves automatic chunks for nothing.
  const int32_t least = std::max(kLeastChunk, demands.fixed_rows);
  if (cache.slot_bytes == 0) {
    int32_t rows = kDefaultChunk;
    while (rows > least && bytes_of(rows).total() > left) rows /= 2;
    return std::max(rows, std::min(least, kDefaultChunk));
  }
  left -= std::min(left, usual.sampling);
  const uint64_t beside = left - std::min(left, cache.slot_bytes);  // an expert needs a slot
  for (int32_t rows = kMaxChunk; rows > least; rows /= 2) {
    const int32_t used = demands.shape(rows).rows;
    const uint64_t share = used > kShortChunk ? kLongChunkShare : kShortChunkShare;
    if (bytes_of(rows).chunk() <= std::min(left / share, beside)) return rows;
  }
  return least;
}

KvShape kv_shape(const SessionOptions& o) {
  return {o.context, o.kv, o.source, std::max(o.max_beam, 1)};
}

StreamShape stream_shape(const Model& model, const PassShape& shape) {
  const ModelConfig& config = model.config();
  StreamShape s;
  s.max_rows = shape.rows;
  s.d_model = config.d_model;
  s.max_d_in = config.d_model;
  s.max_context = shape.context;
  s.vocab_size = config.vocab_size;
  if (config.head.dense) s.max_d_ff = config.d_model;
  s.max_d_in = std::max(s.max_d_in, config.n_layers() * config.layer_input.width);
  for (int32_t l = 0; l < config.n_layers(); ++l) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(l)];
    const AttentionConfig& a = layer.attention;
    const AttentionConfig& cross = layer.cross;
    s.max_heads = std::max({s.max_heads, a.n_heads, cross.n_heads});
    s.max_head_dim = std::max({s.max_head_dim, a.head_dim, cross.head_dim});
    if (kHasMixers && layer.has_mixer) {
      const MixerWidths widths = mixer_widths(layer.mixer.mixer, config.d_model);
      s.max_d_in = std::max(s.max_d_in, static_cast<int32_t>(widths.out));
    }
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

Status workspace_bytes(const Model& model, const PassShape& shape, WorkspaceBytes* out) {
  const Device& device = model.device();
  const StreamShape stream = stream_shape(model, shape);
  WorkspaceBytes bytes;
  bytes.scratch = device.stream_bytes(stream);
  if (bytes.scratch == 0 ||
      !WorkMemory::device_bytes(device, model.config(), shape, &bytes.activations)) {
    return Status::error(MOE_ERR_TOO_LONG, "session: the scratch of %d rows overflows", shape.rows);
  }
  bytes.host_scratch = device.host_stream_bytes(stream);
  bytes.lists =
      WorkMemory::host_bytes(model.config(), shape) + sizeof(Workspace) + sizeof(WorkspacePool);
  bytes.sampling = Sampler::bytes(model.config().vocab_size);
  *out = bytes;
  return {};
}

Status account_memory(const Model& model, const SessionOptions& options, const Sharers& sharers,
                      MemoryAccount* out) {
  MOE_ASSIGN(const SessionOptions o, resolve_options(model, options));
  return account_resolved(model, o, sharers, out);
}

Status account_memory(const Model& model, const SessionOptions& options, MemoryAccount* out) {
  return account_memory(model, options, {}, out);
}

Status check_room(const Model& model, const MemoryAccount& account) {
  const uint64_t readers = account.reader_bytes;
  const uint64_t others = account.other_bytes;
  const uint64_t weights = account.total - account.kv_bytes - account.scratch_bytes -
                           account.cache_bytes - readers - others;
  const MemoryLine parts[] = {
      {"weights and tables", weights}, {"other sessions", others},
      {"KV cache", account.kv_bytes},  {"scratch", account.scratch_bytes},
      {"expert readers", readers},     {"expert cache", account.cache_bytes}};
  return model.budget().check(account.total, parts);
}

}  // namespace moe
