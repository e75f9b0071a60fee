// SPDX-License-Identifier: MIT
#pragma once
// The computation that a model file specifies. Plain data, named as in formats/README.md. Nothing
// here names an architecture: every difference between models is a field.

#include <cstdint>

#include "kernels/mixers/table.h"
#include "kernels/rope.h"
#include "kernels/router/router.h"
#include "src/base/array.h"
#include "src/base/string.h"

namespace moe {

enum class PositionKind : uint8_t { kNone, kRope, kLearned };
enum class FfnKind : uint8_t { kDense, kMoe };
/// The predictions of a model: the next token (an encoder: the masked token), the class of a text
/// (from its first token or the mean over all), a tag per token, where an answer begins and ends,
/// or nothing.
enum class HeadKind : uint8_t { kTokens, kClasses, kTags, kSpan, kNone };

inline constexpr int32_t kMaxLayers = 4096;
inline constexpr uint32_t kMaxPrompts = 1024;

/// Norms of a residual block: x = post(x + multiplier * out(f(pre(x)))). The default is `pre` only;
/// `out` only is OLMo 2's post-norm, `pre` and `out` are sandwich norms, and `post` only is the
/// original Transformer.
struct BlockNorms {
  bool pre = true;
  bool out = false;
  bool post = false;
};

struct AttentionConfig {
  BlockNorms norms;
  int32_t n_heads = 0;
  int32_t n_kv_heads = 0;
  int32_t head_dim = 0;
  // Visible positions, including the query's own; 0: all. Without `causal` half of the others are
  // on each side.
  int32_t window = 0;
  bool causal = true;    // false: a token sees the whole text; the model is an encoder
  float multiplier = 0;  // scale of the scores; 0: 1 / sqrt(head_dim)
  RopeConfig rope;
  QkNorm qk_norm = QkNorm::kNone;
  bool sub_norm = false;  // SubLN before the output projection
  bool in_norms = false;  // q, k and v each read an RMSNorm of their own of the normed x
  bool sinks = false;     // one learned sink logit per head
  // Multi-head latent attention (DeepSeek-V2, Liu et al. 2024, section 2.1): kv_lora_rank, the
  // width of the normed latent from which K and V of every head are computed; rope.dims further
  // values are shared by every K, even where nothing is rotated (rope.kind none). 0: none.
  int32_t latent = 0;
  int32_t q_latent = 0;  // q_lora_rank: width of the normed latent that Q is computed from; 0: none
  float latent_eps = 0;  // of the norms of both latents; 0: the model's norm_eps
  float score_cap = 0;   // scores become cap * tanh(score / cap) after `multiplier`; 0: off
  float qkv_clip = 0;    // q, k and v are clipped to +-clip after qk_norm; 0: off
  // The concatenated heads are multiplied by sigmoid(G norm(x)) before sub_norm (Qiu et al. 2025,
  // arXiv 2505.06708).
  bool output_gate = false;
  bool gate_by_head = false;  // with output_gate: G has one row per head, for all its outputs
  bool v_norm = false;        // an RMSNorm of each head's value, without weights
  bool v_from_k = false;      // values are the keys before qk_norm and RoPE; there is no V matrix
  // The layer before this one whose keys and values are seen in place of own ones; -1: own.
  int32_t kv_layer = -1;
  bool shares_kv() const { return kv_layer >= 0; }
  int32_t n_gates() const {
    if (!output_gate) return 0;
    return gate_by_head ? n_heads : n_heads * head_dim;
  }
};

struct SharedExpertConfig {
  int32_t d_ff = 0;    // 0: no shared expert
  bool gated = false;  // scaled by sigmoid(x . g)
};

struct MoeConfig {
  int32_t n_experts = 0;
  int32_t n_subheads = 1;   // MH-MoE: experts and router work on d_model / n_subheads
  bool head = false;        // MH-MoE's head layer before the sub-tokens
  bool merge = false;       // merge layer after the experts
  int32_t n_sublayers = 0;  // X-MoE: blocks v + W2 act(W1 norm(v)) per expert; 0: one plain FFN
  RouterConfig router;
  SharedExpertConfig shared;
  // The shared expert and the experts are networks side by side with norms of their own: the sum
  // is shared_out_norm(shared(norm(x))) + experts_out_norm(experts(experts_norm(x))).
  bool apart = false;
  bool router_norm = false;   // the router reads an RMSNorm of its own of x
  bool expert_scale = false;  // an expert's output times a number of its own
};

struct FfnConfig {
  BlockNorms norms;
  FfnKind kind = FfnKind::kDense;
  int32_t d_ff = 0;
  bool gated = false;
  bool sub_norm = false;  // SubLN before the down projection
  bool in_norms = false;  // gate and up each read an RMSNorm of their own of the normed x
  ActivationConfig act;
  MoeConfig moe;  // kMoe only
};

/// A token mixer with a state (kernels/mixers), in place of attention or beside it.
struct MixerBlock {
  BlockNorms norms;
  MixerConfig mixer;
};

/// Attention, a mixer, in decoders with an encoder cross attention, and a feed-forward block; each
/// optional. A mixer with attention stands beside it: both read the same x, and both are added.
struct LayerConfig {
  bool has_attention = true;  // false: `attention` is default-constructed
  bool has_ffn = true;        // the same
  bool has_cross = false;     // the same for `cross`
  bool has_mixer = false;     // the same for `mixer`
  AttentionConfig attention;
  AttentionConfig cross;  // not causal: a token sees the whole source
  FfnConfig ffn;
  MixerBlock mixer;
  float multiplier = 1;  // of x after all blocks
};

/// How a text becomes one vector: the mean over all its tokens, or the vector of its first or last.
enum class Pooling : uint8_t { kMean, kFirst, kLast };

/// outputs = W h + b, or W norm(act(dense(h))) + b; W has one row per output.
struct HeadConfig {
  HeadKind kind = HeadKind::kTokens;
  int32_t n_labels = 0;  // rows of W, unless outputs are tokens
  bool dense = false;    // d_model to d_model, followed by `act`
  bool norm = false;     // after `act`
  Activation act = Activation::kGelu;
  bool tied_bias = false;             // only if W is the embedding and `dense` is false
  Pooling pooling = Pooling::kFirst;  // kClasses: h of a text; kFirst or kMean

