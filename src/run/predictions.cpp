// SPDX-License-Identifier: MIT
// Runs the layer that guesses tokens: over the hidden states of passes, and on its own guesses.
#include "src/run/predictions.h"

#include <algorithm>

#include "src/run/head.h"
#include "src/run/layers.h"
#include "src/run/logits.h"

namespace moe {

void Predictions::lay_out(Carver& c, const ModelConfig& config) {
  if (config.n_predictions == 0) return;
  width_ = static_cast<size_t>(config.d_model);
  c.take(&hidden_, static_cast<int64_t>(kMost + 1) * config.d_model);
}

void Predictions::keep(const float* hidden, size_t n) {
  std::copy_n(hidden, n * width_, hidden_.data() + n_kept_ * width_);
  n_kept_ += n;
}

void Predictions::set_aside(const float* hidden) {
  std::copy_n(hidden, width_, hidden_.data() + kMost * width_);
}

void Predictions::keep_aside() { keep(hidden_.data() + kMost * width_, 1); }

void Predictions::rewind(int32_t position) {
  if (position >= end()) return;
  if (position <= begin_) {
    restart(position);
  } else if (position > done_) {
    n_kept_ = static_cast<size_t>(position - done_);
  } else {
    finish(position);
  }
}

void Predictions::copy_from(const Predictions& other, int32_t position) {
  std::copy_n(other.hidden_.data(), other.n_kept_ * width_, hidden_.data());
  begin_ = other.begin_;
  done_ = other.done_;
  n_kept_ = other.n_kept_;
  rewind(position);
}

std::span<float> Predictions::restore(int32_t begin, int32_t done, size_t n_kept) {
  begin_ = begin;
  done_ = done;
  n_kept_ = n_kept;
  return hidden_.first(n_kept * width_);
}

namespace {

/// The layer of a session, in the memory of `lead`.
class PredictionPass {
 public:
  PredictionPass(SessionState& lead, SessionState& session)
      : lead_(lead),
        session_(session),
        work_(lead.work()),
        d_(lead.model.config().d_model),
        layer_(lead.model.config().n_main_layers()) {}

  /// Sets the hidden states from row `first` on: norm(x) of n rows, or x if the layer reads them as
  /// they are.
  Status read(const float* x, size_t n, const Norm& norm, size_t first) {
    float* const to = work_.hidden + static_cast<int64_t>(first) * d_;
    if (n == 0) return {};
    if (lead_.model.config().raw_predictions) {
      std::copy_n(x, n * static_cast<size_t>(d_), to);
      return {};
    }
    BatchPart part = part_of({});
    return run_and_wait(lead_, batch_of({&part, 1}, 0), [&] {
      lead_.device.norm(lead_.stream(), {x, to, static_cast<int32_t>(n), d_, norm, false, 1});
    });
  }
  /// Runs the layer on the hidden states from row `first` on and the tokens after them. `place`: of
  /// the first, in the session's cache.
  Status run(int32_t place, std::span<const int32_t> tokens, size_t first = 0) {
    const auto most = static_cast<size_t>(lead_.pass_rows());
    for (size_t done = 0; done < tokens.size(); done += n_rows_) {
      n_rows_ = std::min(most, tokens.size() - done);
      MOE_TRY(run_rows(place + static_cast<int32_t>(done), tokens.subspan(done, n_rows_),
                       work_.hidden + static_cast<int64_t>(first + done) * d_));
    }
    return {};
  }
  /// After run(): the most probable token after the last row's.
  Status guess(int32_t* token) {
    BatchPart part = part_of({});
    const Batch batch = batch_of({&part, 1}, 0);
    const Norm& norm = weights().norm;
    float* const logits = work_.logits;
    MOE_TRY(run_and_wait(lead_, batch, [&] { compute_head(lead_, norm, last(), 1, logits); }));
    MOE_TRY(check_finite(this->logits()));
    *token = static_cast<int32_t>(largest_index(this->logits()));
    return {};
  }
  /// Those of the last guess.
  std::span<const float> logits() const {
    return {work_.logits, static_cast<size_t>(lead_.model.config().n_outputs())};
  }
  /// Makes the last row's result the hidden state of the next run().
  Status chain() { return read(last(), 1, weights().norm, 0); }

 private:
  const PredictionWeights& weights() const { return lead_.model.layer(layer_).prediction; }
  const float* last() const { return work_.x + (static_cast<int64_t>(n_rows_) - 1) * d_; }

  BatchPart part_of(std::span<const int32_t> tokens) const {
    BatchPart part;
    part.session = &session_;
    part.tokens = tokens;
    return part;
  }
  Batch batch_of(std::span<BatchPart> parts, size_t n_rows) const {
    return {lead_, parts, work_.rows.data(), work_.caches.data(), static_cast<int32_t>(n_rows)};
  }

  Status run_rows(int32_t place, std::span<const int32_t> tokens, const float* hidden) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      work_.rows[i] = {0, place + static_cast<int32_t>(i), tokens[i]};
    }
    BatchPart part = part_of(tokens);
    const Batch batch = batch_of({&part, 1}, tokens.size());
    MOE_TRY(run_and_wait(lead_, batch, [&] {
      join(batch, hidden);
      run_layers(lead_, batch, layer_, layer_ + 1);
    }));
    if (cancel_asked(batch)) return Status::error(MOE_ERR_CANCELLED, "cancelled");
    return {};
  }

