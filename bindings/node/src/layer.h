// SPDX-License-Identifier: MIT
#pragma once
// The weights of one MoE layer, from JavaScript.

#include <deque>

#include "js.h"

namespace moe_node {

/// A moe_layer_params and what it points to.
class LayerWeights {
 public:
  LayerWeights(const Js& js, napi_value options) : js_(js), options_(options) {
    js.require_object(options);
    params.struct_size = sizeof params;
    params.d_model = js.int32(options, "dModel");
    params.d_ff = js.int32(options, "dFF");
    params.n_subheads = js.int32(options, "nSubheads");
    params.max_rows = js.int32(options, "maxRows");
    params.d_e = js.int32(options, "dE");
    params.shared_d_ff = js.int32(options, "sharedDFF");
    if (params.d_model < 1 || params.d_ff < 1 || params.d_e < 0 || params.shared_d_ff < 0 ||
        params.n_subheads < 0) {
      fail(MOE_ERR_RANGE, "dModel, dFF: expected 1..65536, and no other size below 0");
    }
    names();
    matrices();
  }

  moe_layer_params params = {};

 private:
  void names() {
    params.activation = text("activation");
    params.router = router(text("router"));
    params.weights = text("weights");
    params.activations = text("activations");
  }

  void matrices() {
    const int64_t d = params.d_model, d_in = d / (params.n_subheads > 1 ? params.n_subheads : 1);
    for (napi_value e : js_.list(js_.get(options_, "experts"), "experts")) {
      const std::string name = "experts[" + std::to_string(experts_.size()) + "]";
      experts_.push_back(expert(name, e, params.d_ff, d_in));
    }
    if (experts_.empty()) fail(MOE_ERR_ARGUMENT, "experts: expected at least one");
    const int64_t n = static_cast<int64_t>(experts_.size());
    params.n_experts = static_cast<int32_t>(n);
    params.experts = experts_.data();
    params.router_proj = array(options_, "routerProj", params.d_e * d_in);
    const int64_t width = params.router_proj != nullptr ? params.d_e : d_in;
    params.router_weight = array(options_, "routerWeight", n * width);
    params.router_bias = array(options_, "routerBias", n);
    napi_value shared = js_.get(options_, "shared");
    if (!js_.missing(shared)) {
      shared_ = expert("shared", shared, params.shared_d_ff, d);
      params.shared = &shared_;
    }
    params.shared_gate = array(options_, "sharedGate", d);
    params.head = array(options_, "head", d * d);
    params.head_bias = array(options_, "headBias", d);
    params.merge = array(options_, "merge", d * d);
    params.merge_bias = array(options_, "mergeBias", d);
  }

  moe_expert_weights expert(const std::string& name, napi_value from, int64_t d_ff, int64_t d_in) {
    js_.require_object(from, name.c_str());
    const std::string of = name + ".";
    moe_expert_weights e = {};
    e.struct_size = sizeof e;
    e.gate = array(from, "gate", d_ff * d_in, of);
    e.up = array(from, "up", d_ff * d_in, of);
    e.down = array(from, "down", d_in * d_ff, of);
    e.gate_bias = array(from, "gateBias", d_ff, of);
    e.up_bias = array(from, "upBias", d_ff, of);
    e.down_bias = array(from, "downBias", d_in, of);
    return e;
  }

  /// NULL: the library's default.
  const moe_router* router(const char* text) {
    if (text == nullptr) return nullptr;
    moe_error error;
    router_.struct_size = sizeof router_;
    check(moe_router_parse(text, &router_, &error), error);
    return &router_;
  }

  const char* text(const char* key) {
    napi_value value = js_.get(options_, key);
    if (js_.missing(value)) return nullptr;
    texts_.push_back(js_.c_text(value, key));
    return texts_.back().c_str();
  }

  /// A Float32Array of exactly `n` numbers, or NULL if the key is missing. `of`: what `from` is.
  const float* array(napi_value from, const char* key, int64_t n, const std::string& of = "") {
    napi_value value = js_.get(from, key);
    if (js_.missing(value)) return nullptr;
    const std::string name = of + key;
    arrays_.push_back(js_.floats(value, name.c_str()));
    if (static_cast<int64_t>(arrays_.back().size()) != n) {
      fail(MOE_ERR_SHAPE, name + ": expected " + std::to_string(n) + " numbers, found " +
                              std::to_string(arrays_.back().size()));
    }
    return arrays_.back().data();
  }

  const Js js_;
  napi_value options_;
  std::deque<std::vector<float>> arrays_;
  std::deque<std::string> texts_;
  std::vector<moe_expert_weights> experts_;
  moe_expert_weights shared_ = {};
  moe_router router_ = {};
};

}  // namespace moe_node
