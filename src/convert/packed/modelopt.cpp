// SPDX-License-Identifier: MIT
// Reads which algorithm the configuration names, for all layers or layer by layer, and calls the
// decoder.
#include "src/convert/packed/modelopt.h"

#include "src/convert/arch/config_keys.h"
#include "src/convert/packed/fp4_checkpoint.h"
#include "src/convert/packed/fp8_checkpoint.h"

namespace moe {
namespace {

constexpr const char* kAlgorithm = "quant_algo";
constexpr const char* kInner = "quantization";
constexpr const char* kMixed = "MIXED_PRECISION";  // each layer has one

struct Algorithm {
  const char* name;
  bool fp4 = false;
  Fp8Block block = {};  // of FP8
};

constexpr Algorithm kAlgorithms[] = {{"FP8"},
                                     {"FP8_PER_CHANNEL_PER_TOKEN", false, {1, 0}},
                                     {"FP8_PB_WO", false, {128, 128}},
                                     {"fp8_pb_wo", false, {128, 128}},
                                     {"MXFP8", false, {1, 32}},
                                     {"NVFP4", true},
                                     {"W4A16_NVFP4", true}};

const Algorithm& find_algorithm(const JsonNode& quantization) {
  const JsonNode node = quantization.at(kAlgorithm);
  const std::string name = node.string();
  for (const Algorithm& known : kAlgorithms) {
    if (name == known.name) return known;
  }
  fail_value(node,
             "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, MXFP8, NVFP4, W4A16_NVFP4 and "
             "MIXED_PRECISION of these are; or convert an unquantised checkpoint of the model");
}

std::vector<const Algorithm*> find_algorithms(const JsonNode& quantization) {
  if (quantization.at(kAlgorithm).value() != kMixed) return {&find_algorithm(quantization)};
  const JsonNode layers = quantization.at("quantized_layers");
  if (!layers.value().is_object()) layers.fail_expected("an object");
  std::vector<const Algorithm*> out;
  for (const auto& [name, layer] : layers.value().items()) {
    out.push_back(&find_algorithm(layers.at(name.c_str())));
  }
  return out;
}

}  // namespace

void unpack_modelopt(Checkpoint* checkpoint, const JsonNode& says) {
  const JsonNode quantization = says.has(kInner) ? says.at(kInner) : says;
  if (!quantization.has(kAlgorithm)) return;  // only the cache is quantised
  Fp8Scheme fp8{says_method(says, "modelopt"), {"_scale"}, {}};
  bool fp4 = false;
  for (const Algorithm* algorithm : find_algorithms(quantization)) {
    fp4 |= algorithm->fp4;
    if (!algorithm->fp4) fp8.blocks.push_back(algorithm->block);
  }
  if (!fp8.blocks.empty()) unpack_fp8(checkpoint, fp8);
  if (fp4) unpack_fp4(checkpoint, kFp4OfModelOpt, fp8.says);
}

}  // namespace moe
