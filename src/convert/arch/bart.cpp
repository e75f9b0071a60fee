// SPDX-License-Identifier: MIT
// BART (Lewis et al. 2020), mBART (Liu et al. 2020) and Marian (Junczys-Dowmunt et al. 2018) in
// `transformers`: encoder-decoders with one embedding for source, text and output.

#include <cmath>
#include <cstring>

#include "formats/import/failure.h"
#include "src/convert/arch/copies.h"
#include "src/convert/arch/decoder.h"
#include "src/convert/arch/fairseq.h"

namespace moe::arch::bart {
namespace {

constexpr int32_t kMaxWidth = 1 << 20;

constexpr int64_t kMaxDerived = int64_t{1} << 28;
constexpr const char* kPrefix = "model.";

// Derived here.
constexpr const char* kSourcePositions = "source_positions";
constexpr const char* kTargetPositions = "target_positions";
constexpr const char* kOutputBias = "output_bias";

constexpr TensorName kModel[] = {
    {"embedding.weight", "model.shared.weight"},
    {"embedding.weight", "lm_head.weight"},
    {"embedding.weight", "model.encoder.embed_tokens.weight"},
    {"embedding.weight", "model.decoder.embed_tokens.weight"},
    {"source_position_embedding.weight", kSourcePositions},
    {"position_embedding.weight", kTargetPositions},
    {"source_embedding_norm.weight", "model.encoder.layernorm_embedding.weight"},
    {"source_embedding_norm.bias", "model.encoder.layernorm_embedding.bias"},
    {"embedding_norm.weight", "model.decoder.layernorm_embedding.weight"},
    {"embedding_norm.bias", "model.decoder.layernorm_embedding.bias"},
    {"encoder_norm.weight", "model.encoder.layer_norm.weight"},
    {"encoder_norm.bias", "model.encoder.layer_norm.bias"},
    {"final_norm.weight", "model.decoder.layer_norm.weight"},
    {"final_norm.bias", "model.decoder.layer_norm.bias"},
    {"head.tied_bias", kOutputBias}};

constexpr TensorName kFfn[] = {{"ffn.up.weight", "fc1.weight"},
                               {"ffn.up.bias", "fc1.bias"},
                               {"ffn.down.weight", "fc2.weight"},
                               {"ffn.down.bias", "fc2.bias"}};

/// Differences between the three.
struct Kind {
  bool pre = false;             // norms before each block, and one after the last layer
  bool embedding_norm = false;  // of source and text
  bool sinusoids = false;       // positions are a formula; otherwise a table with two leading rows
  bool sentencepiece = false;   // tokenizers of source and text are two files, which are not read
};
constexpr Kind kBart = {.embedding_norm = true};
constexpr Kind kMbart = {.pre = true, .embedding_norm = true};
constexpr Kind kMarian = {.sinusoids = true, .sentencepiece = true};

class EncoderDecoder {
 public:
  EncoderDecoder(const JsonNode& config, const Checkpoint& checkpoint, const Kind& kind)
      : keys_(config),
        checkpoint_(checkpoint),
        kind_(kind),
        prefix_(checkpoint.find("shared.weight") != nullptr ? "" : kPrefix) {}
  Imported read();

 private:
  ModelConfig& config() { return out_.config; }
  void read_sizes();
  void read_layers(const char* side, bool decoder);
  void read_positions(const char* side, const char* name, int32_t* length);
  void read_special_tokens();
  int32_t token(const char* key, const char* other);
  int32_t forced_token();
  void read_output_bias();
  void check_tables(std::span<const TensorName> names) const;
  void locate();

