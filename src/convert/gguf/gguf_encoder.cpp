// SPDX-License-Identifier: MIT
// Encoders in GGUF files (bert, nomic-bert) under the names and keys of transformers.
#include "src/convert/gguf/gguf_encoder.h"

#include <algorithm>
#include <set>
#include <span>

#include "formats/import/failure.h"
#include "src/convert/arch/config_keys.h"

namespace moe {
namespace {

struct EncoderName {
  std::string_view gguf, transformers;
};

constexpr EncoderName kBertModel[] = {{"token_embd", "embeddings.word_embeddings"},
                                      {"token_types", "embeddings.token_type_embeddings"},
                                      {"position_embd", "embeddings.position_embeddings"},
                                      {"token_embd_norm", "embeddings.LayerNorm"}};
constexpr EncoderName kBertLayer[] = {{"attn_q", "attention.self.query"},
                                      {"attn_k", "attention.self.key"},
                                      {"attn_v", "attention.self.value"},
                                      {"attn_output", "attention.output.dense"},
                                      {"attn_output_norm", "attention.output.LayerNorm"},
                                      {"ffn_up", "intermediate.dense"},
                                      {"ffn_down", "output.dense"},
                                      {"layer_output_norm", "output.LayerNorm"}};
constexpr EncoderName kNomicModel[] = {{"token_embd", "embeddings.word_embeddings"},
                                       {"token_types", "embeddings.token_type_embeddings"},
                                       {"token_embd_norm", "emb_ln"}};
constexpr EncoderName kNomicLayer[] = {
    {"attn_qkv", "attn.Wqkv"},     {"attn_output", "attn.out_proj"}, {"attn_output_norm", "norm1"},
    {"ffn_up", "mlp.fc11"},        {"ffn_gate", "mlp.fc12"},         {"ffn_down", "mlp.fc2"},
    {"layer_output_norm", "norm2"}};

struct EncoderArch {
  const char* name;        // general.architecture
  const char* model_type;  // of transformers
  const char* class_name;
  const char* activation;
  std::span<const EncoderName> model;
  std::span<const EncoderName> layer;
  std::string_view layers;  // in front of a layer's number
};
constexpr EncoderArch kEncoders[] = {
    {"bert", "bert", "BertModel", "gelu", kBertModel, kBertLayer, "encoder.layer."},
    {"nomic-bert", "nomic_bert", "NomicBertModel", "silu", kNomicModel, kNomicLayer,
     "encoder.layers."}};

constexpr EncoderName kEncoderKeys[] = {{"context_length", "max_position_embeddings"},
                                        {"embedding_length", "hidden_size"},
                                        {"block_count", "num_hidden_layers"},
                                        {"feed_forward_length", "intermediate_size"},
                                        {"attention.head_count", "num_attention_heads"},
                                        {"attention.layer_norm_epsilon", "layer_norm_eps"},
                                        {"rope.freq_base", "rope_theta"}};
constexpr std::string_view kPlainKeys[] = {"attention.causal", "pooling_type", "vocab_size",
                                           "attention.head_count_kv"};

const EncoderArch* find_encoder(const Checkpoint& checkpoint) {
  const Json* const name = checkpoint.metadata().find("general.architecture");
  for (const EncoderArch& arch : kEncoders) {
    if (name != nullptr && *name == arch.name) return &arch;
  }
  return nullptr;
}

// "blk.3.attn_q.bias" in the words of `to`: prefix, number, the name of `part`, ending.
std::string name_in_layer(std::string_view name, std::string_view prefix, std::string_view to,
                          const auto& part_of) {
  if (!name.starts_with(prefix)) return "";
  const size_t dot = name.find('.', prefix.size()), end = name.rfind('.');
  if (dot == name.npos || end <= dot) return "";
  const std::string_view part = part_of(name.substr(dot + 1, end - dot - 1));
  if (part.empty()) return "";
  return std::string(to) + std::string(name.substr(prefix.size(), dot + 1 - prefix.size())) +
         std::string(part) + std::string(name.substr(end));
}

std::string_view transformers_part(std::span<const EncoderName> names, std::string_view gguf) {
  for (const EncoderName& n : names) {
    if (n.gguf == gguf) return n.transformers;
  }
  return {};
}

std::string_view gguf_part(std::span<const EncoderName> names, std::string_view transformers) {
  for (const EncoderName& n : names) {
    if (n.transformers == transformers) return n.gguf;
  }
  return {};
}

std::string encoder_tensor_name(const EncoderArch& arch, const std::string& name) {
  const std::string in_layer = name_in_layer(name, "blk.", arch.layers, [&](std::string_view part) {
    return transformers_part(arch.layer, part);
  });
  if (!in_layer.empty()) return in_layer;
  const size_t end = std::min(name.rfind('.'), name.size());
  const std::string_view whole =
      transformers_part(arch.model, std::string_view(name).substr(0, end));
  return whole.empty() ? name : std::string(whole) + name.substr(end);
}

class EncoderConfig {
 public:
  EncoderConfig(const Checkpoint& checkpoint, const EncoderArch& arch)
      : checkpoint_(checkpoint), all_(checkpoint.metadata(), checkpoint.path()), arch_(arch) {}

