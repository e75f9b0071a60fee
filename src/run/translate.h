// SPDX-License-Identifier: MIT
#pragma once
// Encoder-decoders: reads a source once and generates texts by beam search.

#include "src/run/beam.h"
#include "src/run/session.h"

namespace moe {

/// Reads a source, replacing the previous one, and empties the session; later tokens attend to the
/// source. hidden: (tokens, d_model) for the encoder's output, or null. Invalid arguments change
/// nothing; after any other failure there is no source.
/// MOE_ERR_UNSUPPORTED for a model that is not an encoder-decoder, MOE_ERR_TOO_LONG for more tokens
/// than its source or the session's chunk allows.
Status read_source(Session& session, std::span<const int32_t> tokens, float* hidden = nullptr);

struct TranslateOptions {
  BeamOptions search;                    // beam: at most the session's max_beam
  std::span<const int32_t> prefix = {};  // forced beginning of every text; empty: the model's
  /// Before each token; false stops with MOE_ERR_CANCELLED. May be null.
  bool (*progress)(void* user, int32_t n_tokens, int32_t most) = nullptr;
  void* user = nullptr;
};

/// Texts of a search, best first.
struct Translations {
  struct Text {
    const int32_t* tokens = nullptr;  // in `tokens`
    size_t n_tokens = 0;
    float score = 0;
  };
  explicit Translations(const Allocator& allocator) : memory(allocator) {}
  void lay_out(Carver& c, int64_t n_texts, int64_t n_tokens) {
    c.take(&texts, n_texts);
    c.take(&tokens, n_tokens);
  }
  std::span<Text> texts;
  std::span<int32_t> tokens;  // of each text, the EOS last
  HostBuffer memory;
};

/// The best texts for a source. Afterwards the session has read it and is empty. Counted routing
/// covers the source and all hypotheses. The previous contents of `out` are lost, also on failure.
Status translate(Session& session, std::span<const int32_t> source, const TranslateOptions& options,
                 Translations* out);

}  // namespace moe
