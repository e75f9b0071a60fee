// SPDX-License-Identifier: MIT
// Copies a session: its text, keys and values, routers, and the last logits.
#include <algorithm>

#include "src/run/kv_heads.h"
#include "src/run/saved.h"

namespace moe {
namespace {

// With an expert capacity the last token alone does not reproduce them.
Status copy_logits(const SessionState& from, SessionState& to) {
  const size_t n = from.logits.size();
  if (!from.has_logits) return {};
  if (from.on_device) {
    MOE_TRY(from.device.download(to.logits.data(), from.work().device_logits, n * sizeof(float)));
  } else {
    std::copy_n(from.logits.data(), n, to.logits.data());
  }
  to.on_device = false;
  to.has_logits = true;
  return {};
}

Status copy_text(const SessionState& from, SessionState& to) {
  const size_t n = from.tokens.size();
  if (check_keeps(from).ok()) {
    KvMover mover(from, from.model.allocator());
    MOE_TRY(mover.init(from, n));
    // Both have the same shape, so their heads are in the same order.
    Array<HeadPlace> places(from.model.allocator());
    MOE_TRY(places.reserve(n_head_places(from.model.config())));
    MOE_TRY(each_head(to, [&](const HeadPlace& place, bool) { return places.push(place); }));
    size_t at = 0;
    const auto move = [&](const HeadPlace& place, bool keys) -> Status {
      MOE_TRY(check_cancel(from));
      const HeadPlace& there = places[at++];
      return mover.each_piece(place, [&](const HeadPlace& piece) -> Status {
        HeadPlace target = there;
        target.at += piece.at - place.at;
        MOE_TRY(mover.take(piece, keys));
        MOE_TRY(mover.put(target, keys));
        if (place.scales == nullptr) return {};
        target.scales += piece.scales - place.scales;
        MOE_TRY(mover.take_scales(piece));
        return mover.put_scales(target);
      });
    };
    MOE_TRY(each_head(from, move));
  }
  MOE_TRY(to.tokens.append(from.tokens.data(), n));
  for (size_t l = 0; l < from.routers.size(); ++l) to.routers[l] = from.routers[l];
  to.overridden = from.overridden;
  to.has_capacity = from.has_capacity;
  return copy_logits(from, to);
}

}  // namespace

Result<Box<Session>> fork_session(Session& session, Model& model, const Allocator& allocator) {
  SessionCall call(session);
  MOE_TRY(call.status());
  if (call.state().model.config().is_encoder_decoder()) return check_keeps(call.state());
  const SessionState& from = call.state();
  SessionOptions options;
  options.context = from.options.context;
  options.chunk = from.options.chunk_follows ? 0 : from.options.chunk;
  options.kv = from.options.kv;
  MOE_ASSIGN(Box<Session> made, Session::create(model, options, allocator));
  SessionState& to = SessionCall::state_of(*made);
  if (to.member.demand != from.member.demand) MOE_TRY(to.set_demand(from.member.demand));
  MOE_TRY(copy_text(from, to));
  return made;
}

}  // namespace moe
