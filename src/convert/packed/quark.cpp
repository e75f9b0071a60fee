// SPDX-License-Identifier: MIT
// Reads the configuration's weights, refuses algorithms that change other matrices, and calls the
// decoder of FP8 or FP4.
#include "src/convert/packed/quark.h"

#include <algorithm>

#include "src/convert/arch/config_keys.h"
#include "src/convert/packed/fp4_checkpoint.h"
#include "src/convert/packed/fp8_checkpoint.h"

namespace moe {
namespace {

constexpr const char* kOthers = "fp8_e4m3 and fp4 with a power of two for each 32 inputs are";

// Quark merges what these multiply inputs with into the matrices before.
void refuse_algorithms(const JsonNode& quantization) {
  constexpr const char* kKey = "algo_config";
  constexpr const char* kMerged[] = {"autosmoothquant", "awq", "gptq", "gptaq", "qronos", "smooth"};
  if (!quantization.has(kKey)) return;
  for (const JsonNode& algorithm : quantization.at(kKey).elements()) {
    const std::string name = algorithm.at("name").string();
    if (std::count(std::begin(kMerged), std::end(kMerged), name) != 0) continue;
    fail_value(algorithm.at("name"), "convert a checkpoint without it");
  }
}

// The weights of all layers, and those of layers that differ.
std::vector<JsonNode> find_weights(const JsonNode& quantization) {
  constexpr const char* kKey = "weight";
  std::vector<JsonNode> out;
  const auto add = [&](const JsonNode& layer) {
    if (layer.has(kKey)) out.push_back(layer.at(kKey));
  };
  add(quantization.at("global_quant_config"));
  for (const char* differing : {"layer_quant_config", "layer_type_quant_config"}) {
    if (!quantization.has(differing)) continue;
    const JsonNode layers = quantization.at(differing);
    if (!layers.value().is_object()) layers.fail_expected("an object");
    for (const auto& [name, layer] : layers.value().items()) add(layers.at(name.c_str()));
  }
  return out;
}

void check_fp4(const JsonNode& weights) {
  (void)weights.at("qscheme").choice({"per_group"});
  if (weights.at("group_size").value() != 32) fail_value(weights.at("group_size"), kOthers);
  if (weights.string("scale_format", "") != "e8m0") fail_value(weights.at("scale_format"), kOthers);
}

Fp8Block read_block(const JsonNode& weights) {
  const bool channel = weights.at("qscheme").choice({"per_tensor", "per_channel"}) == 1;
  return channel ? Fp8Block{1, 0} : Fp8Block{};
}

}  // namespace

void unpack_quark(Checkpoint* checkpoint, const JsonNode& quantization) {
  refuse_algorithms(quantization);
  Fp8Scheme fp8{says_method(quantization, "quark"), {"_scale"}, {}};
  bool fp4 = false;
  for (const JsonNode& weights : find_weights(quantization)) {
    if (weights.value().is_array()) fail_value(weights, kOthers);
    const JsonNode type = weights.at("dtype");
    if (type.value() == "fp8_e4m3") {
      fp8.blocks.push_back(read_block(weights));
    } else if (type.value() == "fp4") {
      check_fp4(weights);
      fp4 = true;
    } else {
      fail_value(type, kOthers);
    }
  }
  if (!fp8.blocks.empty()) unpack_fp8(checkpoint, fp8);
  if (fp4) unpack_fp4(checkpoint, kFp4OfQuark, fp8.says);
}

}  // namespace moe
