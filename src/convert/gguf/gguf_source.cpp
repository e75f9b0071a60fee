#include "src/convert/gguf/gguf_source.h"

#include "formats/import/failure.h"
#include "src/convert/packed/bitnet.h"
#include "src/convert/packed/packed_checkpoint.h"
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
                           {"ffn_gate", "mlp.gate_proj"},
                           {"ffn_up", "mlp.up_proj"},
                           {"ffn_down", "mlp.down_proj"},
                           {"ffn_gate_inp", "mlp.gate"},
                           {"exp_probs_b", "mlp.gate.exp_probs_b"},
                           {"ffn_gate_exps", "mlp.experts.gate_exps"},
                           {"ffn_up_exps", "mlp.experts.up_exps"},
                           {"ffn_down_exps", "mlp.experts.down_exps"},
                           {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                           {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                           {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
                           {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"}};

Json special_tokens(const Json& metadata) {
  Json out = Json::object();
  if (!metadata.contains("tokenizer.ggml.tokens")) return out;
  const Json& tokens = metadata.at("tokenizer.ggml.tokens");
  for (const auto& [name, key] : {std::pair{"bos_token", "tokenizer.ggml.bos_token_id"},
                                  {"eos_token", "tokenizer.ggml.eos_token_id"},
                                  {"pad_token", "tokenizer.ggml.padding_token_id"}}) {
    if (!metadata.contains(key) || !metadata.at(key).is_number_unsigned()) continue;
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
  if (prefixed || checkpoint->find("embed_tokens.weight") == nullptr) return;
  checkpoint->rename([prefix](const std::string& name) {
    return name.starts_with("lm_head.") ? name : std::string(prefix) + name;
  });
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

std::string gguf_tensor_name(const std::string& name, bool sandwich) {
  for (const Name& n : kModel) {
    if (name == n.gguf) return n.transformers;
  }
  const size_t dot = name.find('.', 4);
  const size_t end = name.rfind('.');
  if (!name.starts_with("blk.") || dot == std::string::npos || end <= dot) return name;
  const std::string part = name.substr(dot + 1, end - dot - 1);
  for (const Name& n : kLayer) {
    if (part != n.gguf) continue;
    const bool norm = sandwich && part == "ffn_norm";
    return "model.layers" + name.substr(3, dot - 2) +
           (norm ? "pre_feedforward_layernorm" : n.transformers) + name.substr(end);
  }
  return name;
}

Checkpoint open_checkpoint(const std::string& path, const std::function<void()>& step,
                           const SourceOptions& options) {
  Checkpoint checkpoint(path);
  for (const std::string& key : options.ignored) checkpoint.ignore_key(key);
  step();
  if (!options.allow_zeros) check_zero_tails(checkpoint, step);
  if (checkpoint.metadata().is_null()) {
    checkpoint.rename(text_name);
    add_prefix(&checkpoint);
    unpack_checkpoint(&checkpoint);
    return checkpoint;
  }
  checkpoint.put_document("config.json", gguf_config(checkpoint));
  Json tokenizer = gguf_tokenizer(checkpoint.metadata(), step, path);
  if (!tokenizer.is_null()) {
    checkpoint.put_document("tokenizer.json", std::move(tokenizer));
    checkpoint.put_document("tokenizer_config.json", special_tokens(checkpoint.metadata()));
  }
  const bool sandwich = checkpoint.find("blk.0.ffn_norm.weight") != nullptr &&
                        checkpoint.find("blk.0.post_attention_norm.weight") != nullptr;
  checkpoint.rename(
      [sandwich](const std::string& name) { return gguf_tensor_name(name, sandwich); });
  unpack_i2_s(&checkpoint, options.i2_s_arm);
  unpack_checkpoint(&checkpoint);
  return checkpoint;
}

}  // namespace moe
