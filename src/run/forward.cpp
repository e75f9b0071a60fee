// SPDX-License-Identifier: MIT
// Lays out the rows of a pass, runs embedding, layers and outputs in order, and replays recorded
// steps where the device has them.
#include "src/run/forward.h"

#include <algorithm>

#include "src/run/layers.h"
#include "src/run/outputs.h"

namespace moe {
namespace {

Batch lay_out(SessionState& lead, std::span<BatchPart> parts) {
  int32_t n_rows = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    BatchPart& part = parts[p];
    part.first_row = n_rows;
    for (size_t i = 0; i < part.tokens.size(); ++i, ++n_rows) {
      const int32_t position = part.position + static_cast<int32_t>(i);
      lead.work().rows[static_cast<size_t>(n_rows)] = {static_cast<int32_t>(p), position,
                                                       part.tokens[i]};
    }
  }
  return {lead, parts, lead.work().rows.data(), lead.work().caches.data(), n_rows};
}

// True if every session has one token and requests its logits, and all rows fit.
bool is_decode(const SessionState& lead, const Batch& batch) {
  if (batch.n_rows > lead.work().logit_rows) return false;
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
// kMaxSampleRows sessions.
StepKey key_of(const SessionState& lead, const Batch& batch, bool decode) {
  StepKey key;
  static_assert(1 + 4 * std::max(kLogitRows, kDeviceLogitRows) <= StepKey::kWords);
  if (!decode || !lead.model.experts_stay()) return key;
  key.add(batch.parts.size());
  for (const BatchPart& part : batch.parts) {
    if (part.session->routers.counters.on()) return {};
    key.add(part.session->routers.number());
    if (part.session->mixers.any()) key.add(part.session->mixers.places());
    const SampleSpec& spec = part.session->logits.spec;
    key.add(bits_of(spec.temperature, spec.min_p));
    key.add(bits_of(spec.share, 0) | static_cast<uint32_t>(spec.n_candidates));
  }
  return key;
}

// The tokens of an encoder's second text are embedded with positions of their own.
void embed_texts(SessionState& lead, const Batch& batch) {
  const ModelConfig& config = lead.model.config();
  const ModelWeights& weights = lead.model.weights();
  for (const BatchPart& part : batch.parts) {
    const auto n = static_cast<int32_t>(part.tokens.size());
    const int32_t second = part.second > 0 ? static_cast<int32_t>(part.second) : n;
    const auto rows = [&](const Matrix& positions, int32_t begin, int32_t end) {
      if (begin == end) return;
      const int32_t row = part.first_row + begin;
      lead.device.embed(lead.stream(), weights.embedding, positions, batch.rows + row, end - begin,
                        config.embedding_multiplier, lead.work().x + int64_t{row} * config.d_model);
    };
    rows(weights.position_embedding, 0, second);
    rows(weights.second_positions, second, n);
  }
}

void embed(SessionState& lead, const Batch& batch, const Matrix& positions, const Norm& norm) {
  const ModelConfig& config = lead.model.config();
  float* const x = lead.work().x;
  for (const BatchPart& part : batch.parts) {
    if (!part.continues) part.session->routers.counters.begin_pass();
  }
  if (config.second_positions) {
    embed_texts(lead, batch);
  } else if (RowSource* table = lead.model.weights().embedding_rows; table != nullptr) {
    lead.device.embed_from(lead.stream(), *table, config.d_model, batch.rows, batch.n_rows,
                           config.embedding_multiplier, x);
  } else {
    lead.device.embed(lead.stream(), lead.model.weights().embedding, positions, batch.rows,
                      batch.n_rows, config.embedding_multiplier, x);
  }
  if (norm.kind == NormKind::kNone) return;
  lead.device.norm(lead.stream(), {x, x, batch.n_rows, config.d_model, norm, false, 1});
}

// From token ids to the last layer's residual stream.
void run_text(SessionState& lead, const Batch& batch) {
  const ModelConfig& config = lead.model.config();
  const ModelWeights& weights = lead.model.weights();
  embed(lead, batch, weights.position_embedding, weights.embedding_norm);
  compute_inputs(lead, batch);
  run_layers(lead, batch, config.n_encoder_layers, config.n_main_layers());
  if (!config.is_encoder()) norm_hidden(lead, batch);
}

// From a source's ids to the memory that the decoder attends to.
void run_source(SessionState& lead, const Batch& batch) {
  const ModelConfig& config = lead.model.config();
  const ModelWeights& weights = lead.model.weights();
  float* const x = lead.work().x;
  embed(lead, batch, weights.source_positions, weights.source_embedding_norm);
  run_layers(lead, batch, 0, config.n_encoder_layers);
  if (config.encoder_norm) {
    lead.device.norm(lead.stream(),
                     {x, x, batch.n_rows, config.d_model, weights.encoder_norm, false, 1});
  }
  for (int32_t l = config.n_encoder_layers; l < config.n_layers(); ++l) {
    if (config.layers[static_cast<size_t>(l)].has_cross) store_source(lead, batch, l);
  }
}

// Runs the pass on the device, or replays its recorded step, up to a decode step's logits.
void run_pass(SessionState& lead, const Batch& batch, bool decode, const StepKey& key) {
  while (lead.device.begin_step(lead.stream(), batch.rows, batch.n_rows, key)) {
    run_text(lead, batch);
    if (decode) run_head(lead, batch, 0, batch.n_rows, lead.work().logits);
    if (lead.device.end_step(lead.stream())) return;
  }
}

Status deliver_step(SessionState& lead, const Batch& batch) {
  for (int32_t r = 0; r < batch.n_rows; ++r) {
    MOE_TRY(deliver_logits(lead, batch, r, r, lead.work().logits));
  }
  return {};
}

}  // namespace

Status forward(SessionState& lead, std::span<BatchPart> parts) {
  const Batch batch = lay_out(lead, parts);
  const bool decode = is_decode(lead, batch);
  const StepKey key = key_of(lead, batch, decode);
  Status status = run_and_wait(lead, batch, [&] { run_pass(lead, batch, decode, key); });
  if (status.ok()) status = decode ? deliver_step(lead, batch) : write_outputs(lead, batch);
  if (cancel_asked(batch)) return Status::error(MOE_ERR_CANCELLED, "cancelled");
  return status;
}

Status forward_source(SessionState& state, std::span<const int32_t> tokens, float* hidden) {
  const PassLease lease(state);
  MOE_TRY(lease.status());
  BatchPart part;
  part.session = &state;
  part.tokens = tokens;
  const Batch batch = lay_out(state, {&part, 1});
  const Status status = run_and_wait(state, batch, [&] { run_source(state, batch); });
  if (cancel_asked(batch)) return Status::error(MOE_ERR_CANCELLED, "cancelled");
  if (!status.ok() || hidden == nullptr) return status;
  const auto d = static_cast<size_t>(state.model.config().d_model);
  return state.device.download(hidden, state.work().x, tokens.size() * d * sizeof(float));
}

}  // namespace moe
