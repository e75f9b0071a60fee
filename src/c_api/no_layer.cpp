// SPDX-License-Identifier: MIT
// The one-layer API of a build without it (MOE_LAYER=OFF): programs link and get an error.

#include "src/c_api/handles.h"

namespace moe {
namespace {

moe_status refuse_layer(moe_error* error) {
  return deliver(
      Status::error(MOE_ERR_UNSUPPORTED, "this build has no single layers (MOE_LAYER=OFF)"), error);
}

}  // namespace
}  // namespace moe

moe_status moe_layer_create(moe_env*, const moe_layer_params*, moe_layer**, moe_error* error) {
  return moe::refuse_layer(error);
}

void moe_layer_free(moe_layer*) {}

moe_status moe_layer_forward(moe_layer*, const float*, size_t, float*, moe_error* error) {
  return moe::refuse_layer(error);
}
