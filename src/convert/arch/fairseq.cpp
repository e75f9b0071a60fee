// SPDX-License-Identifier: MIT
// Reads encoder and decoder from fairseq's options, locates their tensors, and computes sinusoidal
// positions.
#include "src/convert/arch/fairseq.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "formats/import/failure.h"
#include "src/convert/arch/copies.h"

namespace moe {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxDerived = int64_t{1} << 28;

constexpr const char* kDerived = "embed_positions.derived";  // derived here
constexpr Place kPositions = {.skipped = kFairseqFirstPosition};

constexpr TensorName kEncoder[] = {
    {"embedding.weight", "encoder.embed_tokens.weight"},
    {"position_embedding.weight", "encoder.embed_positions.derived"},
    {"position_embedding.weight", "encoder.embed_positions.weight", kPositions},
    {"embedding_norm.weight", "encoder.layernorm_embedding.weight"},
    {"embedding_norm.bias", "encoder.layernorm_embedding.bias"},
    {"final_norm.weight", "encoder.layer_norm.weight"},
    {"final_norm.bias", "encoder.layer_norm.bias"}};

constexpr TensorName kDecoder[] = {
    {"embedding.weight", "decoder.embed_tokens.weight"},
    {"position_embedding.weight", "decoder.embed_positions.derived"},
    {"position_embedding.weight", "decoder.embed_positions.weight", kPositions},
    {"embedding_norm.weight", "decoder.layernorm_embedding.weight"},
    {"embedding_norm.bias", "decoder.layernorm_embedding.bias"},
    {"final_norm.weight", "decoder.layer_norm.weight"},
    {"final_norm.bias", "decoder.layer_norm.bias"},
    {"head.weight", "decoder.output_projection.weight"}};

constexpr TensorName kSource[] = {
    {"source_position_embedding.weight", "encoder.embed_positions.derived"},
    {"source_position_embedding.weight", "encoder.embed_positions.weight", kPositions},
    {"source_embedding_norm.weight", "encoder.layernorm_embedding.weight"},
    {"source_embedding_norm.bias", "encoder.layernorm_embedding.bias"},
    {"encoder_norm.weight", "encoder.layer_norm.weight"},
    {"encoder_norm.bias", "encoder.layer_norm.bias"}};

constexpr TensorName kLayer[] = {
    {"attention.q.weight", "self_attn.q_proj.weight"},
    {"attention.q.bias", "self_attn.q_proj.bias"},
    {"attention.k.weight", "self_attn.k_proj.weight"},
    {"attention.k.bias", "self_attn.k_proj.bias"},
    {"attention.v.weight", "self_attn.v_proj.weight"},
    {"attention.v.bias", "self_attn.v_proj.bias"},
    {"attention.o.weight", "self_attn.out_proj.weight"},
    {"attention.o.bias", "self_attn.out_proj.bias"},
    {"cross_attention.q.weight", "encoder_attn.q_proj.weight"},
    {"cross_attention.q.bias", "encoder_attn.q_proj.bias"},
    {"cross_attention.k.weight", "encoder_attn.k_proj.weight"},
    {"cross_attention.k.bias", "encoder_attn.k_proj.bias"},
    {"cross_attention.v.weight", "encoder_attn.v_proj.weight"},
    {"cross_attention.v.bias", "encoder_attn.v_proj.bias"},
    {"cross_attention.o.weight", "encoder_attn.out_proj.weight"},
    {"cross_attention.o.bias", "encoder_attn.out_proj.bias"},
    {"attention_norm.weight", "self_attn_layer_norm.weight"},
    {"attention_norm.bias", "self_attn_layer_norm.bias"},
    {"attention_post_norm.weight", "self_attn_layer_norm.weight"},
    {"attention_post_norm.bias", "self_attn_layer_norm.bias"},
    {"cross_attention_norm.weight", "encoder_attn_layer_norm.weight"},
    {"cross_attention_norm.bias", "encoder_attn_layer_norm.bias"},
    {"cross_attention_post_norm.weight", "encoder_attn_layer_norm.weight"},
    {"cross_attention_post_norm.bias", "encoder_attn_layer_norm.bias"},
    {"ffn_norm.weight", "final_layer_norm.weight"},
    {"ffn_norm.bias", "final_layer_norm.bias"},
    {"ffn_post_norm.weight", "final_layer_norm.weight"},
    {"ffn_post_norm.bias", "final_layer_norm.bias"}};

// Sines of all frequencies, then cosines (Vaswani et al. 2017, in tensor2tensor's layout).
DerivedTensor sinusoids(std::string name, const char* key, int32_t n_positions, int32_t d) {
  if (int64_t{n_positions} * d > kMaxDerived) {
    fail(MOE_ERR_RANGE, "config.json: %s: %d positions of %d are too many", key, n_positions, d);
  }
  DerivedTensor out{std::move(name), {n_positions, d}, {}};
  out.values.resize(static_cast<size_t>(n_positions) * static_cast<size_t>(d));
  const int32_t half = d / 2;
  const double step = std::log(10000.0) / std::max(half - 1, 1);
  std::vector<double> frequencies(static_cast<size_t>(half));
  for (int32_t i = 0; i < half; ++i) frequencies[static_cast<size_t>(i)] = std::exp(-step * i);
  for (int32_t p = 0; p < n_positions; ++p) {
    float* row = out.values.data() + static_cast<size_t>(p) * static_cast<size_t>(d);
    for (int32_t i = 0; i < half; ++i) {
      const double angle = (p + kFairseqFirstPosition) * frequencies[static_cast<size_t>(i)];
      row[i] = static_cast<float>(std::sin(angle));
      row[half + i] = static_cast<float>(std::cos(angle));
    }
  }
  return out;
}

}  // namespace

