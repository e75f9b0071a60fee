// SPDX-License-Identifier: MIT
// Reads the keys prism.hadamard.*: which tensors are rotated, in blocks of which size, with which
// signs.
#include "src/convert/rotation.h"

#include <algorithm>
#include <string_view>

#include "formats/import/failure.h"
#include "src/convert/arch/config_keys.h"

namespace moe {
namespace prism {
namespace {

constexpr std::string_view kPrefix = "prism.hadamard.";
constexpr const char* kBlock = "prism.hadamard.block_size";
constexpr const char* kVersion = "prism.hadamard.version";
constexpr const char* kTied = "prism.hadamard.tied_output";
constexpr const char* kNames = "prism.hadamard.weight_names";
constexpr const char* kInverse = "prism.hadamard.inverse_weight_names";
constexpr const char* kMode = "prism.hadamard.sign_mode";
constexpr const char* kWidths = "prism.hadamard.sign_widths";
constexpr const char* kValues = "prism.hadamard.sign_values";
constexpr const char* kGrouped = "prism.hadamard.gdn_v_grouped";
constexpr const char* kTransform = "prism.hadamard.transform";
constexpr const char* kAxis = "prism.hadamard.axis";

constexpr const char* kEmbedding = "token_embd.weight";
constexpr int32_t kMaxWidth = 1 << 20;

bool is_rotated(const Checkpoint& checkpoint) {
  if (checkpoint.metadata().is_null()) return false;
  for (const auto& [key, value] : checkpoint.metadata().items()) {
    if (key.starts_with(kPrefix)) return true;
  }
  return false;
}

void check_keys(const JsonNode& keys) {
  constexpr const char* kKnown[] = {kBlock,  kVersion, kTied,    kNames,     kInverse, kMode,
                                    kWidths, kValues,  kGrouped, kTransform, kAxis};
  std::vector<UnknownKey> unknown;
  for (const auto& [key, value] : keys.value().items()) {
    const auto is = [&key = key](const char* known) { return key == known; };
    if (!key.starts_with(kPrefix) || std::any_of(std::begin(kKnown), std::end(kKnown), is)) {
      continue;
    }
    unknown.emplace_back(key, value);
  }
  if (!unknown.empty()) fail_unknown_keys(keys.path(), unknown);
  for (const auto& [key, value] : {std::pair{kTransform, "normalized-sylvester-walsh-hadamard"},
                                   {kAxis, "input-last-dimension"}}) {
    if (keys.at(key).string() != value) {
      fail_value(keys.at(key), "only " + std::string(value) + " is");
    }
  }
}

// Version 2 is that of models whose rotated embedding is the output matrix too.
void check_version(const Checkpoint& checkpoint, const JsonNode& keys) {
  const int64_t version = keys.at(kVersion).integer(1, 2);
  const bool tied = keys.boolean(kTied, false);
  const bool own_head = checkpoint.find("output.weight") != nullptr;
  if (tied == (version == 2) && tied == !own_head) return;
  fail(MOE_ERR_FORMAT,
       "%s: %lld with %s = %s, and %s output.weight: expected 1 with an output matrix, or 2 with "
       "%s = true and without one",
       keys.at(kVersion).path().c_str(), static_cast<long long>(version), kTied,
       tied ? "true" : "false", own_head ? "there is" : "no", kTied);
}

void mark(Checkpoint* checkpoint, const JsonNode& name) {
  const std::string tensor = name.string();
  const SourceTensor* const found = checkpoint->find(tensor);
  if (found == nullptr || found->shape.size() != 2) {
    fail(MOE_ERR_FORMAT, "%s: \"%.200s\": there is no matrix of this name", name.path().c_str(),
         tensor.c_str());
  }
  checkpoint->set_rotated(tensor);
}

std::vector<uint8_t> read_signs(const JsonNode& values, int64_t first, int32_t width) {
  std::vector<uint8_t> bits((static_cast<size_t>(width) + 7) / 8);
  const Json& list = values.value();
  for (int32_t i = 0; i < width; ++i) {
    const Json& sign = list[static_cast<size_t>(first + i)];
    const bool minus = sign == -1;
    if (!minus && sign != 1) {
      fail(MOE_ERR_FORMAT, "%s[%lld]: expected 1 or -1", values.path().c_str(),
           static_cast<long long>(first + i));
    }
    bits[static_cast<size_t>(i / 8)] |= static_cast<uint8_t>((minus ? 1 : 0) << (i % 8));
  }
  return bits;
}

void read_all_signs(const JsonNode& keys, Imported* out) {
  const JsonNode widths = keys.at(kWidths), values = keys.at(kValues);
  if (!values.value().is_array()) values.fail_expected("an array");
  struct Part {
    int32_t width;
    int64_t first;
  };
  std::vector<Part> parts;
  int64_t n = 0;
  for (const JsonNode& width : widths.elements()) {
    parts.push_back({static_cast<int32_t>(width.integer(1, kMaxWidth)), n});
    n += parts.back().width;
  }
  if (parts.empty() || n != static_cast<int64_t>(values.value().size())) {
    fail(MOE_ERR_FORMAT, "%s: expected %lld signs, as %s says, found %zu", values.path().c_str(),
         static_cast<long long>(n), kWidths, values.value().size());
  }
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.width < b.width; });
  for (const Part& part : parts) {
    const std::vector<uint8_t>& bits =
        out->signs.emplace_back(read_signs(values, part.first, part.width));
    check(out->config.rotation.signs.push({part.width, bits.data()}));
  }
}

bool shares_input(const PlannedSegment& segment, Role role) {
  if (segment.part == Part::kFfn) return role == Role::kGate || role == Role::kUp;
  return segment.part == Part::kAttention &&
         (role == Role::kQ || role == Role::kK || role == Role::kV);
}

bool can_rotate(const ModelConfig& config, const PlannedSegment& segment, const Slot& slot) {
  if (slot.kind != SlotKind::kLinear && slot.kind != SlotKind::kVocab) return false;
  switch (segment.part) {
    case Part::kEmbedding:
    case Part::kMixer:
    case Part::kFfn:
      return true;
    case Part::kAttention:
      return config.layers[static_cast<size_t>(segment.layer)].attention.latent == 0;
    case Part::kHead:
      return slot.role == Role::kWeight && !config.head.dense;
    default:
      return false;
  }
}

}  // namespace
}  // namespace prism

