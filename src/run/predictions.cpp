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
  c.take(&hidden_, static_cast<int64_t>(kMost) * config.d_model);
}

void Predictions::keep(const float* hidden, size_t n) {
  std::copy_n(hidden, n * width_, hidden_.data() + n_kept_ * width_);
  n_kept_ += n;
}

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

/// The layer of a session, in the session's own pass.
class PredictionPass {
 public:
  explicit PredictionPass(SessionState& state)
      : state_(state),
        work_(state.work()),
        d_(state.model.config().d_model),
        layer_(state.model.config().n_main_layers()) {}

  /// Sets the hidden states from row `first` on: norm(x) of n rows, or x if the layer reads them as
  /// they are.
  Status read(const float* x, size_t n, const Norm& norm, size_t first) {
    float* const to = work_.hidden + static_cast<int64_t>(first) * d_;
    if (state_.model.config().raw_predictions) {
      std::copy_n(x, n * static_cast<size_t>(d_), to);
      return {};
    }
    BatchPart part = part_of({});
    return run_and_wait(state_, batch_of({&part, 1}, 0), [&] {
      state_.device.norm(state_.stream(), {x, to, static_cast<int32_t>(n), d_, norm, false, 1});
    });
  }
  /// Runs the layer on these hidden states and the tokens after them. `place`: of the first, in
  /// its cache.
  Status run(int32_t place, std::span<const int32_t> tokens) {
    const auto most = static_cast<size_t>(state_.pass_rows());
    for (size_t done = 0; done < tokens.size(); done += n_rows_) {
      n_rows_ = std::min(most, tokens.size() - done);
      MOE_TRY(run_rows(place + static_cast<int32_t>(done), tokens.subspan(done, n_rows_),
                       work_.hidden + static_cast<int64_t>(done) * d_));
    }
    return {};
  }
  /// After run(): the most probable token after the last row's.
  Status guess(int32_t* token) {
    BatchPart part = part_of({});
    const Batch batch = batch_of({&part, 1}, 0);
    const Norm& norm = weights().norm;
    float* const logits = work_.logits;
    MOE_TRY(run_and_wait(state_, batch, [&] { compute_head(state_, norm, last(), 1, logits); }));
    MOE_TRY(check_finite(this->logits()));
    *token = static_cast<int32_t>(largest_index(this->logits()));
    return {};
  }
  /// Those of the last guess.
  std::span<const float> logits() const {
    return {work_.logits, static_cast<size_t>(state_.model.config().n_outputs())};
  }
  /// Makes the last row's result the hidden state of the next run().
  Status chain() { return read(last(), 1, weights().norm, 0); }

 private:
  const PredictionWeights& weights() const { return state_.model.layer(layer_).prediction; }
  const float* last() const { return work_.x + (static_cast<int64_t>(n_rows_) - 1) * d_; }

  BatchPart part_of(std::span<const int32_t> tokens) const {
    BatchPart part;
    part.session = &state_;
    part.tokens = tokens;
    return part;
  }
  Batch batch_of(std::span<BatchPart> parts, size_t n_rows) const {
    return {state_, parts, work_.rows.data(), work_.caches.data(), static_cast<int32_t>(n_rows)};
  }

  Status run_rows(int32_t place, std::span<const int32_t> tokens, const float* hidden) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      work_.rows[i] = {0, place + static_cast<int32_t>(i), tokens[i]};
    }
    BatchPart part = part_of(tokens);
    const Batch batch = batch_of({&part, 1}, tokens.size());
    MOE_TRY(run_and_wait(state_, batch, [&] {
      join(batch, hidden);
      run_layers(state_, batch, layer_, layer_ + 1);
    }));
    if (cancel_asked(batch)) return Status::error(MOE_ERR_CANCELLED, "cancelled");
    return {};
  }

  // x = next(next_norm(embedding of the token)) + hidden(hidden_norm(hidden state)).
  void join(const Batch& batch, const float* hidden) {
    const ModelConfig& config = state_.model.config();
    const ModelWeights& model = state_.model.weights();
    const PredictionWeights& w = weights();
    Device& device = state_.device;
    Stream& stream = state_.stream();
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

  SessionState& state_;
  WorkMemory& work_;
  const int32_t d_;
  const int32_t layer_;
  size_t n_rows_ = 0;  // of the last run
};

// Runs the layer over the hidden states that are kept and those of the part but its last one, which
// is kept.
Status follow(SessionState& state, const BatchPart& part) {
  Predictions& own = state.predictions;
  const Norm& norm = state.model.weights().final_norm;
  const size_t n_kept = own.n_kept(), n = part.tokens.size();
  PredictionPass pass(state);
  MOE_TRY(pass.read(own.kept(), n_kept, norm, 0));
  MOE_TRY(pass.read(state.work().x, n - 1, norm, n_kept));
  const int32_t done = own.done();
  const int32_t last = part.position + static_cast<int32_t>(n) - 1;
  own.finish(last);
  own.keep(state.work().x + static_cast<int64_t>(n - 1) * state.model.config().d_model, 1);
  const int32_t* const text = state.tokens.room().data();
  return pass.run(own.place(done), {text + done + 1, n_kept + n - 1});
}

}  // namespace

void keep_hidden(SessionState& lead, const BatchPart& part, bool alone) {
  SessionState& state = *part.session;
  Predictions& own = state.predictions;
  if (!own.any()) return;
  const size_t n = part.tokens.size();
  const int32_t d = state.model.config().d_model;
  const float* const hidden = lead.work().x + int64_t{part.first_row} * d;
  if (own.end() != part.position) own.restart(part.position);
  std::copy(part.tokens.begin(), part.tokens.end(), state.tokens.room().data() + part.position);
  if (own.has_room(n)) return own.keep(hidden, n);
  if (alone && own.follows) {
    if (!follow(state, part).ok()) own.forget_rows();
    return;
  }
  const size_t n_last = n <= Predictions::kMost ? n : 1;
  own.restart(part.position + static_cast<int32_t>(n - n_last));
  own.keep(hidden + static_cast<int64_t>(n - n_last) * d, n_last);
}

size_t predict(SessionState& state, size_t n, int32_t* out, float* logits) {
  Predictions& own = state.predictions;
  const int32_t position = state.position();
  if (own.n_kept() == 0 || own.end() != position) return 0;
  const PassLease lease(state);
  if (!lease.status().ok()) return 0;
  PredictionPass pass(state);
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
