// SPDX-License-Identifier: MIT
// Errors about the documents and tensor names that were made from a GGUF file, in the file's own
// words.

#include <algorithm>
#include <span>

#include "formats/import/shell_quoted.h"
#include "src/base/number.h"
#include "src/convert/gguf/gguf_source.h"
#include "src/convert/gguf/gguf_state.h"

namespace moe {
namespace {

struct Word {
  std::string_view made, stored;
};

// Behind the architecture's name, those that gguf_config's list of equal meanings lacks.
constexpr Word kConfigWords[] = {
    {"attention_factor", "rope.scaling.attn_factor"},
    {"beta_fast", "rope.scaling.yarn_beta_fast"},
    {"beta_slow", "rope.scaling.yarn_beta_slow"},
    {"expert_swiglu_limit_list", "swiglu_clamp_exp"},
    {"first_k_dense_replace", "leading_dense_block_count"},
    {"full_attn_alpha_factor", "residual_scale"},
    {"kda_lower_bound", "kda.gate_lower_bound"},
    {"kda_safe_gate", "kda.safe_gate"},
    {"kv_lora_rank", "attention.kv_lora_rank"},
    {"layer_types", "attention.sliding_window_pattern"},
    {"moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
    {"mlp_alpha_factor", "residual_scale"},
    {"mscale", "rope.scaling.yarn_log_multiplier"},
    {"mscale_all_dim", "rope.scaling.yarn_log_multiplier"},
    {"n_group", "expert_group_count"},
    {"n_routed_experts", "expert_count"},
    {"n_shared_experts", "expert_shared_count"},
    {"norm_topk_prob", "expert_weights_norm"},
    {"num_experts", "expert_count"},
    {"num_local_experts", "expert_count"},
    {"num_nextn_predict_layers", "nextn_predict_layers"},
    {"partial_rotary_factor", "rope.dimension_count"},
    {"q_lora_rank", "attention.q_lora_rank"},
    {"qk_nope_head_dim", "attention.key_length"},
    {"qk_rope_head_dim", "rope.dimension_count"},
    {"query_pre_attn_scalar", "attention.key_length"},
    {"rope_local_base_freq", "rope.freq_base_swa"},
    {"rope_scaling", "rope.scaling.type"},
    {"rope_scaling.attention_factor", "rope.scaling.attn_factor"},
    {"rope_scaling.beta_fast", "rope.scaling.yarn_beta_fast"},
    {"rope_scaling.beta_slow", "rope.scaling.yarn_beta_slow"},
    {"rope_scaling.factor", "rope.scaling.factor"},
    {"rope_scaling.mscale", "rope.scaling.yarn_log_multiplier"},
    {"rope_scaling.mscale_all_dim", "rope.scaling.yarn_log_multiplier"},
    {"rope_scaling.original_max_position_embeddings", "rope.scaling.original_context_length"},
    {"rope_scaling.rope_type", "rope.scaling.type"},
    {"routed_scaling_factor", "expert_weights_scale"},
    {"share_expert_swiglu_limit_list", "swiglu_clamp_shexp"},
    {"sliding_window_pattern", "attention.sliding_window_pattern"},
    {"swiglu_limit", "swiglu_clamp_exp"},
    {"top_k_experts", "expert_used_count"},
    {"topk_group", "expert_group_used_count"},
    {"v_head_dim", "attention.value_length"}};

// Whole, whatever the architecture.
constexpr Word kOtherWords[] = {{"added_tokens", "tokenizer.ggml.token_type"},
                                {"bos_token", "tokenizer.ggml.bos_token_id"},
                                {"bos_token_id", "tokenizer.ggml.bos_token_id"},
                                {"chat_template", "tokenizer.chat_template"},
                                {"eos_token", "tokenizer.ggml.eos_token_id"},
                                {"eos_token_id", "tokenizer.ggml.eos_token_id"},
                                {"model.merges", "tokenizer.ggml.merges"},
                                {"model.unk_token", "tokenizer.ggml.unknown_token_id"},
                                {"model.vocab", "tokenizer.ggml.tokens"},
                                {"pad_token", "tokenizer.ggml.padding_token_id"},
                                {"pad_token_id", "tokenizer.ggml.padding_token_id"},
                                {"rope_scaling.long_factor", "rope_factors_long.weight"},
                                {"rope_scaling.short_factor", "rope_factors_short.weight"},
                                {"vocab_size", "token_embd.weight"}};

std::string_view find_word(std::span<const Word> words, std::string_view made) {
  for (const Word& word : words) {
    if (word.made == made) return word.stored;
  }
  return {};
}

bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '.'; }

class Words {
 public:
  explicit Words(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  std::string translated(const std::string& text) const {
    std::string out;
    const std::string& path = checkpoint_.path();
    for (size_t at = 0; at < text.size();) {
      if (text.compare(at, path.size(), path) == 0) {
        out += path;
        at += path.size();
        continue;
      }
      size_t end = at;
      while (end < text.size() && is_word(text[end])) ++end;
      if (end == at) {
        out += text[at++];
        continue;
      }
      while (end > at + 1 && text[end - 1] == '.') --end;  // of a sentence
      const std::string word = text.substr(at, end - at);
      const std::string meant = of_word(word);
      if (is_key(meant) && out == checkpoint_.path() + ": ") out += "key ";
      out += meant;
      at = end;
      // The file has one token for each key; the list is ours.
      if (word == "eos_token_id" && at < text.size() && text[at] == '[') {
        at = std::min(text.find(']', at), text.size() - 1) + 1;
      }
    }
    return out;
  }

 private:
  bool is_key(const std::string& word) const {
    return word.starts_with("tokenizer.") || word.starts_with(arch() + ".");
  }
  std::string arch() const {
    const Json* name = checkpoint_.metadata().find("general.architecture");
    return name != nullptr && name->is_string() ? name->text() : "";
  }

  std::string of_word(const std::string& word) const {
    if (const std::string_view other = find_word(kOtherWords, word); !other.empty()) {
      return std::string(other);
    }
    const std::string key = gguf_key(word);
    if (!key.empty()) return arch() + "." + key;
    const std::string_view own = find_word(kConfigWords, word);
    if (!own.empty()) return arch() + "." + std::string(own);
    const std::string state = stored_state_name(arch(), word);
    return state.empty() ? stored_tensor_name(word, arch()) : state;
  }

  const Checkpoint& checkpoint_;
};

void replace_all(std::string* text, const std::string& what, const std::string& by) {
  for (size_t at = text->find(what); at != std::string::npos; at = text->find(what, at)) {
    text->replace(at, what.size(), by);
    at += by.size();
  }
}

// Fields of a configuration, as its checks call them.
constexpr Word kFields[] = {{"norm.eps", "attention.layer_norm_rms_epsilon"},
                            {"rope: theta - 1", "rope.freq_base - 1"},
                            {"rope: theta", "rope.freq_base"},
                            {"rope: factor", "rope.scaling.factor"},
                            {"rope: beta_fast", "rope.scaling.yarn_beta_fast"},
                            {"rope: beta_slow", "rope.scaling.yarn_beta_slow"},
                            {"attention.rope.dims", "rope.dimension_count"},
                            {"attention.head_dim", "attention.key_length"},
                            {"attention.n_heads", "attention.head_count"},
                            {"attention.n_kv_heads", "attention.head_count_kv"},
                            {"attention.window", "attention.sliding_window"},
                            {"n_layers", "block_count"},
                            {"d_model", "embedding_length"},
                            {"context_length", "context_length"},
                            {"ffn.d_ff", "feed_forward_length"},
                            {"rope.dims", "rope.dimension_count"},
                            {"rope: dims", "rope.dimension_count"}};

// Names of documents, in the forms that messages have. One name may end with another, so the
// longest is first; and the path, which may hold any of them, is out of the way meanwhile.
std::string without_documents(const Checkpoint& checkpoint, std::string text) {
  const std::string path = "\1";  // in no message
  replace_all(&text, checkpoint.path(), path);
  for (const char* document : {"tokenizer_config.json", "tokenizer.json", "config.json"}) {
    const std::string name = document;
    replace_all(&text, path + "/" + name, path);
    if (text.starts_with(name + ": ")) text.replace(0, name.size(), path);
    replace_all(&text, " " + name + ": ", " ");
    replace_all(&text, name + " describes", "the file's keys describe");
    replace_all(&text, name + " says", "the file's keys say");
    replace_all(&text, name, path);
  }
  replace_all(&text, "below vocab_size", "below the number of tokens");
  const Json* arch = checkpoint.metadata().find("general.architecture");
  const bool known = arch != nullptr && arch->is_string();
  for (const Word& field : known ? std::span<const Word>(kFields) : std::span<const Word>()) {
    replace_all(&text, " " + std::string(field.made) + ":",
                " " + arch->text() + "." + std::string(field.stored) + ":");
  }
  replace_all(&text, path, checkpoint.path());
  return text;
}

// The advice about the key that a message names. The path may contain anything, so it is not
// searched.
std::string way_out(const Checkpoint& checkpoint, std::string text, const std::string& arch) {
  replace_all(&text, checkpoint.path(), "");
  if (text.find("--ignore-key") != std::string::npos) return "";
  // A special token or a template can be left out alone.
  for (const std::string_view end :
       {"_token_id", "tokenizer.chat_template", "add_bos_token", "add_eos_token"}) {
    const size_t found = text.find(end);
    if (found == std::string::npos) continue;
    const size_t first = text.rfind("tokenizer.", found);
    const std::string key =
        first == std::string::npos ? "" : text.substr(first, found + end.size() - first);
    if (!checkpoint.metadata().contains(key)) continue;
    return "; without it: moe convert --ignore-key " + shell_quoted(key);
  }
  if (text.find("tokenizer.") != std::string::npos) {
    return "; without the tokenizer: moe convert --ignore-key tokenizer.ggml.model";
  }
  const bool names_key =
      text.find(arch + ".") != std::string::npos || text.find("general.") != std::string::npos;
  return names_key ? "; take another file of the model, or correct the key with gguf-set-metadata "
                     "(pip install gguf)"
                   : "";
}

}  // namespace

Status in_gguf_words(const Checkpoint& checkpoint, const Status& status) {
  const bool about_content =
      status.code() == MOE_ERR_FORMAT || status.code() == MOE_ERR_SHAPE ||
      status.code() == MOE_ERR_RANGE || status.code() == MOE_ERR_UNSUPPORTED ||
      status.code() == MOE_ERR_NOT_FOUND || status.code() == MOE_ERR_CORRUPT ||
      status.code() == MOE_ERR_NON_FINITE;
  if (checkpoint.metadata().is_null() || !about_content) return status;
  std::string text = Words(checkpoint).translated(without_documents(checkpoint, status.text()));
  const Json* arch = checkpoint.metadata().find("general.architecture");
  const std::string way =
      way_out(checkpoint, text, arch != nullptr && arch->is_string() ? arch->text() : "general");
  if (text.size() + way.size() < MOE_ERROR_TEXT_BYTES) text += way;
  return Status::error(status.code(), "%s", text.c_str());
}

}  // namespace moe