void check_rotated(const ModelConfig& config, const PlannedSegment& segment) {
  const PlannedMatrix* first = nullptr;
  for (const PlannedMatrix& m : segment.matrices) {
    if (m.slot.rotated) {
      const char* const name = m.tensor->name.c_str();
      if (!prism::can_rotate(config, segment, m.slot)) {
        fail(MOE_ERR_UNSUPPORTED, "tensor %.200s: rotated inputs are not supported here", name);
      }
      if (!config.rotation.takes(m.slot.cols)) {
        fail(MOE_ERR_FORMAT,
             "tensor %.150s: its %d inputs are not whole blocks of %d, or have no signs", name,
             m.slot.cols, config.rotation.block);
      }
    }
    if (!prism::shares_input(segment, m.slot.role)) continue;
    if (first == nullptr) first = &m;
    if (m.slot.rotated == first->slot.rotated) continue;
    fail(MOE_ERR_UNSUPPORTED,
         "tensor %.100s reads the same inputs as %.100s, but only those of one are rotated",
         m.tensor->name.c_str(), first->tensor->name.c_str());
  }
}

void mark_rotated(Checkpoint* checkpoint) {
  using namespace prism;
  if (!is_rotated(*checkpoint)) return;
  const JsonNode keys(checkpoint->metadata(), checkpoint->path());
  check_keys(keys);
  for (const JsonNode& name : keys.at(kNames).elements()) {
    if (name.value() == kEmbedding) {
      fail_value(name, std::string("of the embedding only the key ") + kInverse + " is");
    }
    mark(checkpoint, name);
  }
  bool embedding = false;
  if (keys.has(kInverse)) {
    for (const JsonNode& name : keys.at(kInverse).elements()) {
      if (name.value() != kEmbedding) fail_value(name, std::string("only ") + kEmbedding + " is");
      mark(checkpoint, name);
      embedding = true;
    }
  }
  if (embedding || keys.boolean(kTied, false)) check_version(*checkpoint, keys);
}

void read_rotation(const Checkpoint& checkpoint, Imported* out) {
  using namespace prism;
  if (!is_rotated(checkpoint)) return;
  const JsonNode keys(checkpoint.metadata(), checkpoint.path());
  out->config.rotation.block = static_cast<int32_t>(keys.at(kBlock).integer(1, kMaxWidth));
  if (keys.choice(kMode, 0, {"identity", "explicit"}) == 1) read_all_signs(keys, out);
  const bool grouped = keys.boolean(kGrouped, false);
  out->locate = [locate = std::move(out->locate), grouped, &checkpoint](const SlotGroup& group,
                                                                        const Slot& slot) {
    Source source = locate(group, slot);
    const SourceTensor* const tensor = checkpoint.find(source.tensor);
    if (tensor == nullptr || !tensor->rotated) return source;
    // Value heads stand in the model's order where they were rotated, not in llama.cpp's.
    if (grouped) source.col_groups = {};
    if (!source.col_groups.pieces.empty() || source.col_stride != 1) {
      fail(MOE_ERR_UNSUPPORTED,
           "tensor %.150s: its inputs were rotated in another order than the model's (%s)",
           tensor->name.c_str(), kGrouped);
    }
    return source;
  };
}

}  // namespace moe