std::span<const TensorName> fairseq_layer_names() { return kLayer; }

FairseqModel::FairseqModel(const Checkpoint& checkpoint)
    : checkpoint_(checkpoint),
      encodes_(checkpoint.find("encoder.embed_tokens.weight") != nullptr),
      decodes_(!encodes_ || checkpoint.find("decoder.embed_tokens.weight") != nullptr) {}

std::vector<FairseqSide> FairseqModel::sides() const {
  if (both()) return {kFairseqEncoder, kFairseqDecoder};
  return {main()};
}

std::span<const TensorName> FairseqModel::names() const {
  if (decodes_) return kDecoder;
  return kEncoder;
}

void FairseqModel::locate(std::span<const TensorName> layer_names, Imported* out) const {
  std::vector<TensorTable> tables;
  int32_t first = 0;
  for (const FairseqSide& side : sides()) {
    TensorTable& table = tables.emplace_back(side.tensor("layers.{l}."), first);
    table.add(names());
    if (both()) table.add(kSource);
    table.add(kLayer);
    table.add(layer_names);
    first += out->config.n_encoder_layers;
  }
  if (both()) return locate_by(std::move(tables[0]), std::move(tables[1]), checkpoint_, out);
  locate_by(std::move(tables[0]), checkpoint_, out);
}

AttentionConfig FairseqModel::attention(ConfigKeys* keys, const FairseqSide& side,
                                        int32_t d_model) const {
  const std::string key = side.key("attention_heads");
  AttentionConfig a;
  a.n_heads = a.n_kv_heads = keys->integer(key.c_str(), 1, kMaxWidth);
  keys->check_divides(key.c_str(), a.n_heads, main().key("embed_dim").c_str(), d_model);
  a.head_dim = d_model / a.n_heads;
  a.causal = side.causal;
  return a;
}

void FairseqModel::place_norms(bool in_front, LayerConfig* layer) const {
  layer->attention.norms = layer->ffn.norms = {in_front, false, !in_front};
}

void FairseqModel::push(const FairseqSide& side, LayerConfig layer, Imported* out) const {
  layer.has_cross = both() && side.causal;
  if (layer.has_cross) {
    layer.cross = layer.attention;
    layer.cross.causal = layer.cross.sub_norm = false;
  }
  check(out->config.layers.push(layer));
  out->cosine_widths.push_back(0);
  if (both() && !side.causal) ++out->config.n_encoder_layers;
}

