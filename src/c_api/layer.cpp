// SPDX-License-Identifier: MIT
// One MoE layer on its own.

#include "src/run/layer.h"

#include "formats/moe/names.h"
#include "kernels/router/text.h"
#include "quant/formats.h"
#include "src/c_api/handles.h"
#include "src/model/names.h"

struct moe_layer {
  explicit moe_layer(moe_env& e) : env(&e) {}

  const moe::Ref<moe_env> env;
  moe::Box<moe::MoeLayer> layer;
};

namespace moe {
namespace {

Status parse_activation(const char* text, Activation* out) {
  if (text == nullptr) text = "silu";
  if (parse_in(kActivations, text, out)) return {};
#define MOE_ACTIVATION(value, name, function) " " name
  return Status::error(
      MOE_ERR_ARGUMENT,
      "params.activation: expected one of" MOE_ACTIVATIONS(MOE_ACTIVATION) ", found '%.40s'", text);
#undef MOE_ACTIVATION
}

Status parse_formats(const moe_layer_params& p, LayerSpec* spec) {
  const char* name = p.weights == nullptr ? "f32" : p.weights;
  const WeightFormat* format = find_weight_format(name);
  if (format == nullptr || !format->can_round()) {
    return Status::error(MOE_ERR_ARGUMENT, "params.weights: expected one of %s, found '%.40s'",
                         weight_format_names(), name);
  }
  spec->format = format->id;
  spec->precision = format->act;
  if (p.activations != nullptr && !parse_in(kActPrecisions, p.activations, &spec->precision)) {
    return Status::error(
        MOE_ERR_ARGUMENT,
        "params.activations: expected f32, a8, a8_block or a8_group, found '%.40s'", p.activations);
  }
  return {};
}

Status expert_weights(const moe_expert_weights* given, ExpertWeights* out) {
  moe_expert_weights e{};
  MOE_TRY(read_params(given, "expert", &e));
  *out = {e.gate, e.up, e.down, e.gate_bias, e.up_bias, e.down_bias, nullptr};
  return {};
}

// The first says how far apart they are.
Status all_experts(const moe_layer_params& p, Array<ExpertWeights>* out) {
  if (p.experts == nullptr) return null_argument("params.experts");
  MOE_TRY(out->resize(static_cast<size_t>(p.n_experts)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(p.experts);
  const uint32_t distance = p.experts->struct_size;
  if (distance % alignof(moe_expert_weights) != 0) {
    return Status::error(MOE_ERR_ARGUMENT, "params.experts[0].struct_size: expected %zu, found %u",
                         sizeof *p.experts, distance);
  }
  for (size_t i = 0; i < out->size(); ++i, bytes += distance) {
    const auto* e = reinterpret_cast<const moe_expert_weights*>(bytes);
    if (e->struct_size != distance) {
      return Status::error(MOE_ERR_ARGUMENT,
                           "params.experts[%zu].struct_size: expected %u, found %u", i, distance,
                           e->struct_size);
    }
    MOE_TRY(expert_weights(e, &(*out)[i]).with_context("params.experts[%zu]", i));
  }
  return {};
}

Status read_router(const moe_router* given, RouterConfig* out) {
  moe_router router{};
  MOE_TRY(read_params(given, "params.router", &router));
  return layer_router(router, out);
}

Status layer_spec(const moe_layer_params& p, Array<ExpertWeights>* experts, LayerSpec* spec) {
  MOE_TRY(read_router(p.router, &spec->router));
  MOE_TRY(parse_activation(p.activation, &spec->act.kind));
  MOE_TRY(parse_formats(p, spec));
  if (p.n_experts < 1 || p.n_experts > 65536) {
    return Status::error(MOE_ERR_RANGE, "params.n_experts: expected 1..65536, found %d",
                         p.n_experts);
  }
  MOE_TRY(all_experts(p, experts));
  spec->d_model = p.d_model;
  spec->d_ff = p.d_ff;
  spec->n_experts = p.n_experts;
  spec->n_subheads = p.n_subheads == 0 ? 1 : p.n_subheads;
  spec->max_rows = p.max_rows == 0 ? 256 : p.max_rows;
  spec->experts = experts->span();
  spec->router_weight = p.router_weight;
  spec->router_bias = p.router_bias;
  spec->router_proj = p.router_proj;
  spec->d_e = p.d_e;
  spec->shared_d_ff = p.shared_d_ff;
  if (p.shared_d_ff != 0) {
    if (p.shared == nullptr) return null_argument("params.shared");
    MOE_TRY(expert_weights(p.shared, &spec->shared).with_context("params.shared"));
  }
  spec->shared_gate = p.shared_gate;
  spec->head = p.head;
  spec->head_bias = p.head_bias;
  spec->merge = p.merge;
  spec->merge_bias = p.merge_bias;
  return {};
}

void destroy(moe_layer* layer) {
  const Ref<moe_env> env = layer->env;  // its allocator frees the layer
  if (env->out_of_reach()) return;
  layer->~moe_layer();
  deallocate(env->allocator, layer, sizeof *layer);
}

Status create_layer(moe_env* env, const moe_layer_params* given, moe_layer** out) {
  MOE_TRY(check_env(env));
  if (given == nullptr) return null_argument("params");
  if (out == nullptr) return null_argument("out");
  moe_layer_params p{};
  MOE_TRY(read_params(given, "params", &p));
  Array<ExpertWeights> experts(env->allocator);
  LayerSpec spec;
  MOE_TRY(layer_spec(p, &experts, &spec));
  MOE_ASSIGN(Box<moe_layer> handle, make_box<moe_layer>(env->allocator, *env));
  MOE_ASSIGN(handle->layer, MoeLayer::create(*env->device.get(), spec, env->allocator));
  *out = handle.release();
  return {};
}

Status forward(moe_layer* layer, const float* x, size_t n, float* y) {
  if (layer == nullptr) return null_argument("layer");
  MOE_TRY(check_env(layer->env.get()));
  if (n == 0) return {};
  if (x == nullptr) return null_argument("x");
  if (y == nullptr) return null_argument("y");
  size_t size = 0;
  if (!checked_mul(n, static_cast<size_t>(layer->layer->d_model()), &size)) {
    return Status::error(MOE_ERR_RANGE, "n: %zu rows of %d overflow", n, layer->layer->d_model());
  }
  return layer->layer->forward({x, size}, nullptr, y);
}

}  // namespace
}  // namespace moe

moe_status moe_layer_create(moe_env* env, const moe_layer_params* params, moe_layer** out,
                            moe_error* error) {
  return moe::deliver(moe::create_layer(env, params, out), error);
}

void moe_layer_free(moe_layer* layer) {
  if (layer != nullptr) moe::destroy(layer);
}

moe_status moe_layer_forward(moe_layer* layer, const float* x, size_t n, float* y,
                             moe_error* error) {
  return moe::deliver(moe::forward(layer, x, n, y), error);
}