  /// Models with this head are trained on pairs of texts too.
  bool reads_pairs() const { return kind == HeadKind::kClasses || kind == HeadKind::kSpan; }
  /// h is the mean over the text's tokens.
  bool of_mean() const { return kind == HeadKind::kClasses && pooling == Pooling::kMean; }
};

/// How the checkpoint's authors sample. Ranges are those of SamplingConfig; the model itself does
/// not use it.
struct SamplingAdvice {
  bool given = false;
  float temperature = -1;  // 0: the most probable token; below 0: not given
  int32_t top_k = 0;       // 0: off
#define MOE_SAMPLING_FILTER(name, off, range, text) float name = off;
#include "src/model/sampling_list.h"
  float repetition_penalty = 1;
  int32_t repetition_window = 0;  // tokens that are penalised; 0: the whole text
};

/// A text to put before the texts that become vectors. Both views are terminated.
struct Prompt {
  const char* name;
  const char* text;
};

/// The settings of a model that is made for vectors.
struct TextVectorConfig {
  explicit TextVectorConfig(const Allocator& allocator) : prompts(allocator) {}

  bool known = false;  // false: nothing is said, and the other fields are unused
  Pooling pooling = Pooling::kMean;
  bool normalise = false;       // to length 1
  int32_t max_tokens = 0;       // of a text; 0: as many as the context holds
  int32_t default_prompt = -1;  // an index of `prompts`; -1: none
  Array<Prompt> prompts;        // their memory belongs to the file, or to the importer
};

/// A vector of each token for each layer l (Gemma 3n and 4): u_l = multiplier * row of a table +
/// projection_multiplier * norm(projection of the token's embedding x). After its other blocks a
/// layer adds out_norm(down(act(gate(x)) * u_l)) to x.
struct LayerInputConfig {
  int32_t width = 0;  // of a layer's part; 0: there is none
  Activation act = Activation::kGeluTanh;
  float multiplier = 1;
  float projection_multiplier = 1;
  float projection_eps = 0;  // of the norm; 0: the model's norm_eps
};

/// Signs of inputs of one width: bit i % 8 of byte i / 8 says that input i is multiplied by -1. The
/// memory belongs to the file, or to the importer.
struct RotationSigns {
  int32_t width = 0;
  const uint8_t* bits = nullptr;
};

/// How inputs of matrices with BlobMatrix::rotated are rotated (kernels/hadamard.h).
struct RotationConfig {
  explicit RotationConfig(const Allocator& allocator) : signs(allocator) {}