int32_t FairseqModel::n_positions(const FairseqSide& side) const {
  const std::string name = side.tensor("embed_positions.weight");
  const SourceTensor* tensor = checkpoint_.find(name);
  if (tensor == nullptr) fail(MOE_ERR_NOT_FOUND, "tensor %s is missing", name.c_str());
  const auto& shape = tensor->shape;
  if (shape.size() == 2 && shape[0] > kFairseqFirstPosition && shape[0] <= kMaxWidth) {
    return static_cast<int32_t>(shape[0]) - kFairseqFirstPosition;
  }
  fail(MOE_ERR_SHAPE, "tensor %s: expected a matrix of more than %d rows, file has %s",
       name.c_str(), kFairseqFirstPosition, shape_text(shape).c_str());
}

// Call before allocating anything as wide as the config says.
void FairseqModel::check_width(const FairseqSide& side, int32_t d_model) const {
  const std::string name = side.tensor("embed_tokens.weight");
  const SourceTensor* tensor = checkpoint_.find(name);
  if (tensor == nullptr) fail(MOE_ERR_NOT_FOUND, "tensor %s is missing", name.c_str());
  if (tensor->shape.size() == 2 && tensor->shape[1] == d_model) return;
  fail(MOE_ERR_SHAPE, "tensor %s: expected (n, %d), file has %s", name.c_str(), d_model,
       shape_text(tensor->shape).c_str());
}

void FairseqModel::read_positions(ConfigKeys* keys, const FairseqSide& side, FairseqPositions kind,
                                  Imported* out) const {
  ModelConfig* c = &out->config;
  const char* const key = side.length_key();
  const int32_t said = keys->integer(key, 1024, 1, kMaxWidth);
  const int32_t n = kind == FairseqPositions::kLearned ? n_positions(side) : said;
  (both() && !side.causal ? c->source_length : c->context_length) = n;
  c->positions = kind == FairseqPositions::kNone ? PositionKind::kNone : PositionKind::kLearned;
  if (kind == FairseqPositions::kSinusoids) {
    check_width(side, c->d_model);
    out->derived.push_back(sinusoids(side.tensor(kDerived), key, n, c->d_model));
  }
}

DerivedTensor FairseqModel::learned_positions(const FairseqSide& side, int32_t d_model) const {
  const std::string name = side.tensor("embed_positions.weight");
  const int32_t n = n_positions(side);
  const SourceTensor& tensor = *checkpoint_.find(name);
  if (tensor.shape[1] != d_model) {
    fail(MOE_ERR_SHAPE, "tensor %s: expected (n, %d), file has %s", name.c_str(), d_model,
         shape_text(tensor.shape).c_str());
  }
  const auto width = static_cast<size_t>(d_model);
  DerivedTensor table{side.tensor(kDerived), {n, d_model}, {}};
  table.values.resize(static_cast<size_t>(n) * width);
  checkpoint_.read(tensor, kFairseqFirstPosition * width, table.values.size(), table.values.data());
  return table;
}

void FairseqModel::scale_positions(const FairseqSide& side, float scale, Imported* out) const {
  if (out->derived.empty()) {
    out->derived.push_back(learned_positions(side, out->config.d_model));
    out->ignored.push_back(side.tensor("embed_positions.weight"));
  }
  for (float& x : out->derived.back().values) x *= scale;
}

void FairseqModel::share_embeddings(ConfigKeys* keys, ModelConfig* config) const {
  const char* const key = "share_all_embeddings";
  if (!keys->boolean(key, false)) {
    fail(MOE_ERR_UNSUPPORTED,
         "config.json: %s: true is needed of a model with encoder and decoder, whose source, text "
         "and output have one embedding here",
         key);
  }
  config->tie_embeddings = true;
  config->pad_token_id = kFairseqFirstPosition - 1;
  config->start_token_id = kFairseqFirstPosition;
  check(config->eos_token_ids.push(kFairseqFirstPosition));
}

void FairseqModel::leave_out_copies(Imported* out) const {
  std::vector<std::string> copies;
  if (both()) copies.push_back(kFairseqEncoder.tensor("embed_tokens.weight"));
  if (out->config.tie_embeddings) copies.push_back(main().tensor("output_projection.weight"));
  for (const std::string& name : copies) {
    check_copy(checkpoint_, name, main().tensor("embed_tokens.weight"));
    out->ignored.push_back(name);
  }
}

}  // namespace moe
