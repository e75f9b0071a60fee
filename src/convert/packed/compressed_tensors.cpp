// SPDX-License-Identifier: MIT
// Reads the groups of the configuration and passes each one's matrices to the decoder of its
// format.
#include "src/convert/packed/compressed_tensors.h"

#include "src/convert/arch/config_keys.h"
#include "src/convert/packed/fp4_checkpoint.h"
#include "src/convert/packed/fp8_checkpoint.h"
#include "src/convert/packed/integer_codes.h"

namespace moe {
namespace {

constexpr int64_t kMaxGroup = 1 << 20;
constexpr const char* kSays = "config.json: quantization_config says compressed-tensors";

/// `weights`: of all groups that have the format.
using Unpack = void (*)(Checkpoint* checkpoint, std::span<const JsonNode> weights);

Fp8Block read_fp8_strategy(const JsonNode& weights) {
  switch (weights.at("strategy").choice({"tensor", "channel", "group", "block"})) {
    case 0:
      return {};
    case 1:
      return {1, 0};
    case 2:
      return {1, weights.at("group_size").integer(1, kMaxGroup)};
    default:
      return read_fp8_block(weights.at("block_structure"));
  }
}

void require_bits(const JsonNode& weights, int64_t bits) {
  const JsonNode found = weights.at("num_bits");
  if (found.integer(1, 32) != bits) fail_value(found, std::to_string(bits) + " is");
}

void unpack_fp8_groups(Checkpoint* checkpoint, std::span<const JsonNode> weights) {
  Fp8Scheme scheme{kSays, {"_scale"}, {}};
  for (const JsonNode& group : weights) {
    require_bits(group, 8);
    scheme.blocks.push_back(read_fp8_strategy(group));
  }
  unpack_fp8(checkpoint, scheme);
}

void unpack_fp4_groups(Checkpoint* checkpoint, std::span<const JsonNode> weights) {
  for (const JsonNode& group : weights) require_bits(group, 4);
  unpack_fp4(checkpoint, kFp4OfCompressedTensors, kSays);
}

struct Format {
  const char* name;
  const char* type;  // of the weights
  Unpack unpack;
};

constexpr Format kFormats[] = {{"pack-quantized", "int", unpack_words},
                               {"int-quantized", "int", unpack_bytes},
                               {"naive-quantized", "int", unpack_bytes},
                               {"naive-quantized", "float", unpack_fp8_groups},
                               {"float-quantized", "float", unpack_fp8_groups},
                               {"mxfp8-quantized", "float", unpack_fp8_groups},
                               {"nvfp4-pack-quantized", "float", unpack_fp4_groups},
                               {"mxfp4-pack-quantized", "float", unpack_fp4_groups}};
constexpr Unpack kUnpacks[] = {unpack_words, unpack_bytes, unpack_fp8_groups, unpack_fp4_groups};

std::string format_names() {
  std::string names, last;
  for (const Format& format : kFormats) {
    if (format.name == last) continue;
    names += (names.empty() ? "" : ", ") + std::string(format.name);
    last = format.name;
  }
  return names;
}

Unpack find_unpack(const JsonNode& format, const JsonNode& weights) {
  const std::string name = format.string(), type = weights.string("type", "int");
  const char* other = nullptr;
  for (const Format& known : kFormats) {
    if (name != known.name) continue;
    if (type == known.type) return known.unpack;
    other = known.type;
  }
  if (other == nullptr) fail_value(format, format_names() + " are");
  fail_value(weights.at("type"), std::string(other) + " is in format " + name);
}

/// Groups that quantise only inputs or the cache have no weights.
struct Group {
  JsonNode weights;
  Unpack unpack;
};

std::vector<Group> read_groups(const JsonNode& quantization) {
  const JsonNode groups = quantization.at("config_groups");
  if (!groups.value().is_object()) groups.fail_expected("an object");
  std::vector<Group> out;
  for (const auto& [name, value] : groups.value().items()) {
    const JsonNode group = groups.at(name.c_str());
    if (!group.has("weights")) continue;
    const JsonNode weights = group.at("weights");
    const JsonNode& owner = group.has("format") ? group : quantization;
    out.push_back({weights, find_unpack(owner.at("format"), weights)});
  }
  if (out.empty() && !quantization.has("kv_cache_scheme"))
    groups.fail_expected("a group with weights");
  return out;
}

// Such weights are to be multiplied with inputs that were rotated by other matrices.
void refuse_transforms(const JsonNode& quantization) {
  const char* const key = "transform_config";
  if (!quantization.has(key) || !quantization.at(key).has("config_groups")) return;
  const JsonNode groups = quantization.at(key).at("config_groups");
  if (groups.value().is_object() && groups.value().items().size() == 0) return;
  fail_value(groups, "convert a checkpoint without transforms");
}

}  // namespace

void unpack_compressed_tensors(Checkpoint* checkpoint, const JsonNode& quantization) {
  refuse_transforms(quantization);
  const std::vector<Group> groups = read_groups(quantization);
  for (const Unpack unpack : kUnpacks) {
    std::vector<JsonNode> weights;
    for (const Group& group : groups) {
      if (group.unpack == unpack) weights.push_back(group.weights);
    }
    if (!weights.empty()) unpack(checkpoint, weights);
  }
}

}  // namespace moe
