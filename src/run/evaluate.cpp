// SPDX-License-Identifier: MIT
// Advancing sessions: one alone, chunk by chunk, or several together.

#include <algorithm>

#include "src/run/session_state.h"

namespace moe {
namespace {

void advance(SessionState& state, std::span<const int32_t> tokens) {
  state.tokens.append(tokens);
  state.logits.keep();
  state.routers.counters.add_pass();
}

Status eval_chunk(SessionState& state, const BatchPart& chunk, float* last) {
  BatchPart part = chunk;
  state.logits.forget();
  MOE_TRY(run_batch(state, {&part, 1}));
  if (last != nullptr) MOE_TRY(read_logits(state, last));
  advance(state, part.tokens);
  keep_hidden(state, {&part, 1});
  return {};
}

/// Begins a call on several sessions in order and ends it on all.
class GroupCall {
 public:
  explicit GroupCall(std::span<Session* const> sessions) : sessions_(sessions) {}
  GroupCall(const GroupCall&) = delete;
  GroupCall& operator=(const GroupCall&) = delete;
  ~GroupCall() {
    for (size_t i = 0; i < n_begun_; ++i) {
      call_of(i).leave_group();
      call_of(i).end();
    }
  }
  Status begin() {
    for (; n_begun_ < sessions_.size(); ++n_begun_) {
      MOE_TRY(call_of(n_begun_).begin(false).with_context("session %zu", n_begun_));
    }
    lead().call.lead_group(sessions_);
    return {};
  }
  SessionState& lead() const { return SessionCall::state_of(*sessions_[0]); }

 private:
  CallState& call_of(size_t i) const { return SessionCall::of(*sessions_[i]); }

  std::span<Session* const> sessions_;
  size_t n_begun_ = 0;
};

Status check_piece(const SessionState& lead, const SessionState& state,
                   std::span<const int32_t> tokens) {
  if (&state.model != &lead.model) {
    return Status::error(MOE_ERR_ARGUMENT, "sessions of one call must share one model");
  }
  if (tokens.empty()) return Status::error(MOE_ERR_ARGUMENT, "no tokens");
  MOE_TRY(check_tokens(state, tokens));
  const int32_t most = lead.passes.workspace->shape.rows;
  if (state.routers.has_capacity() && tokens.size() > static_cast<size_t>(most)) {
    return Status::error(MOE_ERR_TOO_LONG,
                         "with an expert capacity a call is one pass: %zu tokens, but the first "
                         "session's chunk is %d",
                         tokens.size(), most);
  }
  return {};
}

/// The tokens of each session in a call.
struct Pieces {
  std::span<Session* const> sessions;
  const int32_t* tokens;   // concatenated
  const size_t* n_tokens;  // null: one per session

  /// Calls f(i, state, piece) until one fails.
  template <class F>
  Status each(F f) const {
    const int32_t* at = tokens;
    for (size_t i = 0; i < sessions.size(); ++i) {
      const size_t n = n_tokens == nullptr ? 1 : n_tokens[i];
      MOE_TRY(f(i, SessionCall::state_of(*sessions[i]), std::span<const int32_t>(at, n)));
      at += n;
    }
    return {};
  }
};

/// Fills passes in the lead's work memory.
class Passes {
 public:
  explicit Passes(SessionState& lead) : lead_(lead), most_(static_cast<size_t>(lead.pass_rows())) {}
  /// A piece longer than a pass takes several.
  Status add(SessionState& state, std::span<const int32_t> piece) {
    size_t done = 0;
    for (; !state.routers.has_capacity() && piece.size() - done > most_; done += most_) {
      MOE_TRY(run());
      push(state, piece.subspan(done, most_), done, LogitRows::kNone);
    }
    const std::span<const int32_t> rest = piece.subspan(done);
    if (n_rows_ + rest.size() > most_) MOE_TRY(run());
    push(state, rest, done, LogitRows::kLast);
    return {};
  }
  Status run() {
    const std::span<BatchPart> parts(lead_.work().parts.data(), n_parts_);
    n_parts_ = n_rows_ = 0;
    if (parts.empty()) return {};
    MOE_TRY(run_batch(lead_, parts));
    keep_hidden(lead_, parts);
    return {};
  }

 private:
  void push(SessionState& state, std::span<const int32_t> tokens, size_t done, LogitRows rows) {
    state.logits.forget();
    BatchPart part;
    part.session = &state;
    part.tokens = tokens;
    part.position = state.position() + static_cast<int32_t>(done);
    part.rows = rows;
    part.continues = done > 0;
    lead_.work().parts[n_parts_++] = part;
    n_rows_ += tokens.size();
  }

