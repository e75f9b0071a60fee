// SPDX-License-Identifier: MIT
// The tensor names that most decoders of `transformers` share, as tables that an importer picks
// from.
#include "src/convert/arch/decoder.h"

namespace moe {
namespace {

constexpr Place kGateHalf = {.stacked = true, .parts = 2, .part = 0};
constexpr Place kUpHalf = {.stacked = true, .parts = 2, .part = 1};
constexpr Place kStacked = {.stacked = true};

constexpr TensorName kDecoder[] = {{"embedding.weight", "model.embed_tokens.weight"},
                                   {"final_norm.weight", "model.norm.weight"},
                                   {"head.weight", "lm_head.weight"},
                                   {"attention_norm.weight", "input_layernorm.weight"},
                                   {"ffn_norm.weight", "post_attention_layernorm.weight"},
                                   {"attention.q.weight", "self_attn.q_proj.weight"},
                                   {"attention.k.weight", "self_attn.k_proj.weight"},
                                   {"attention.v.weight", "self_attn.v_proj.weight"},
                                   {"attention.o.weight", "self_attn.o_proj.weight"}};

constexpr TensorName kQkvBias[] = {{"attention.q.bias", "self_attn.q_proj.bias"},
                                   {"attention.k.bias", "self_attn.k_proj.bias"},
                                   {"attention.v.bias", "self_attn.v_proj.bias"}};
constexpr TensorName kOBias[] = {{"attention.o.bias", "self_attn.o_proj.bias"}};

constexpr TensorName kQkNorm[] = {{"attention.q_norm.weight", "self_attn.q_norm.weight"},
                                  {"attention.k_norm.weight", "self_attn.k_norm.weight"}};

constexpr TensorName kMlp[] = {{"ffn.gate.weight", "mlp.gate_proj.weight"},
                               {"ffn.up.weight", "mlp.up_proj.weight"},
                               {"ffn.down.weight", "mlp.down_proj.weight"}};
constexpr TensorName kMlpBias[] = {{"ffn.gate.bias", "mlp.gate_proj.bias"},
                                   {"ffn.up.bias", "mlp.up_proj.bias"},
                                   {"ffn.down.bias", "mlp.down_proj.bias"}};

constexpr TensorName kMoe[] = {{"moe.router.weight", "mlp.gate.weight"},
                               {"moe.experts.gate.weight", "mlp.experts.{e}.gate_proj.weight"},
                               {"moe.experts.up.weight", "mlp.experts.{e}.up_proj.weight"},
                               {"moe.experts.down.weight", "mlp.experts.{e}.down_proj.weight"},
                               {"moe.experts.gate.weight", "mlp.experts.gate_up_proj", kGateHalf},
                               {"moe.experts.up.weight", "mlp.experts.gate_up_proj", kUpHalf},
                               {"moe.experts.down.weight", "mlp.experts.down_proj", kStacked}};

constexpr TensorName kSparseMoe[] = {
    {"moe.router.weight", "block_sparse_moe.gate.weight"},
    {"moe.router.weight", "mlp.gate.weight"},
    {"moe.experts.gate.weight", "block_sparse_moe.experts.{e}.w1.weight"},
    {"moe.experts.up.weight", "block_sparse_moe.experts.{e}.w3.weight"},
    {"moe.experts.down.weight", "block_sparse_moe.experts.{e}.w2.weight"},
    {"moe.experts.gate.weight", "mlp.experts.gate_up_proj", kGateHalf},
    {"moe.experts.up.weight", "mlp.experts.gate_up_proj", kUpHalf},
    {"moe.experts.down.weight", "mlp.experts.down_proj", kStacked}};

constexpr TensorName kStackedMoe[] = {
    {"moe.router.weight", "mlp.gate.weight"},
    {"moe.experts.gate.weight", "mlp.experts.gate_exps.weight", kStacked},
    {"moe.experts.up.weight", "mlp.experts.up_exps.weight", kStacked},
    {"moe.experts.down.weight", "mlp.experts.down_exps.weight", kStacked},
    {"moe.experts.gate.weight", "mlp.experts.gate_up_exps.weight", kGateHalf},
    {"moe.experts.up.weight", "mlp.experts.gate_up_exps.weight", kUpHalf}};

}  // namespace

std::span<const TensorName> decoder_names() { return kDecoder; }
std::span<const TensorName> qkv_bias_names() { return kQkvBias; }
std::span<const TensorName> o_bias_name() { return kOBias; }
std::span<const TensorName> qk_norm_names() { return kQkNorm; }
std::span<const TensorName> mlp_names() { return kMlp; }
std::span<const TensorName> mlp_bias_names() { return kMlpBias; }
std::span<const TensorName> moe_names() { return kMoe; }
std::span<const TensorName> sparse_moe_names() { return kSparseMoe; }
std::span<const TensorName> stacked_moe_names() { return kStackedMoe; }

}  // namespace moe