  Json build() {
    Json c = {{"model_type", arch_.model_type},
              {"architectures", Json::array({arch_.class_name})},
              {"hidden_act", arch_.activation}};
    for (const auto& [gguf, key] : kEncoderKeys) {
      if (const Json* value = find(gguf)) c[std::string(key)] = *value;
    }
    const SourceTensor* const embedding = checkpoint_.find("token_embd.weight");
    if (embedding != nullptr && !embedding->shape.empty()) c["vocab_size"] = embedding->shape[0];
    const Json* const pad = all_.value().find("tokenizer.ggml.padding_token_id");
    if (pad != nullptr) c["pad_token_id"] = *pad;
    require("attention.causal", false);
    if (const Json* heads = find("attention.head_count"))
      require("attention.head_count_kv", *heads);
    check_all_known();
    return c;
  }

 private:
  std::string full(std::string_view key) const { return arch_.name + ("." + std::string(key)); }
  const Json* find(std::string_view key) const { return all_.value().find(full(key)); }

  void require(const char* key, const Json& value) const {
    const Json* const found = find(key);
    if (found == nullptr || *found == value) return;
    fail(MOE_ERR_UNSUPPORTED, "%s: key %s with value %.60s is not supported",
         checkpoint_.path().c_str(), full(key).c_str(), found->dump().c_str());
  }

  void check_all_known() const {
    const std::string prefix = full("");
    std::vector<UnknownKey> unknown;
    for (const auto& [key, value] : all_.value().items()) {
      if (!key.starts_with(prefix)) continue;
      const std::string_view own = std::string_view(key).substr(prefix.size());
      const bool known =
          !transformers_part(kEncoderKeys, own).empty() ||
          std::find(std::begin(kPlainKeys), std::end(kPlainKeys), own) != std::end(kPlainKeys);
      if (!known) unknown.emplace_back(key, value);
    }
    if (!unknown.empty()) fail_unknown_keys(checkpoint_.path(), unknown);
  }

  const Checkpoint& checkpoint_;
  JsonNode all_;
  const EncoderArch& arch_;
};

}  // namespace

bool is_gguf_encoder(const Checkpoint& checkpoint) { return find_encoder(checkpoint) != nullptr; }

Json gguf_encoder_config(const Checkpoint& checkpoint) {
  return EncoderConfig(checkpoint, *find_encoder(checkpoint)).build();
}

void read_gguf_pooling(Checkpoint* checkpoint) {
  constexpr const char* kModes[] = {nullptr, "mean", "cls", "lasttoken"};
  const JsonNode all(checkpoint->metadata(), checkpoint->path());
  const std::string key = all.at("general.architecture").string() + ".pooling_type";
  constexpr int32_t kRank = 4;
  const int32_t kind = all.integer(key.c_str(), 0, 0, kRank);
  if (kind == kRank) {
    fail(MOE_ERR_UNSUPPORTED, "%.200s: key %s is 4: a reranker, which gives a score and no vector",
         checkpoint->path().c_str(), key.c_str());
  }
  if (kind == 0) return;
  Json modules = Json::array();
  for (const auto& [type, path] :
       {std::pair{"Transformer", ""}, {"Pooling", "1_Pooling"}, {"Normalize", "2_Normalize"}}) {
    modules.push_back({{"type", type}, {"path", path}});
  }
  checkpoint->put_document("modules.json", std::move(modules));
  checkpoint->put_document("1_Pooling/config.json", {{"pooling_mode", kModes[kind]}});
}

void rename_encoder_tensors(Checkpoint* checkpoint) {
  const EncoderArch& arch = *find_encoder(*checkpoint);
  checkpoint->rename([&](const std::string& name) { return encoder_tensor_name(arch, name); });
}

std::string stored_encoder_name(const std::string& name) {
  for (const EncoderArch& arch : kEncoders) {
    const std::string in_layer =
        name_in_layer(name, arch.layers, "blk.",
                      [&](std::string_view part) { return gguf_part(arch.layer, part); });
    if (!in_layer.empty()) return in_layer;
    const size_t end = std::min(name.rfind('.'), name.size());
    const std::string_view whole = gguf_part(arch.model, std::string_view(name).substr(0, end));
    if (!whole.empty()) return std::string(whole) + name.substr(end);
  }
  return "";
}

std::string gguf_encoder_names() {
  std::string out;
  for (const EncoderArch& arch : kEncoders)
    out += (out.empty() ? "" : ", ") + std::string(arch.name);
  return out;
}

}  // namespace moe