  SessionState& lead_;
  size_t most_;
  size_t n_parts_ = 0;
  size_t n_rows_ = 0;
};

// Single tokens come last: they share the head's pass with the last row of a longer piece.
Status run_pieces(SessionState& lead, const Pieces& pieces) {
  Passes passes(lead);
  for (const bool single : {false, true}) {
    MOE_TRY(pieces.each([&](size_t, SessionState& state, std::span<const int32_t> piece) -> Status {
      return (piece.size() == 1) == single ? passes.add(state, piece) : Status();
    }));
  }
  return passes.run();
}

Status eval_pieces(const Pieces& pieces, float* logits) {
  if (pieces.sessions.empty()) return {};
  GroupCall group(pieces.sessions);
  MOE_TRY(group.begin());
  SessionState& lead = group.lead();
  const PassLease lease(lead);
  MOE_TRY(lease.status());
  MOE_TRY(pieces.each([&](size_t i, SessionState& state, std::span<const int32_t> piece) {
    return check_piece(lead, state, piece).with_context("session %zu", i);
  }));
  MOE_TRY(run_pieces(lead, pieces));
  const size_t vocab_size = static_cast<size_t>(lead.model.config().vocab_size);
  for (size_t i = 0; i < pieces.sessions.size() && logits != nullptr; ++i) {
    MOE_TRY(read_logits(SessionCall::state_of(*pieces.sessions[i]), logits + i * vocab_size)
                .with_context("session %zu", i));
  }
  return pieces.each([](size_t, SessionState& state, std::span<const int32_t> piece) -> Status {
    advance(state, piece);
    if (piece.size() > 1) keep_state(state);
    return {};
  });
}

}  // namespace

// After a change that failed for lack of memory the workspace may be smaller than the chunk.
Status check_one_pass(const SessionState& state, size_t n_tokens) {
  const bool whole = state.routers.has_capacity() || state.model.config().is_encoder();
  if (!whole || n_tokens <= static_cast<size_t>(state.pass_rows())) return {};
  return Status::error(MOE_ERR_MEMORY, "a pass over all %zu tokens needs memory that is missing",
                       n_tokens);
}

namespace {

// Parts whose sessions have the states of their mixers.
Status run_reached(SessionState& lead, std::span<BatchPart> parts) {
  for (const BatchPart& part : parts) {
    if (part.session->mixers.any()) {
      part.session->mixers.begin_pass(part.position, part.session->position());
    }
  }
  MOE_TRY(forward(lead, parts));
  for (const BatchPart& part : parts) {
    const int32_t end = part.position + static_cast<int32_t>(part.tokens.size());
    if (part.session->mixers.any()) part.session->mixers.end_pass(end);
  }
  return {};
}

}  // namespace

// A lost device invalidates the caches; any other error leaves them intact.
Status run_batch(SessionState& lead, std::span<BatchPart> parts) {
  const PassLease lease(lead);
  MOE_TRY(lease.status());
  for (const BatchPart& part : parts) {
    MOE_TRY(reach_state(lead, *part.session, part.position));
  }
  const Status status = run_reached(lead, parts);
  if (status.code() == MOE_ERR_DEVICE) {
    for (const BatchPart& part : parts) part.session->call.poisoned = true;
  }
  return status;
}

// The tokens between were part of the session when the state after them was computed, or are.
Status reach_state(SessionState& lead, SessionState& state, int32_t position) {
  if (!state.mixers.any()) return {};
  int32_t at = state.mixers.nearest(position);
  if (at == position) return {};
  const PassLease lease(lead);
  MOE_TRY(lease.status());
  while (at < position) {
    BatchPart part;
    part.session = &state;
    part.position = at;
    const int32_t n = std::min(position - at, lead.pass_rows());
    part.tokens = state.tokens.span().subspan(static_cast<size_t>(at), static_cast<size_t>(n));
    MOE_TRY(run_reached(lead, {&part, 1}));
    at += n;
  }
  return {};
}

void keep_state(SessionState& state) {
  if (state.mixers.any()) state.mixers.keep(state.position());
}

Status recall_logits(SessionState& state) {
  if (state.logits.known()) return {};
  if (state.tokens.empty()) {
    return Status::error(MOE_ERR_STATE, "the session is empty: there is nothing to continue");
  }
  BatchPart part;
  part.session = &state;
  part.tokens = {&state.tokens.back(), 1};
  part.position = state.position() - 1;
  part.rows = LogitRows::kLast;
  MOE_TRY(run_batch(state, {&part, 1}));
  state.logits.keep();
  return {};
}

Status check_tokens(const SessionState& state, std::span<const int32_t> tokens) {
  return check_tokens(state, tokens, state.position());
}

Status check_tokens(const SessionState& state, std::span<const int32_t> tokens, int32_t used) {
  const ModelConfig& config = state.model.config();
  const int32_t context = state.options.context;
  if (config.is_encoder()) {
    return Status::error(MOE_ERR_UNSUPPORTED, "the model is an encoder and cannot continue a text");
  }
  if (config.is_encoder_decoder() && state.kv.n_source == 0) {
    return Status::error(
        MOE_ERR_STATE,
        "the model is an encoder-decoder, and the session has read no source: "
        "use 'moe translate' or moe_session_translate, or call moe_session_read_source first");
  }
  if (tokens.size() > static_cast<size_t>(context - used)) {
    const bool can_grow = context < config.context_length;
    return Status::error(MOE_ERR_TOO_LONG,
                         "%zu tokens do not fit: the session's context holds %d, %d are used; %s%d",
                         tokens.size(), context, used,
                         can_grow ? "create it with a larger context (--context), at most "
                                  : "the model's own length is ",
                         config.context_length);
  }
  if (state.routers.has_capacity() && tokens.size() > static_cast<size_t>(state.chunk())) {
    return Status::error(MOE_ERR_TOO_LONG,
                         "with an expert capacity a call is one chunk: at most %d tokens, found "
                         "%zu; create the session with a larger chunk (--chunk), at most %d",
                         state.chunk(), tokens.size(), kMaxChunk);
  }
  return check_ids(state, tokens);
}

Status check_ids(const SessionState& state, std::span<const int32_t> tokens) {
  const int32_t vocab_size = state.model.config().vocab_size;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size) {
      return Status::error(MOE_ERR_RANGE, "token %zu: expected an id in 0..%d, found %d", i,
                           vocab_size - 1, tokens[i]);
    }
  }
  return {};
}

