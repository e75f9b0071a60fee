// SPDX-License-Identifier: MIT
#pragma once
// A session's part of the layer that guesses tokens (ModelConfig::n_predictions): which rows its
// keys and values are of, and the hidden states that it reads next. Private to src/run.

#include "src/base/carver.h"
#include "src/model/config.h"
#include "src/run/draft.h"

namespace moe {

struct BatchPart;
struct SessionState;

/// The layer has a row for each token of a stretch of the text, made of its hidden state and the
/// token after it. Its positions count from the beginning of the stretch, which attention with
/// rotated positions does not notice, so that the stretch may begin anywhere: behind a text that
/// was read without guessing. Guesses change no result, so the row before a token that a rewind has
/// dropped stays, though the token after it is another one then.
class Predictions {
 public:
  static constexpr size_t kMost = kMaxDraft + 1;  // hidden states kept: of a pass with a draft

  /// Host memory; nothing without such a layer.
  void lay_out(Carver& c, const ModelConfig& config);
  bool any() const { return !hidden_.empty(); }

  /// Whether longer passes run the layer too, so that it sees the whole text. Otherwise it costs
  /// nothing, and only the last hidden states are kept.
  bool follows = false;

  /// The position after the last hidden state.
  int32_t end() const { return done_ + static_cast<int32_t>(n_kept_); }
  /// The position of the first row that is missing.
  int32_t done() const { return done_; }
  /// Where the stretch begins.
  int32_t begin() const { return begin_; }
  /// `position` in the layer's cache.
  int32_t place(int32_t position) const { return position - begin_; }
  /// Rows in the layer's cache.
  size_t n_rows() const { return static_cast<size_t>(done_ - begin_); }
  size_t n_kept() const { return n_kept_; }
  /// (n_kept, d_model), of the positions from done() on, before the final norm.
  const float* kept() const { return hidden_.data(); }
  bool has_room(size_t n) const { return n_kept_ + n <= kMost; }

  /// Begins a new stretch.
  void restart(int32_t position) {
    begin_ = done_ = position;
    n_kept_ = 0;
  }
  /// Appends n hidden states, for which there is room.
  void keep(const float* hidden, size_t n);
  /// The hidden state of a pass's last token, which is kept when the others have been read.
  void set_aside(const float* hidden);
  void keep_aside();
  /// The rows of all hidden states up to `position` are there.
  void finish(int32_t position) {
    done_ = position;
    n_kept_ = 0;
  }
  /// Forgets the rows, but no hidden state.
  void forget_rows() { begin_ = done_; }
  void rewind(int32_t position);
  /// Becomes that of another session of the model after the first `position` tokens, but for the
  /// rows, of which n_rows() are to be copied.
  void copy_from(const Predictions& other, int32_t position);
  /// Becomes one with rows from `begin` to `done` and n_kept hidden states after them, whose
  /// numbers are to be filled in.
  std::span<float> restore(int32_t begin, int32_t done, size_t n_kept);

 private:
  std::span<float> hidden_;  // (kMost + 1, d_model): the last one is aside
  size_t width_ = 0;         // d_model
  size_t n_kept_ = 0;
  int32_t begin_ = 0;
  int32_t done_ = 0;
};

/// After a pass over parts of texts, in the memory of `lead`, which still holds their hidden
/// states: keeps them, or runs the layer over those of the texts that it follows.
void keep_hidden(SessionState& lead, std::span<const BatchPart> parts);

/// Runs the layer over the hidden states that are kept, and guesses the n tokens after the next
/// one, which stands behind the session's tokens in their room. Returns how many it has guessed:
/// none without a hidden state of the last token, or if the layer fails. logits: null, or their
/// destination (n, vocab_size).
size_t predict(SessionState& state, size_t n, int32_t* out, float* logits = nullptr);

}  // namespace moe
