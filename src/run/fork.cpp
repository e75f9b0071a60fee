// SPDX-License-Identifier: MIT
// Copies a session or the beginning of its text: tokens, keys and values, those of a layer that
// guesses too, and the last logits.
#include <algorithm>

#include "src/run/kv_heads.h"
#include "src/run/saved.h"
#include "src/run/session_state.h"

namespace moe {
namespace {

void lay_out_places(Carver& c, const ModelConfig& config, BoundedList<HeadPlace>* places) {
  int64_t n = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.has_attention) n += 2 * int64_t{layer.attention.n_kv_heads};
  }
  places->lay_out(c, n);
}

// With an expert capacity the last token alone does not reproduce them.
Status copy_logits(const SessionState& from, SessionState& to) {
  if (!from.logits.known()) return {};
  const std::span<const float> row = from.logits.row();
  float* const copy = to.logits.row().data();
  if (from.logits.on_device()) {
    MOE_TRY(from.device.download(copy, from.work().device_logits, row.size() * sizeof(float)));
  } else {
    std::copy(row.begin(), row.end(), copy);
  }
  to.logits.leave_on_host();
  to.logits.keep();
  return {};
}

/// Copies keys and values of the first positions of a session to another one.
class RowCopy {
 public:
  RowCopy(const SessionState& from, SessionState& to)
      : from_(from),
        to_(to),
        mover_(from.device, from.options.kv, from.model.allocator()),
        memory_(from.model.allocator()) {}

  /// n: at most so many positions.
  Status init(size_t n) {
    const ModelConfig& config = from_.model.config();
    MOE_TRY(mover_.init(config, n));
    return memory_.init("fork", [&](Carver& c) { lay_out_places(c, config, &places_); });
  }
  /// The first n positions of the layers from `first` to `end`.
  Status copy(size_t n, int32_t first, int32_t end) {
    const ModelConfig& config = from_.model.config();
    mover_.set_rows(n);
    // Both sessions have the same shape, so their heads are in the same order.
    places_.clear();
    MOE_TRY(each_head(config, to_.kv, first, end, [&](const HeadPlace& place, bool) -> Status {
      places_.push(place);
      return {};
    }));
    size_t at = 0;
    return each_head(config, from_.kv, first, end, [&](const HeadPlace& place, bool keys) {
      return copy_head(place, places_[at++], keys);
    });
  }

 private:
  Status copy_head(const HeadPlace& place, const HeadPlace& there, bool keys) {
    MOE_TRY(check_cancel(from_));
    return mover_.each_piece(place, [&](const HeadPlace& piece) -> Status {
      HeadPlace target = there;
      target.at += piece.at - place.at;
      MOE_TRY(mover_.take(piece, keys));
      MOE_TRY(mover_.put(target, keys));
      if (place.scales == nullptr) return {};
      target.scales += piece.scales - place.scales;
      MOE_TRY(mover_.take_scales(piece));
      return mover_.put_scales(target);
    });
  }

  const SessionState& from_;
  SessionState& to_;
  KvMover mover_;
  HostBuffer memory_;
  BoundedList<HeadPlace> places_;
};

// The first n tokens, to an empty session.
Status copy_text(const SessionState& from, size_t n, SessionState& to) {
  const ModelConfig& config = from.model.config();
  if (check_keeps(config).ok()) {
    RowCopy rows(from, to);
    MOE_TRY(rows.init(n));
    MOE_TRY(rows.copy(n, 0, config.n_main_layers()));
    if (to.predictions.any()) {
      to.predictions.copy_from(from.predictions, static_cast<int32_t>(n));
      MOE_TRY(rows.copy(to.predictions.n_rows(), config.n_main_layers(), config.n_layers()));
    }
  }
  StateMover mover(from.device, from.model.allocator());
  MOE_TRY(mover.init(MixerStates::size(config)));
  MOE_TRY(to.mixers.copy_from(from.mixers, static_cast<int32_t>(n), mover));
  to.tokens.append(from.tokens.span().first(n));
  return n == from.tokens.size() ? copy_logits(from, to) : Status();
}

Status check_alike(const SessionState& from, const SessionState& to) {
  if (&from.model != &to.model) {
    return Status::error(MOE_ERR_ARGUMENT, "target: expected a session of the same model");
  }
  if (from.options.kv != to.options.kv) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "target: expected the KV type of the source, %s, found %s",
                         kv_type_name(from.options.kv), kv_type_name(to.options.kv));
  }
  if (context_of_positions(from) == context_of_positions(to)) return {};
  return Status::error(MOE_ERR_ARGUMENT,
                       "target: positions depend on the context: expected %d, found %d",
                       from.options.context, to.options.context);
}

}  // namespace

Result<Box<Session>> fork_session(Session& session, Model& model, const Allocator& allocator) {
  SessionCall call(session);
  MOE_TRY(call.status());
  const ModelConfig& config = call.state().model.config();
  if (config.is_encoder_decoder()) return check_keeps(config);
  const SessionState& from = call.state();
  SessionOptions options;
  options.context = from.options.context;
  options.chunk = from.options.chunk_follows ? 0 : from.options.chunk;
  options.kv = from.options.kv;
  MOE_ASSIGN(Box<Session> made, Session::create(model, options, allocator));
  SessionState& to = SessionCall::state_of(*made);
  const PassDemand& demand = from.passes.member.demand;
  if (to.passes.member.demand != demand) MOE_TRY(set_demand(to, demand));
  MOE_TRY(copy_text(from, from.tokens.size(), to));
  to.routers.copy_from(from.routers);
  return made;
}

Status copy_session(Session& source, int32_t n, Session& target) {
  SessionCall source_call(source);
  MOE_TRY(source_call.status());
  SessionCall target_call(target);
  MOE_TRY(target_call.status());
  const SessionState& from = source_call.state();
  SessionState& to = target_call.state();
  MOE_TRY(check_keeps(from.model.config()));
  MOE_TRY(check_alike(from, to));
  if (n < 0 || n > from.position()) {
    return Status::error(MOE_ERR_RANGE, "n_positions: expected 0..%d, found %d", from.position(),
                         n);
  }
  if (n > to.options.context) {
    return Status::error(MOE_ERR_TOO_LONG, "n_positions: the target's context holds %d, found %d",
                         to.options.context, n);
  }
  rewind_to(to, 0);
  return copy_text(from, static_cast<size_t>(n), to);
}

uint64_t saving_bytes(Device& device, const ModelConfig& config, KvType kv) {
  if (!check_keeps(config).ok()) return 0;
  BoundedList<HeadPlace> places;
  return KvMover::bytes(device, config, kv) + StateMover::bytes(device, MixerStates::size(config)) +
         measured([&](Carver& c) { lay_out_places(c, config, &places); });
}

}  // namespace moe
