#pragma once
// What a model file says must be computed. Plain data, the same words as in formats/README.md.
// Nothing here names an architecture: every difference between models is a field.

#include <cstdint>

#include "kernels/rope.h"
#include "kernels/router/router.h"
#include "src/base/array.h"
#include "src/base/string.h"

namespace moe {

enum class PositionKind : uint8_t { kNone, kRope, kLearned };
enum class FfnKind : uint8_t { kDense, kMoe };
/// What a model says: the next token, or with an encoder the token that is there; the class of a
/// text, from its first token; a tag for each token; where an answer begins and ends; nothing.
enum class HeadKind : uint8_t { kTokens, kClasses, kTags, kSpan, kNone };

inline constexpr int32_t kMaxLayers = 4096;

/// Norms of a residual block: x = post(x + multiplier * out(f(pre(x)))). Pre-norm alone is the
/// default; `out` alone is OLMo 2's post-norm, pre and out together are sandwich norms, and `post`
/// alone is the original Transformer's.
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
  int32_t window = 0;    // positions seen, the query's own included; 0: all
  bool causal = true;    // false: a token sees the whole text, and the model is an encoder
  float multiplier = 0;  // of the scores; 0: 1 / sqrt(head_dim)
  RopeConfig rope;
  QkNorm qk_norm = QkNorm::kNone;
  bool sub_norm = false;  // SubLN before the output projection
  bool sinks = false;     // one learned sink logit per head
  // Multi-head latent attention (DeepSeek-V2, Liu et al. 2024, section 2.1): K and V of every head
  // come from so many numbers, normed; and rope.dims further ones are added to every K. 0: none.
  int32_t latent = 0;
  int32_t q_latent = 0;  // Q comes from so many numbers, normed; 0: from d_model
  float score_cap = 0;   // scores become cap * tanh(score / cap), after the multiplier; 0: off
  float qkv_clip = 0;    // q, k and v are cut to +-clip, behind qk_norm; 0: off
};

struct SharedExpertConfig {
  int32_t d_ff = 0;    // 0: no shared expert
  bool gated = false;  // sigmoid(x . g) in front
};

struct MoeConfig {
  int32_t n_experts = 0;
  int32_t n_subheads = 1;   // MH-MoE: experts and router work on d_model / n_subheads
  bool head = false;        // MH-MoE's matrix in front of the sub-tokens
  bool merge = false;       // and behind them
  int32_t n_sublayers = 0;  // X-MoE: blocks v + W2 act(W1 norm(v)) per expert; 0: one plain FFN
  RouterConfig router;
  SharedExpertConfig shared;
};

struct FfnConfig {
  BlockNorms norms;
  FfnKind kind = FfnKind::kDense;
  int32_t d_ff = 0;
  bool gated = false;
  bool sub_norm = false;  // SubLN before the down projection
  ActivationConfig act;
  MoeConfig moe;  // kMoe only
};

/// Attention, in a decoder that has an encoder attention to its output, and then a feed-forward
/// block; or some of them alone.
struct LayerConfig {
  bool has_attention = true;  // false: `attention` is default-constructed
  bool has_ffn = true;        // the same
  bool has_cross = false;     // the same for `cross`
  AttentionConfig attention;
  AttentionConfig cross;  // not causal: a token sees the whole source
  FfnConfig ffn;
};

/// outputs = W h + b, or W norm(act(dense(h))) + b; W has a row for each output.
struct HeadConfig {
  HeadKind kind = HeadKind::kTokens;
  int32_t n_labels = 0;  // rows of W, unless they are tokens
  bool dense = false;    // d_model to d_model, and `act` behind it
  bool norm = false;     // behind `act`
  Activation act = Activation::kGelu;
  bool tied_bias = false;  // of a matrix that is the embedding, without `dense`
};

struct ModelConfig {
  explicit ModelConfig(const Allocator& allocator = system_allocator())
      : layers(allocator), eos_token_ids(allocator), name(allocator) {}

  int32_t vocab_size = 0;
  int32_t d_model = 0;
  int32_t context_length = 0;
  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-5f;
  PositionKind positions = PositionKind::kRope;
  bool tie_embeddings = false;
  bool embedding_norm = false;
  bool final_norm = true;
  HeadConfig head;
  float embedding_multiplier = 1;
  float residual_multiplier = 1;
  float logit_multiplier = 1;
  float logit_cap = 0;        // as score_cap
  int32_t bos_token_id = -1;  // -1: none
  int32_t pad_token_id = -1;
  int32_t mask_token_id = -1;  // stands for a token that an encoder is to find
  bool add_bos = false;
  // An encoder-decoder: the first layers are an encoder's, which reads the source, and the others a
  // decoder's, which makes the text.
  int32_t n_encoder_layers = 0;  // 0: the model is none, and the fields below have no meaning
  int32_t source_length = 0;     // tokens that the encoder takes; context_length is the decoder's
  bool encoder_norm = false;     // behind the encoder's last layer
  int32_t start_token_id = -1;   // in front of every text that the decoder makes
  int32_t forced_token_id = -1;  // the text's first token where it is given; -1: it is not
  Array<LayerConfig> layers;
  Array<int32_t> eos_token_ids;
  String name;

  int32_t n_layers() const { return static_cast<int32_t>(layers.size()); }
  int32_t n_outputs() const { return head.kind == HeadKind::kTokens ? vocab_size : head.n_labels; }
  bool is_encoder_decoder() const { return n_encoder_layers > 0; }
  /// An encoder alone.
  bool is_encoder() const {
    if (is_encoder_decoder()) return false;
    for (const LayerConfig& layer : layers) {
      if (layer.has_attention && !layer.attention.causal) return true;
    }
    return false;
  }
  /// The BOS token where texts begin with it, otherwise -1.
  int32_t begin_id() const { return add_bos ? bos_token_id : -1; }
};

/// Every range and every relation between fields (reliability: zero sizes, k > N, heads that do not
/// divide ...). MOE_ERR_RANGE or MOE_ERR_SHAPE with a text that names the field and the layer.
Status validate(const ModelConfig& config);

}  // namespace moe
