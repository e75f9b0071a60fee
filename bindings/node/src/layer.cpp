// SPDX-License-Identifier: MIT
// One MoE layer.

#include "layer.h"

#include "owner.h"

namespace moe_node {
namespace {

struct LayerCall {
  LayerCall(const Js& js, napi_value options) : env_options(js, options), weights(js, options) {}
  moe_status run(moe_error* error) {
    const moe_status status = moe_env_create(&env_options.params, &env.pointer, error);
    if (status != MOE_OK) return status;
    return moe_layer_create(env.pointer, &weights.params, &layer.pointer, error);
  }
  EnvOptions env_options;
  LayerWeights weights;
  Env env;  // the layer keeps it
  Layer layer;
};

}  // namespace

napi_value create_layer(const Js& js, const Arguments& a) {
  auto call = std::make_shared<LayerCall>(js, a[0]);
  return Work::start(
      js, {}, false, [call](Work&, moe_error* e) { return call->run(e); },
      [call](const Js& to) {
        Handle* layer = make_handle("layer", call->layer, nullptr);
        layer->set_d_model(static_cast<size_t>(call->weights.params.d_model));
        return wrap(to, layer);
      });
}

/// layer_forward(layer, x)
napi_value layer_forward(const Js& js, const Arguments& a) {
  auto rows = std::make_shared<std::vector<float>>(js.floats(a[1], "x"));
  const size_t d = unwrap(js, a[0])->d_model();
  if (rows->size() % d != 0) {
    fail(MOE_ERR_SHAPE, "x: expected rows of " + std::to_string(d) + " numbers, found " +
                            std::to_string(rows->size()) + " numbers");
  }
  Handle* handle = nullptr;
  moe_layer* layer = idle<moe_layer>(js, a[0], &handle);
  return Work::start(
      js, {handle}, true,
      [=](Work&, moe_error* e) {
        return moe_layer_forward(layer, rows->data(), rows->size() / d, rows->data(), e);
      },
      [=](const Js& to) { return to.of(*rows); });
}

}  // namespace moe_node
