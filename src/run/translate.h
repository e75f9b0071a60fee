#pragma once
// Encoder-decoders: a source is read once, and a beam search makes texts of it.

#include "src/run/beam.h"
#include "src/run/session.h"

namespace moe {

/// The session reads a source in place of what it had: it is empty, and what it evaluates from now
/// on sees the source. hidden: (tokens, d_model) for the encoder's output, or null. After a failure
/// that is not one of the arguments there is no source.
/// MOE_ERR_UNSUPPORTED for a model that is no encoder-decoder, MOE_ERR_TOO_LONG for more tokens
/// than its source, or the session's chunk, may have.
Status read_source(Session& session, std::span<const int32_t> tokens, float* hidden = nullptr);

struct TranslateOptions {
  BeamOptions search;                    // beam: at most the session's max_beam
  std::span<const int32_t> prefix = {};  // what every text begins with; empty: the model's own
  /// After each token; false stops with MOE_ERR_CANCELLED. May be null.
  bool (*progress)(void* user, int32_t n_tokens, int32_t most) = nullptr;
  void* user = nullptr;
};

/// Texts of a search, best first.
struct Translations {
  struct Text {
    const int32_t* tokens;  // in `tokens`
    size_t n_tokens;
    float score;
    int32_t reserved;  // 0
  };
  explicit Translations(const Allocator& allocator) : tokens(allocator), texts(allocator) {}
  Array<int32_t> tokens;  // of each text, the EOS last
  Array<Text> texts;
};

/// The best texts for a source. The session has then read it and is empty. Its counted routing is
/// that of the source and of all hypotheses. What `out` held is gone, after a failure too.
Status translate(Session& session, std::span<const int32_t> source, const TranslateOptions& options,
                 Translations* out);

}  // namespace moe
