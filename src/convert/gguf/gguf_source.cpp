// SPDX-License-Identifier: MIT
// Translates tensors' names in both directions, and builds config.json and the tokenizer's
// documents from the metadata.
#include "src/convert/gguf/gguf_source.h"

#include <algorithm>
#include <span>

#include "formats/import/failure.h"
#include "src/convert/arch/typed_embedding.h"
#include "src/convert/gguf/gguf_encoder.h"
#include "src/convert/gguf/gguf_state.h"
#include "src/convert/packed/bitnet.h"
#include "src/convert/packed/packed_checkpoint.h"
#include "src/convert/rotation.h"
#include "src/convert/tokenizer/tiktoken.h"
#include "src/convert/zero_tail.h"

namespace moe {
namespace {

struct Name {
  const char* gguf;
  const char* transformers;
};

constexpr Name kModel[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                           {"output.weight", "lm_head.weight"},
                           {"output.bias", "lm_head.bias"},
                           {"token_embd_norm.weight", "model.embedding_norm.weight"},
                           {"output_norm.weight", "model.norm.weight"},
                           {"output_norm.bias", "model.norm.bias"}};

// Behind "blk.L." and "model.layers.L.".
constexpr Name kLayer[] = {{"attn_norm", "input_layernorm"},
                           {"ffn_norm", "post_attention_layernorm"},
                           {"post_attention_norm", "post_attention_layernorm"},
                           {"post_ffw_norm", "post_feedforward_layernorm"},
                           {"attn_sinks", "self_attn.sinks"},
                           {"attn_sub_norm", "self_attn.attn_sub_norm"},
                           {"ffn_sub_norm", "mlp.ffn_sub_norm"},
                           {"attn_qkv", "self_attn.qkv_proj"},
                           {"attn_q", "self_attn.q_proj"},
                           {"attn_k", "self_attn.k_proj"},
                           {"attn_v", "self_attn.v_proj"},
                           {"attn_q_a", "self_attn.q_a_proj"},
                           {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                           {"attn_q_b", "self_attn.q_b_proj"},
                           {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                           {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                           {"attn_kv_b", "self_attn.kv_b_proj"},
                           {"attn_k_b", "self_attn.k_b_proj"},
                           {"attn_v_b", "self_attn.v_b_proj"},
                           {"attn_output", "self_attn.o_proj"},
                           {"attn_q_norm", "self_attn.q_norm"},
                           {"attn_k_norm", "self_attn.k_norm"},
                           {"attn_q_norm_in", "self_attn.q_proj.norm"},
                           {"attn_k_norm_in", "self_attn.k_proj.norm"},
                           {"attn_v_norm_in", "self_attn.v_proj.norm"},
                           {"attn_output_norm_in", "self_attn.o_proj.norm"},
                           {"ffn_gate_norm_in", "mlp.gate_proj.norm"},
                           {"ffn_up_norm_in", "mlp.up_proj.norm"},
                           {"ffn_down_norm_in", "mlp.down_proj.norm"},
                           {"shortconv.conv", "conv.conv"},
                           {"shortconv.in_proj", "conv.in_proj"},
                           {"shortconv.out_proj", "conv.out_proj"},
                           {"ffn_gate", "mlp.gate_proj"},
                           {"ffn_up", "mlp.up_proj"},
                           {"ffn_down", "mlp.down_proj"},
                           {"ffn_gate_inp", "mlp.gate"},
                           {"exp_probs_b", "mlp.gate.exp_probs_b"},
                           {"ffn_gate_exps", "mlp.experts.gate_exps"},
                           {"ffn_up_exps", "mlp.experts.up_exps"},
                           {"ffn_down_exps", "mlp.experts.down_exps"},
                           {"ffn_gate_up_exps", "mlp.experts.gate_up_exps"},
                           {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                           {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                           {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
                           {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                           {"layer_output_norm", "final_layernorm"},
                           {"nextn.eh_proj", "eh_proj"},
                           {"nextn.enorm", "enorm"},
                           {"nextn.hnorm", "hnorm"},
                           {"nextn.embed_tokens", "embed_tokens"},
                           {"nextn.shared_head_head", "shared_head.head"},
                           {"nextn.shared_head_norm", "shared_head.norm"}};

// Names for which the tensors of a GGUF file do not have, or not alone, the names above.
constexpr Name kOtherNames[] = {{"attn_norm", "operator_norm"},
                                {"ffn_norm", "ffn_norm"},
                                {"attn_output", "self_attn.out_proj"},
                                {"attn_q_norm", "self_attn.q_layernorm"},
                                {"attn_k_norm", "self_attn.k_layernorm"},
                                {"ffn_gate", "feed_forward.w1"},
                                {"ffn_up", "feed_forward.w3"},
                                {"ffn_down", "feed_forward.w2"},
                                {"ffn_gate_inp", "feed_forward.gate"},
                                {"ffn_gate_exps", "feed_forward.experts.w1"},
                                {"ffn_up_exps", "feed_forward.experts.w3"},
                                {"ffn_down_exps", "feed_forward.experts.w2"},
                                {"ffn_gate_inp", "block_sparse_moe.gate"},
                                {"ffn_gate_inp", "block_sparse_moe.router.layer"},
                                {"ffn_gate_inp", "mlp.router"},
                                {"ffn_gate_exps", "block_sparse_moe.experts.w1"},
                                {"ffn_up_exps", "block_sparse_moe.experts.w3"},
                                {"ffn_down_exps", "block_sparse_moe.experts.w2"},
                                {"ffn_gate_exps", "block_sparse_moe.input_linear"},
                                {"ffn_down_exps", "block_sparse_moe.output_linear"},
                                {"ffn_gate_exps", "mlp.experts.gate_proj"},
                                {"ffn_up_exps", "mlp.experts.up_proj"},
                                {"ffn_down_exps", "mlp.experts.down_proj"},
                                {"ffn_gate_exps", "mlp.experts.gate_up_proj"},
                                {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
                                {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
                                {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
                                {"ffn_up", "mlp.gate_up_proj"},
                                {"attn_qkv", "attention.query_key_value"},
                                {"attn_output", "attention.dense"},
                                {"attn_q_norm", "attention.query_layernorm"},
                                {"attn_k_norm", "attention.key_layernorm"}};

// Biases, of which a GGUF file's name has a suffix more.
constexpr Name kOtherBiases[] = {{"exp_probs_b.bias", "mlp.gate.expert_bias"},
                                 {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
                                 {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias"}};

// Blocks have norms before and behind both of their parts.
bool has_norms_around(std::string_view architecture) {
  return architecture == "gemma2" || architecture == "gemma3" || architecture == "gemma4";
}

// Their norm between attention and FFN counts as one of attention.
bool has_norm_behind(std::string_view architecture) {
  return architecture == "olmo2" || architecture == "glm4moe";
}

// "mlp.experts.3.up_proj.weight" is "mlp.experts.up_proj.weight": a GGUF file stacks experts.
std::string without_expert(std::string part) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = part.find(kExperts);
  if (at == std::string::npos) return part;
  const size_t first = at + kExperts.size();
  const size_t end = part.find_first_not_of("0123456789", first);
  if (end > first && end < part.size() && part[end] == '.') part.erase(first, end + 1 - first);
  return part;
}

Json special_tokens(const Json& metadata) {
  Json out = Json::object();
  if (!metadata.contains("tokenizer.ggml.tokens")) return out;
  const Json& tokens = metadata.at("tokenizer.ggml.tokens");
  for (const auto& [name, key] : {std::pair{"bos_token", "tokenizer.ggml.bos_token_id"},
                                  {"eos_token", "tokenizer.ggml.eos_token_id"},
                                  {"pad_token", "tokenizer.ggml.padding_token_id"},
                                  {"mask_token", "tokenizer.ggml.mask_token_id"}}) {
    if (!metadata.contains(key)) continue;  // check_special_ids() leaves ids of tokens
    const auto id = metadata.at(key).get<uint64_t>();
    if (id < tokens.size()) out[name] = tokens[id];
  }
  if (metadata.contains("tokenizer.chat_template")) {
    out["chat_template"] = metadata.at("tokenizer.chat_template");
  }
  return out;
}

// A decoder that was saved without its head (AutoModel) lacks the prefix of its tensors.
void add_prefix(Checkpoint* checkpoint) {
  const std::string_view prefix = "model.";
  const auto first = checkpoint->tensors().lower_bound(prefix);
  const bool prefixed = first != checkpoint->tensors().end() && first->first.starts_with(prefix);
  const bool bare = checkpoint->find("embed_tokens.weight") != nullptr ||
                    checkpoint->find("word_embeddings.weight") != nullptr;
  if (prefixed || !bare) return;
  checkpoint->rename([prefix](const std::string& name) {
    return name.starts_with("lm_head.") ? name : std::string(prefix) + name;
  });
}

// The prefix of `name` in a checkpoint's tensors: "" if it has none, or if there is no such tensor.
std::string prefix_of(const Checkpoint& checkpoint, std::string_view name) {
  if (checkpoint.find(name) != nullptr) return "";
  std::string prefix;
  for (const auto& [found, tensor] : checkpoint.tensors()) {
    if (found.ends_with("." + std::string(name))) {
      prefix = found.substr(0, found.size() - name.size());
    }
  }
  return prefix;
}

// Names of tensors without `prefix`, which all of them have. unwrapped_name() has taken "model."
// from those of a head.
bool remove_prefix(Checkpoint* checkpoint, std::string_view prefix) {
  const auto& tensors = checkpoint->tensors();
  const auto fits = [&](const auto& entry) {
    return entry.first.starts_with(prefix) ||
           (prefix == "model." && entry.first.starts_with("lm_head."));
  };
  if (prefix.empty() || !std::all_of(tensors.begin(), tensors.end(), fits)) return false;
  checkpoint->rename([prefix](const std::string& name) {
    return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  });
  return true;
}

// A module that holds a whole model under a name of its own adds that name to every tensor's. The
// embedding tells it: of decoders, and of encoders with a head, which have a module for the rest,
// or without.
void remove_common_prefix(Checkpoint* checkpoint) {
  for (const char* embedding :
       {"model.embed_tokens.weight", "model.word_embeddings.weight",
        "bert.embeddings.word_embeddings.weight", "roberta.embeddings.word_embeddings.weight",
        "embeddings.word_embeddings.weight", "model.embeddings.tok_embeddings.weight",
        "embeddings.tok_embeddings.weight"}) {
    if (checkpoint->find(embedding) != nullptr) break;
    const std::string prefix = prefix_of(*checkpoint, embedding);
    if (!remove_prefix(checkpoint, prefix)) continue;
    checkpoint->warn("all names of tensors begin with " + prefix + ", and are read without it");
    break;
  }
  // The module of an encoder without a head, whichever family it is named after.
  if (!remove_prefix(checkpoint, "bert.")) (void)remove_prefix(checkpoint, "roberta.");
}

// The text part of a model that sees images has the tensors of a text model behind a prefix.
std::string text_name(const std::string& name) {
  constexpr std::pair<std::string_view, const char*> kPrefixes[] = {
      {"language_model.model.", "model."},
      {"language_model.lm_head.", "lm_head."},
      {"model.language_model.", "model."},
      {"model.vision_tower.", "vision_tower."},
      {"model.multi_modal_projector.", "multi_modal_projector."}};
  for (const auto& [prefix, text] : kPrefixes) {
    if (name.starts_with(prefix)) return text + name.substr(prefix.size());
  }
  return name;
}

}  // namespace

std::string gguf_tensor_name(const std::string& name, std::string_view architecture) {
  for (const Name& n : kModel) {
    if (name == n.gguf) return n.transformers;
  }
  const size_t dot = name.find('.', 4);
  const size_t end = name.rfind('.');
  if (!name.starts_with("blk.") || dot == std::string::npos || end <= dot) return name;
  const std::string part = name.substr(dot + 1, end - dot - 1);
  for (const Name& n : kLayer) {
    if (part != n.gguf) continue;
    const bool norm = part == "ffn_norm" && has_norms_around(architecture);
    return "model.layers" + name.substr(3, dot - 2) +
           (norm ? "pre_feedforward_layernorm" : n.transformers) + name.substr(end);
  }
  return name;
}

std::string stored_tensor_name(const std::string& name, std::string_view architecture) {
  for (const Name& n : kModel) {
    if (name == n.transformers) return n.gguf;
  }
  if (name == "model.word_embeddings.weight") return kModel[0].gguf;
  const std::string encoder = stored_encoder_name(name);
  if (!encoder.empty()) return encoder;
  constexpr std::string_view kLayers = "model.layers.";
  const size_t dot = name.find('.', kLayers.size());
  if (!name.starts_with(kLayers) || dot == std::string::npos) return name;
  const std::string block = "blk." + name.substr(kLayers.size(), dot - kLayers.size()) + ".";
  const std::string rest = without_expert(name.substr(dot + 1));
  for (const Name& n : kOtherBiases) {
    if (rest == n.transformers) return block + n.gguf;
  }
  const size_t end = rest.rfind('.');
  const std::string part = rest.substr(0, end), tail = rest.substr(std::min(end, rest.size()));
  const bool around = has_norms_around(architecture);
  if (around && part == "pre_feedforward_layernorm") return block + "ffn_norm" + tail;
  if (part == "post_attention_layernorm" && (around || has_norm_behind(architecture))) {
    return block + "post_attention_norm" + tail;
  }
  for (const std::span<const Name> names : {std::span<const Name>(kLayer), {kOtherNames}}) {
    for (const Name& n : names) {
      if (part == n.transformers) return block + n.gguf + tail;
    }
  }
  return name;
}

namespace {

void read_gguf(Checkpoint* checkpoint, const std::function<void()>& step) {
  check_special_ids(checkpoint);
  const bool encoder = is_gguf_encoder(*checkpoint);
  checkpoint->put_document("config.json",
                           encoder ? gguf_encoder_config(*checkpoint) : gguf_config(*checkpoint));
  Json tokenizer = gguf_tokenizer(checkpoint->metadata(), step, checkpoint->path(),
                                  [&](const std::string& text) { checkpoint->warn(text); });
  if (!tokenizer.is_null()) {
    checkpoint->put_document("tokenizer.json", std::move(tokenizer));
    checkpoint->put_document("tokenizer_config.json", special_tokens(checkpoint->metadata()));
  }
  read_gguf_pooling(checkpoint);
  mark_rotated(checkpoint);
  if (encoder) return rename_encoder_tensors(checkpoint);
  rename_gguf_state(checkpoint);
  const std::string architecture = checkpoint->metadata().at("general.architecture").text();
  checkpoint->rename([&](const std::string& name) { return gguf_tensor_name(name, architecture); });
}

}  // namespace

Checkpoint open_checkpoint(const std::string& path, const std::function<void()>& step,
                           const SourceOptions& options) {
  Checkpoint checkpoint(path);
  for (const std::string& key : options.ignored) checkpoint.ignore_keys(key);
  step();
  if (!options.allow_zeros) check_zero_tails(checkpoint, step);
  if (checkpoint.metadata().is_null()) {
    checkpoint.rename(text_name);
    remove_common_prefix(&checkpoint);
    add_prefix(&checkpoint);
    unpack_checkpoint(&checkpoint);
    round_normed(&checkpoint);
    add_text_type(&checkpoint);
    if (!checkpoint.has_document("tokenizer.json")) read_tiktoken(&checkpoint, step);
    return checkpoint;
  }
  in_words_of(checkpoint, [&] {
    read_gguf(&checkpoint, step);
    unpack_i2_s(&checkpoint, options.i2_s_arm);
    unpack_checkpoint(&checkpoint);
    round_normed(&checkpoint);
    add_text_type(&checkpoint);
  });
  return checkpoint;
}

}  // namespace moe