namespace {

/// ask(done, last, part) sets what the chunk after `done` tokens returns. last_row: null, or the
/// destination of the last token's logits.
template <class Ask>
Status eval_chunks(SessionState& state, std::span<const int32_t> tokens, Ask ask, float* last_row) {
  for (size_t done = 0; done < tokens.size();) {
    const PassLease lease(state);  // for one chunk: sessions take turns
    MOE_TRY(lease.status());
    MOE_TRY(check_one_pass(state, tokens.size()));
    const auto chunk = static_cast<size_t>(state.pass_rows());
    const size_t n = std::min(chunk, tokens.size() - done);
    const bool last = done + n == tokens.size();
    BatchPart part;
    part.session = &state;
    part.tokens = tokens.subspan(done, n);
    part.position = state.position();
    part.rows = last ? LogitRows::kLast : LogitRows::kNone;
    ask(done, last, &part);
    MOE_TRY(eval_chunk(state, part, last ? last_row : nullptr));
    done += n;
  }
  return {};
}

}  // namespace

Status eval_tokens(SessionState& state, std::span<const int32_t> tokens, const LogitSink& sink,
                   float* last_row) {
  // The sink's index counts from the first token of the call.
  struct Shifted {
    const LogitSink* sink;
    size_t done;
    static Status take(void* user, size_t index, const float* logits) {
      const Shifted& s = *static_cast<const Shifted*>(user);
      return s.sink->take(s.sink->user, s.done + index, logits);
    }
  } shifted{&sink, 0};
  const auto ask = [&](size_t done, bool, BatchPart* part) {
    if (sink.take == nullptr) return;
    shifted.done = done;
    part->rows = LogitRows::kAll;
    part->sink = {Shifted::take, &shifted};
  };
  return eval_chunks(state, tokens, ask, last_row);
}

Status eval_scored(SessionState& state, std::span<const int32_t> tokens, size_t first,
                   std::span<const int32_t> targets, const ScoreSink& sink) {
  const size_t end = first + targets.size();
  const auto ask = [&](size_t done, bool last, BatchPart* part) {
    const size_t from = std::max(first, done);
    const size_t to = std::max(from, std::min(end, done + part->tokens.size()));
    part->scored = {from - done, targets.subspan(from - first, to - from), sink, from - first};
    if (last && end == tokens.size()) part->rows = LogitRows::kNone;
  };
  return eval_chunks(state, tokens, ask, nullptr);
}

Status sessions_eval(std::span<Session* const> sessions, const int32_t* tokens,
                     const size_t* n_tokens, float* logits) {
  return eval_pieces({sessions, tokens, n_tokens}, logits);
}

}  // namespace moe