  ConfigKeys keys_;
  const Checkpoint& checkpoint_;
  const Kind& kind_;
  std::string prefix_;  // prefix of tensor names; empty if the model was saved without its head
  Imported out_;
};

void EncoderDecoder::read_sizes() {
  ModelConfig& c = config();
  c.vocab_size = keys_.integer("vocab_size", 1, 1 << 24);
  c.d_model = keys_.integer("d_model", 1, kMaxWidth);
  c.norm = NormKind::kLayer;
  c.positions = PositionKind::kLearned;
  c.tie_embeddings = true;
  c.embedding_norm = kind_.embedding_norm;
  c.encoder_norm = c.final_norm = kind_.pre;
  if (keys_.boolean("scale_embedding", false)) {
    c.embedding_multiplier = static_cast<float>(std::sqrt(static_cast<double>(c.d_model)));
  }
}

// side: "encoder" or "decoder".
void EncoderDecoder::read_layers(const char* side, bool decoder) {
  const std::string prefix = std::string(side) + "_";
  const int32_t d = config().d_model;
  LayerConfig layer;
  AttentionConfig& a = layer.attention;
  const std::string heads_key = prefix + "attention_heads";
  a.n_heads = a.n_kv_heads = keys_.integer(heads_key.c_str(), 1, d);
  keys_.check_divides(heads_key.c_str(), a.n_heads, "d_model", d);
  a.head_dim = d / a.n_heads;
  a.causal = decoder;
  a.norms = layer.ffn.norms = {kind_.pre, false, !kind_.pre};
  layer.has_cross = decoder;
  if (decoder) layer.cross = a;
  layer.cross.causal = false;
  layer.ffn.d_ff = keys_.integer((prefix + "ffn_dim").c_str(), 1, kMaxWidth);
  layer.ffn.act.kind = keys_.activation("activation_function");
  const int32_t n = keys_.integer((prefix + "layers").c_str(), 1, 1024);
  for (int32_t l = 0; l < n; ++l) {
    check(config().layers.push(layer));
    out_.cosine_widths.push_back(0);
  }
  if (!decoder) config().n_encoder_layers = n;
}

// Column i of Marian's table: sines of all frequencies, then cosines.
float sinusoid(int32_t position, int32_t i, int32_t d) {
  const int32_t n_sines = (d + 1) / 2, pair = i < n_sines ? i : i - n_sines;
  const double angle = position * std::pow(10000.0, -2.0 * pair / d);
  return static_cast<float>(i < n_sines ? std::sin(angle) : std::cos(angle));
}

// The rows from the first token's position on.
void EncoderDecoder::read_positions(const char* side, const char* name, int32_t* length) {
  const int32_t d = config().d_model;
  const auto width = static_cast<size_t>(d);
  DerivedTensor out{name, {0, d}, {}};
  if (kind_.sinusoids) {
    *length = keys_.integer("max_position_embeddings", 1, kMaxWidth);
    if (int64_t{*length} * d > kMaxDerived) {
      fail(MOE_ERR_RANGE, "config.json: max_position_embeddings %d for d_model %d is too much",
           *length, d);
    }
    out.values.resize(static_cast<size_t>(*length) * width);
    for (size_t i = 0; i < out.values.size(); ++i) {
      out.values[i] = sinusoid(static_cast<int32_t>(i / width), static_cast<int32_t>(i % width), d);
    }
  } else {
    constexpr int32_t kInFront = kFairseqFirstPosition;
    const std::string table = prefix_ + side + ".embed_positions.weight";
    const SourceTensor* tensor = checkpoint_.find(table);
    if (tensor == nullptr) fail(MOE_ERR_NOT_FOUND, "tensor %s is missing", table.c_str());
    const auto& shape = tensor->shape;
    if (shape.size() != 2 || shape[0] <= kInFront || shape[0] > kMaxWidth || shape[1] != d) {
      fail(MOE_ERR_SHAPE, "tensor %s: expected (n, %d) with n above %d, file has %s", table.c_str(),
           d, kInFront, shape_text(shape).c_str());
    }
    *length = static_cast<int32_t>(shape[0]) - kInFront;
    out.values.resize(static_cast<size_t>(*length) * width);
    checkpoint_.read(*tensor, kInFront * width, out.values.size(), out.values.data());
  }
  out.shape[0] = *length;
  out_.derived.push_back(std::move(out));
}

// From generation_config.json, otherwise config.json; -1: in neither. `other` if missing.
int32_t EncoderDecoder::token(const char* key, const char* other) {
  const int32_t last = config().vocab_size - 1;
  const int32_t own = keys_.integer(key, -1, 0, last);
  const char* const name = "generation_config.json";
  if (checkpoint_.has_document(name)) {
    const Json document = checkpoint_.document(name);
    const JsonNode node(document, name);
    if (node.has(key)) return static_cast<int32_t>(node.at(key).integer(0, last));
  }
  return own < 0 && other != nullptr ? token(other, nullptr) : own;
}

// If generation_config.json exists, only it decides.
int32_t EncoderDecoder::forced_token() {
  const char* const key = "forced_bos_token_id";
  const int32_t last = config().vocab_size - 1;
  const int32_t own = keys_.integer(key, -1, 0, last);
  const bool as_bos = keys_.boolean("force_bos_token_to_be_generated", false);  // of old files
  const char* const name = "generation_config.json";
  if (checkpoint_.has_document(name)) {
    const Json document = checkpoint_.document(name);
    const JsonNode node(document, name);
    return node.has(key) ? static_cast<int32_t>(node.at(key).integer(0, last)) : -1;
  }
  return own < 0 && as_bos ? keys_.integer("bos_token_id", 0, 0, last) : own;
}

void EncoderDecoder::read_special_tokens() {
  ModelConfig& c = config();
  c.pad_token_id = keys_.integer("pad_token_id", -1, 0, c.vocab_size - 1);
  if (keys_.has("eos_token_id")) read_eos(keys_.node("eos_token_id"), &c);
  c.forced_token_id = forced_token();
  c.start_token_id = token("decoder_start_token_id", "bos_token_id");
  if (c.start_token_id >= 0) return;
  fail(MOE_ERR_NOT_FOUND,
       "config.json: decoder_start_token_id: a token is expected there or in "
       "generation_config.json");
}

// Zero in most checkpoints; then it is omitted.
void EncoderDecoder::read_output_bias() {
  const char* const name = "final_logits_bias";
  const SourceTensor* tensor = checkpoint_.find(name);
  if (tensor == nullptr) return;
  const int32_t n = config().vocab_size;
  if (tensor->shape != std::vector<int64_t>{1, n}) {
    fail(MOE_ERR_SHAPE, "tensor %s: expected (1, %d), file has %s", name, n,
         shape_text(tensor->shape).c_str());
  }
  DerivedTensor bias{kOutputBias, {n}, std::vector<float>(static_cast<size_t>(n))};
  checkpoint_.read(*tensor, 0, bias.values.size(), bias.values.data());
  for (const float x : bias.values) config().head.tied_bias |= x != 0;
  if (config().head.tied_bias) out_.derived.push_back(std::move(bias));
}

// Source, text and output have one embedding; files may have it up to four times.
void EncoderDecoder::check_tables(std::span<const TensorName> names) const {
  const char* first = nullptr;
  for (const TensorName& n : names) {
    if (std::strcmp(n.slot, "embedding.weight") != 0) continue;
    if (first != nullptr) check_copy(checkpoint_, n.tensor, first);
    if (first == nullptr && checkpoint_.find(n.tensor) != nullptr) first = n.tensor;
  }
}

void EncoderDecoder::locate() {
  TensorTable encoder(prefix_ + "encoder.layers.{l}.");
  TensorTable decoder(prefix_ + "decoder.layers.{l}.", config().n_encoder_layers);
  std::vector<TensorName> names(std::begin(kModel), std::end(kModel));
  for (TensorName& n : names) {
    const size_t length = std::strlen(kPrefix);
    if (prefix_.empty() && std::strncmp(n.tensor, kPrefix, length) == 0) n.tensor += length;
  }
  check_tables(names);
  for (TensorTable* table : {&encoder, &decoder}) {
    table->add(names);
    table->add(fairseq_layer_names());
    table->add(kFfn);
  }
  locate_by(std::move(encoder), std::move(decoder), checkpoint_, &out_);
}

Imported EncoderDecoder::read() {
  keys_.require("is_encoder_decoder", true);
  keys_.require("tie_word_embeddings", true);
  keys_.require("share_encoder_decoder_embeddings", true);
  keys_.require("normalize_before", kind_.pre);
  keys_.require("add_final_layer_norm", kind_.pre);
  keys_.require("normalize_embedding", kind_.embedding_norm);
  keys_.require("static_position_embeddings", kind_.sinusoids);
  keys_.require("add_bias_logits", false);
  keys_.ignore({"activation_dropout", "classif_dropout", "classifier_dropout", "decoder_layerdrop",
                "encoder_layerdrop", "bos_token_id", "extra_pos_embeddings", "init_std",
                "max_position_embeddings", "num_hidden_layers", "num_labels", "output_past",
                "replacing_rate", "save_step", "student_decoder_layers", "student_encoder_layers"});
  read_sizes();
  keys_.require("decoder_vocab_size", config().vocab_size);
  read_layers("encoder", false);
  read_layers("decoder", true);
  read_positions("encoder", kSourcePositions, &config().source_length);
  read_positions("decoder", kTargetPositions, &config().context_length);
  read_special_tokens();
  read_output_bias();
  keys_.check_all_understood();
  check(config().name.assign(checkpoint_.name()));
  if (kind_.sentencepiece && !checkpoint_.has_document("tokenizer.json")) {
    read_generation_config(checkpoint_, &out_);
  } else {
    read_companions(checkpoint_, &out_);
  }
  out_.ignored = {"final_logits_bias", "*.embed_positions.weight", "*.embed_tokens.weight",
                  "lm_head.weight"};
  locate();
  return std::move(out_);
}

template <const Kind& kind>
Imported import_kind(const JsonNode& config, const Checkpoint& checkpoint) {
  return EncoderDecoder(config, checkpoint, kind).read();
}

}  // namespace

std::span<const Importer> importers() {
  static constexpr Importer kRows[] = {{"bart", import_kind<kBart>},
                                       {"mbart", import_kind<kMbart>},
                                       {"marian", import_kind<kMarian>}};
  return kRows;
}

}  // namespace moe::arch::bart