  // x = next(next_norm(embedding of the token)) + hidden(hidden_norm(hidden state)).
  void join(const Batch& batch, const float* hidden) {
    const ModelConfig& config = lead_.model.config();
    const ModelWeights& model = lead_.model.weights();
    const PredictionWeights& w = weights();
    Device& device = lead_.device;
    Stream& stream = lead_.stream();
    const int32_t n = batch.n_rows;
    if (RowSource* table = model.embedding_rows; table != nullptr) {
      device.embed_from(stream, *table, d_, batch.rows, n, config.embedding_multiplier,
                        work_.embedded);
    } else {
      device.embed(stream, model.embedding, Matrix(), batch.rows, n, config.embedding_multiplier,
                   work_.embedded);
    }
    const LinearOut next = {&w.next, nullptr, work_.x, d_, false, 1};
    device.linear(stream, {work_.embedded, d_, n, d_, w.next_norm, &next, 1});
    const LinearOut before = {&w.hidden, nullptr, work_.x, d_, true, 1};
    device.linear(stream, {hidden, d_, n, d_, w.hidden_norm, &before, 1});
  }

  SessionState& lead_;
  SessionState& session_;
  WorkMemory& work_;
  const int32_t d_;
  const int32_t layer_;
  size_t n_rows_ = 0;  // of the last run
};

// Whether the layer runs on the part at once: its hidden states are too many to be kept.
bool runs_on(const BatchPart& part) {
  const Predictions& own = part.session->predictions;
  return own.any() && own.follows && !own.has_room(part.tokens.size());
}

// Runs the layer on the hidden states that are kept and those of the part but its last one, which
// is kept then. The part's end at row `end`; those before them are not needed any more.
Status follow(SessionState& lead, const BatchPart& part, size_t end, bool read) {
  SessionState& state = *part.session;
  Predictions& own = state.predictions;
  PredictionPass pass(lead, state);
  const size_t n = part.tokens.size() - 1, n_kept = own.n_kept();
  const size_t first = end - n - n_kept;
  const Status status = pass.read(own.kept(), n_kept, lead.model.weights().final_norm, first);
  const int32_t done = own.done();
  own.finish(part.position + static_cast<int32_t>(n));
  own.keep_aside();
  MOE_TRY(status);
  if (!read) return Status::error(MOE_ERR_CANCELLED, "cancelled");
  const int32_t* const text = state.tokens.room().data();
  return pass.run(own.place(done), {text + done + 1, n_kept + n}, first);
}

// The layer overwrites the hidden states of the pass, so those of all parts are read before it runs
// on the first one. The kept ones of a part then take the place of others that it has run on.
void follow_all(SessionState& lead, std::span<const BatchPart> parts) {
  const int32_t d = lead.model.config().d_model;
  size_t end = Predictions::kMost;
  bool read = true;
  for (const BatchPart& part : parts) {
    if (!runs_on(part)) continue;
    const size_t n = part.tokens.size() - 1;
    const float* const hidden = lead.work().x + int64_t{part.first_row} * d;
    PredictionPass pass(lead, *part.session);
    read = read && pass.read(hidden, n, lead.model.weights().final_norm, end).ok();
    part.session->predictions.set_aside(hidden + static_cast<int64_t>(n) * d);
    end += n;
  }
  end = Predictions::kMost;
  for (const BatchPart& part : parts) {
    if (!runs_on(part)) continue;
    end += part.tokens.size() - 1;
    if (!follow(lead, part, end, read).ok()) part.session->predictions.forget_rows();
  }
}

}  // namespace

void keep_hidden(SessionState& lead, std::span<const BatchPart> parts) {
  const int32_t d = lead.model.config().d_model;
  bool runs = false;
  for (const BatchPart& part : parts) {
    SessionState& state = *part.session;
    Predictions& own = state.predictions;
    if (!own.any()) continue;
    const size_t n = part.tokens.size();
    own.rewind(part.position);  // a call that failed has run passes that did not count
    if (own.end() != part.position) own.restart(part.position);
    std::copy(part.tokens.begin(), part.tokens.end(), state.tokens.room().data() + part.position);
    if (runs_on(part)) {
      runs = true;
      continue;
    }
    size_t n_last = n;
    if (!own.has_room(n)) {
      n_last = n <= Predictions::kMost ? n : 1;
      own.restart(part.position + static_cast<int32_t>(n - n_last));
    }
    own.keep(lead.work().x + (int64_t{part.first_row} + static_cast<int64_t>(n - n_last)) * d,
             n_last);
  }
  if (runs) follow_all(lead, parts);
}

size_t predict(SessionState& state, size_t n, int32_t* out, float* logits) {
  Predictions& own = state.predictions;
  const int32_t position = state.position();
  if (own.n_kept() == 0 || own.end() != position) return 0;
  const PassLease lease(state);
  if (!lease.status().ok()) return 0;
  PredictionPass pass(state, state);
  const size_t n_kept = own.n_kept();
  const int32_t* const text = state.tokens.room().data();
  Status status = pass.read(own.kept(), n_kept, state.model.weights().final_norm, 0);
  if (status.ok()) {
    status = pass.run(own.place(own.done()), {text + own.done() + 1, n_kept});
  }
  own.finish(position);
  size_t n_guessed = 0;
  while (status.ok() && n_guessed < n) {
    if (n_guessed > 0) {
      const int32_t place = own.place(position) + static_cast<int32_t>(n_guessed) - 1;
      status = pass.chain();
      if (status.ok()) status = pass.run(place, {&out[n_guessed - 1], 1});
    }
    if (status.ok()) status = pass.guess(&out[n_guessed]);
    if (!status.ok()) break;
    if (logits != nullptr) logits = std::copy(pass.logits().begin(), pass.logits().end(), logits);
    ++n_guessed;
  }
  if (!status.ok()) own.forget_rows();  // they may not be finite
  return n_guessed;
}

}  // namespace moe
