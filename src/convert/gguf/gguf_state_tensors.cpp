// SPDX-License-Identifier: MIT
// The tensors of families with a state, and of Gemma 4, in GGUF files: names by architecture, and
// values that llama.cpp's converter changes.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>

#include "formats/import/failure.h"
#include "src/convert/gguf/gguf_state.h"

namespace moe {
namespace {

struct StateName {
  const char* gguf;
  const char* transformers;
};

// Whole names outside layers, others behind "blk.L." and "model.layers.L.". Parts that end in a dot
// stand for any end.
constexpr StateName kDeltaNames[] = {{"post_attention_norm.", "post_attention_layernorm."},
                                     {"attn_qkv.", "linear_attn.in_proj_qkv."},
                                     {"attn_gate.", "linear_attn.in_proj_z."},
                                     {"ssm_in.", "linear_attn.in_proj_qkvz."},
                                     {"ssm_ba.", "linear_attn.in_proj_ba."},
                                     {"ssm_beta.", "linear_attn.in_proj_b."},
                                     {"ssm_alpha.", "linear_attn.in_proj_a."},
                                     {"ssm_conv1d.", "linear_attn.conv1d."},
                                     {"ssm_dt.bias", "linear_attn.dt_bias"},
                                     {"ssm_a", "linear_attn.A_log"},
                                     {"ssm_norm.", "linear_attn.norm."},
                                     {"ssm_out.", "linear_attn.out_proj."}};

constexpr StateName kGraniteNames[] = {{"ssm_in.", "mamba.in_proj."},
                                       {"ssm_conv1d.", "mamba.conv1d."},
                                       {"ssm_dt.bias", "mamba.dt_bias"},
                                       {"ssm_a", "mamba.A_log"},
                                       {"ssm_d", "mamba.D"},
                                       {"ssm_norm.", "mamba.norm."},
                                       {"ssm_out.", "mamba.out_proj."}};

constexpr StateName kFalconNames[] = {{"output_norm.weight", "model.final_layernorm.weight"},
                                      {"ssm_in.", "mamba.in_proj."},
                                      {"ssm_conv1d.", "mamba.conv1d."},
                                      {"ssm_dt.bias", "mamba.dt_bias"},
                                      {"ssm_a", "mamba.A_log"},
                                      {"ssm_d", "mamba.D"},
                                      {"ssm_norm.", "mamba.norm."},
                                      {"ssm_out.", "mamba.out_proj."},
                                      {"ffn_norm", "pre_ff_layernorm.weight"},
                                      {"ffn_norm.weight", "pre_ff_layernorm.weight"},
                                      {"ffn_gate.", "feed_forward.gate_proj."},
                                      {"ffn_up.", "feed_forward.up_proj."},
                                      {"ffn_down.", "feed_forward.down_proj."}};

constexpr StateName kNemotronNames[] = {{"token_embd.weight", "model.embeddings.weight"},
                                        {"output_norm.weight", "model.norm_f.weight"},
                                        {"attn_norm.", "norm."},
                                        {"attn_q.", "mixer.q_proj."},
                                        {"attn_k.", "mixer.k_proj."},
                                        {"attn_v.", "mixer.v_proj."},
                                        {"attn_output.", "mixer.o_proj."},
                                        {"ssm_in.", "mixer.in_proj."},
                                        {"ssm_conv1d.", "mixer.conv1d."},
                                        {"ssm_dt.bias", "mixer.dt_bias"},
                                        {"ssm_a", "mixer.A_log"},
                                        {"ssm_d", "mixer.D"},
                                        {"ssm_norm.", "mixer.norm."},
                                        {"ssm_out.", "mixer.out_proj."},
                                        {"ffn_up.", "mixer.up_proj."},
                                        {"ffn_down.", "mixer.down_proj."},
                                        {"exp_probs_b.bias", "mixer.gate.e_score_correction_bias"},
                                        {"ffn_gate_inp.", "mixer.gate."},
                                        {"ffn_up_exps.weight", "mixer.experts.up_proj"},
                                        {"ffn_down_exps.weight", "mixer.experts.down_proj"},
                                        {"ffn_up_shexp.", "mixer.shared_experts.up_proj."},
                                        {"ffn_down_shexp.", "mixer.shared_experts.down_proj."}};

constexpr StateName kKimiNames[] = {
    {"ssm_conv1d_q.", "self_attn.q_conv1d."}, {"ssm_conv1d_k.", "self_attn.k_conv1d."},
    {"ssm_conv1d_v.", "self_attn.v_conv1d."}, {"ssm_f_a.", "self_attn.f_a_proj."},
    {"ssm_f_b.", "self_attn.f_b_proj."},      {"ssm_g_a.", "self_attn.g_a_proj."},
    {"ssm_g_b.", "self_attn.g_b_proj."},      {"ssm_beta.", "self_attn.b_proj."},
    {"ssm_dt.bias", "self_attn.dt_bias"},     {"ssm_a", "self_attn.A_log"},
    {"ssm_norm.", "self_attn.o_norm."}};

constexpr StateName kLing3Names[] = {{"token_embd.weight", "model.word_embeddings.weight"},
                                     {"attn_q.", "attention.q_proj."},
                                     {"attn_k.", "attention.k_proj."},
                                     {"attn_v.", "attention.v_proj."},
                                     {"attn_q_a.", "attention.q_a_proj."},
                                     {"attn_q_a_norm.", "attention.q_a_layernorm."},
                                     {"attn_q_b.", "attention.q_b_proj."},
                                     {"attn_kv_a_mqa.", "attention.kv_a_proj_with_mqa."},
                                     {"attn_kv_a_norm.", "attention.kv_a_layernorm."},
                                     {"attn_gate.", "attention.g_proj."},
                                     {"attn_output.", "attention.dense."},
                                     {"attn_output.", "attention.o_proj."},
                                     {"ssm_conv1d_q.", "attention.q_conv1d."},
                                     {"ssm_conv1d_k.", "attention.k_conv1d."},
                                     {"ssm_conv1d_v.", "attention.v_conv1d."},
                                     {"ssm_f_a.", "attention.f_proj."},
                                     {"ssm_g_a.", "attention.g_a_proj."},
                                     {"ssm_beta.", "attention.b_proj."},
                                     {"ssm_dt.bias", "attention.dt_bias"},
                                     {"ssm_a", "attention.A_log"},
                                     {"ssm_norm.", "attention.o_norm."},
                                     {"exp_probs_b.bias", "mlp.gate.expert_bias"}};

constexpr StateName kMinimax01Names[] = {{"attn_gate.", "self_attn.output_gate."},
                                         {"attn_norm_2.", "self_attn.norm."}};

constexpr StateName kGemma4Names[] = {
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
    {"inp_gate.", "per_layer_input_gate."},
    {"proj.", "per_layer_projection."},
    {"post_norm.", "post_per_layer_input_norm."},
    {"layer_output_scale.weight", "layer_scalar"},
    {"post_ffw_norm_1.", "post_feedforward_layernorm_1."},
    {"pre_ffw_norm_2.", "pre_feedforward_layernorm_2."},
    {"post_ffw_norm_2.", "post_feedforward_layernorm_2."},
    {"ffn_gate_inp.weight", "router.proj.weight"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_gate_up_exps.weight", "experts.gate_up_proj"},
    {"ffn_down_exps.weight", "experts.down_proj"},
    {"ffn_down_exps.scale", "router.per_expert_scale"}};

struct StateNames {
  const char* arch;
  std::span<const StateName> names;
};

constexpr StateNames kStateNames[] = {
    {"qwen3next", kDeltaNames},         {"qwen35", kDeltaNames},     {"qwen35moe", kDeltaNames},
    {"granitehybrid", kGraniteNames},   {"falcon-h1", kFalconNames}, {"nemotron_h", kNemotronNames},
    {"nemotron_h_moe", kNemotronNames}, {"kimi-linear", kKimiNames}, {"bailingmoe3", kLing3Names},
    {"minimax-01", kMinimax01Names},    {"gemma4", kGemma4Names}};

constexpr std::string_view kBlocks = "blk.";
constexpr std::string_view kLayers = "model.layers.";

// The name behind `from` as `to` has it; empty if it is another.
std::string with_part(const std::string& name, const char* from, const char* to) {
  const std::string_view part = from;
  const bool open = part.ends_with(".");
  if (open ? !name.starts_with(part) : name != part) return "";
  return to + name.substr(part.size());
}

// The name with its layer's prefix and its part with_part; empty if it is another.
std::string state_name(const std::string& name, std::string_view prefix, std::string_view other,
                       const char* from, const char* to) {
  const size_t dot = name.starts_with(prefix) ? name.find('.', prefix.size()) : name.npos;
  if (dot == name.npos) return name == from ? to : "";
  const std::string part = with_part(name.substr(dot + 1), from, to);
  if (part.empty()) return "";
  return std::string(other) + name.substr(prefix.size(), dot + 1 - prefix.size()) + part;
}

std::span<const StateName> names_of(std::string_view architecture) {
  for (const StateNames& family : kStateNames) {
    if (architecture == family.arch) return family.names;
  }
  return {};
}

/// Changes the tensors that are no matrices.
class Vectors {
 public:
  /// `sign`: of the decays in the file.
  Vectors(Checkpoint* checkpoint, float sign) : c_(checkpoint), sign_(sign) {}

  void restore_all() {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : c_->tensors()) {
      if (name.starts_with(kLayers)) names.push_back(name);
    }
    for (const std::string& name : names) restore(name);
  }

 private:
  static constexpr uint64_t kMost = 1 << 24;  // more than any vector has

  void restore(const std::string& name) {
    const bool decay = name.ends_with(".A_log");
    const bool norm = name.ends_with(".mamba.norm.weight") || name.ends_with(".mixer.norm.weight");
    const bool convolution = name.ends_with("conv1d.weight");
    const SourceTensor tensor = *c_->find(name);
    if (!decay && !norm && !convolution && !name.ends_with(".D")) return;
    if (tensor.shape.empty() || tensor.n_elements == 0 || tensor.n_elements > kMost) return;
    const auto n = static_cast<int64_t>(tensor.n_elements);
    const int64_t taps = tensor.shape.back();
    std::vector<float> values(static_cast<size_t>(n));
    c_->read(tensor, 0, values.size(), values.data());
    if (decay) take_logarithms(name, &values);
    std::vector<int64_t> shape = {n};
    if (convolution) shape = {n / taps, 1, taps};
    c_->remove_tensor(name);
    c_->put_tensor(name, std::move(shape), std::move(values));
  }

  // The file has sign * e^A_log.
  void take_logarithms(const std::string& name, std::vector<float>* values) const {
    for (float& v : *values) {
      if (!(sign_ * v > 0) || !std::isfinite(v)) {
        fail(MOE_ERR_RANGE, "tensor %.200s: expected finite numbers %s 0, found %g", name.c_str(),
             sign_ < 0 ? "below" : "above", static_cast<double>(v));
      }
      v = std::log(sign_ * v);
    }
  }

  Checkpoint* c_;
  float sign_;
};

}  // namespace

void rename_gguf_state(Checkpoint* checkpoint) {
  const std::string architecture = checkpoint->metadata().at("general.architecture").text();
  const std::span<const StateName> names = names_of(architecture);
  if (names.empty()) return;
  checkpoint->rename([names](const std::string& name) {
    for (const StateName& n : names) {
      const std::string other = state_name(name, kBlocks, kLayers, n.gguf, n.transformers);
      if (!other.empty()) return other;
    }
    return name;
  });
  Vectors(checkpoint, architecture == "bailingmoe3" ? 1.0f : -1.0f).restore_all();
}

std::string stored_state_name(std::string_view architecture, const std::string& name) {
  for (const StateName& n : names_of(architecture)) {
    const std::string stored = state_name(name, kLayers, kBlocks, n.transformers, n.gguf);
    if (!stored.empty()) return stored;
  }
  return "";
}

}  // namespace moe