  int32_t block = 0;           // 0: no matrix is rotated
  Array<RotationSigns> signs;  // ascending widths; empty: all signs are 1, for any width

  /// Null: none are given.
  const RotationSigns* signs_of(int32_t width) const {
    for (const RotationSigns& s : signs) {
      if (s.width == width) return &s;
    }
    return nullptr;
  }
  bool takes(int32_t width) const {
    return block > 0 && width % block == 0 && (signs.empty() || signs_of(width) != nullptr);
  }
};

struct ModelConfig {
  explicit ModelConfig(const Allocator& allocator = system_allocator())
      : text_vector(allocator),
        rotation(allocator),
        layers(allocator),
        eos_token_ids(allocator),
        name(allocator) {}

  int32_t vocab_size = 0;
  int32_t d_model = 0;
  int32_t context_length = 0;
  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-5f;
  PositionKind positions = PositionKind::kRope;
  bool tie_embeddings = false;
  bool embedding_norm = false;
  bool second_positions = false;  // the second of two texts has learned positions of its own
  bool final_norm = true;
  HeadConfig head;
  float embedding_multiplier = 1;
  float residual_multiplier = 1;
  float logit_multiplier = 1;
  float logit_cap = 0;        // as score_cap
  int32_t bos_token_id = -1;  // -1: none
  int32_t pad_token_id = -1;
  int32_t mask_token_id = -1;  // marks a token that an encoder is to predict
  bool add_bos = false;
  // Encoder-decoder: the first layers are the encoder, which reads the source; the others are the
  // decoder, which generates the text.
  int32_t n_encoder_layers = 0;  // 0: not an encoder-decoder; the fields below are unused
  int32_t source_length = 0;     // maximum source tokens; context_length is the decoder's
  bool encoder_norm = false;     // after the encoder's last layer
  int32_t start_token_id = -1;   // begins every text of the decoder
  int32_t forced_token_id = -1;  // forced first token of the text; -1: none
  SamplingAdvice sampling;
  TextVectorConfig text_vector;
  LayerInputConfig layer_input;
  RotationConfig rotation;
  Array<LayerConfig> layers;
  // The last layers guess tokens after the next one (multi-token prediction: Gloeckle et al. 2024,
  // DeepSeek-V3 2024, section 2.2), which only saves passes: no other result depends on them. From
  // the hidden state h of a token, after the final norm, and the embedding e of the token after it
  // such a layer computes next(next_norm(e)) + hidden(hidden_norm(h)), runs its blocks on that, and
  // its own norm and the model's head give the logits of the second token after the first one. What
  // its norm gives is h for the next guess. 0 or 1.
  int32_t n_predictions = 0;
  bool raw_predictions = false;  // h is that before the norm, the model's or the layer's own
  Array<int32_t> eos_token_ids;
  String name;

  int32_t n_layers() const { return static_cast<int32_t>(layers.size()); }
  /// Without those that guess.
  int32_t n_main_layers() const { return n_layers() - n_predictions; }
  bool embedding_is_head() const { return tie_embeddings && head.kind == HeadKind::kTokens; }
  int32_t n_outputs() const { return head.kind == HeadKind::kTokens ? vocab_size : head.n_labels; }
  bool is_encoder_decoder() const { return n_encoder_layers > 0; }
  /// Encoder only.
  bool is_encoder() const {
    if (is_encoder_decoder()) return false;
    for (const LayerConfig& layer : layers) {
      if (layer.has_attention && !layer.attention.causal) return true;
    }
    return false;
  }
  /// A session has a state beside its keys and values.
  bool has_mixers() const {
    for (const LayerConfig& layer : layers) {
      if (kHasMixers && layer.has_mixer) return true;
    }
    return false;
  }
  /// The BOS token if texts begin with it, otherwise -1.
  int32_t begin_id() const { return add_bos ? bos_token_id : -1; }
};

/// A part of a layer that only the CPU computes, as in "layer 3 multiplies its result"; or null.
const char* extra_of(const LayerConfig& layer);

/// Checks every range and relation between fields. MOE_ERR_RANGE or MOE_ERR_SHAPE, naming the field
/// and the layer.
Status validate(const ModelConfig& config);

}  // namespace moe
