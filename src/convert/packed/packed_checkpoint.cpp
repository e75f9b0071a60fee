// SPDX-License-Identifier: MIT
// The table of methods; recognises packed tensors even where no configuration names a method.
#include "src/convert/packed/packed_checkpoint.h"

#include "formats/import/failure.h"
#include "src/convert/arch/config_keys.h"
#include "src/convert/packed/bitnet.h"
#include "src/convert/packed/bitsandbytes.h"
#include "src/convert/packed/compressed_tensors.h"
#include "src/convert/packed/fp8_checkpoint.h"
#include "src/convert/packed/integer_codes.h"
#include "src/convert/packed/modelopt.h"
#include "src/convert/packed/quark.h"
#include "src/convert/packed/unused_scales.h"

namespace moe {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kKey = "quantization_config";
constexpr const char* kText = "text_config";

struct Method {
  const char* name;
  void (*unpack)(Checkpoint* checkpoint, const JsonNode& quantization);
  // The keys that are known. Empty: unknown ones are ignored, since programs write many about their
  // work.
  std::span<const char* const> known = {};
};

constexpr const char* kBitnetKeys[] = {"quant_method",      "linear_class",
                                       "quantization_mode", "modules_to_not_convert",
                                       "use_rms_norm",      "rms_norm_eps"};

constexpr Method kMethods[] = {{"awq", unpack_awq},
                               {"bitnet", unpack_bitnet, kBitnetKeys},
                               {"bitsandbytes", unpack_bitsandbytes},
                               {"compressed-tensors", unpack_compressed_tensors},
                               {"fp8", unpack_fp8_method},
                               {"gptq", unpack_gptq},
                               {"modelopt", unpack_modelopt},
                               {"quark", unpack_quark}};

// Null: read by the importers, or unknown.
const Method* find_method(const JsonNode& quantization) {
  const bool bitsandbytes = is_bitsandbytes(quantization);
  if (!bitsandbytes && !quantization.has("quant_method")) return nullptr;
  const Json name = bitsandbytes ? Json("bitsandbytes") : quantization.at("quant_method").value();
  for (const Method& known : kMethods) {
    if (name == known.name) return &known;
  }
  return nullptr;
}

// The keys left for the importers to report: those that nobody knows. Null: there are none.
Json left_of(const Method& method, const JsonNode& quantization) {
  Json left = Json::object();
  if (!method.known.empty()) {
    for (const std::string& key : quantization.others(method.known)) {
      if (quantization.has(key.c_str())) left[key] = quantization.at(key.c_str()).value();
    }
  }
  if (left.size() == 0) return nullptr;
  left["quant_method"] = nullptr;
  return left;
}

struct Trace {
  std::string_view end;  // of a tensor's name
  const char* method;
};

// BitNet's packed weights also have a NAME.weight_scale, and need no configuration.
constexpr Trace kTraces[] = {{".qweight", "GPTQ or AWQ"},
                             {".weight_packed", "compressed-tensors"},
                             {".weight_scale_2", "ModelOpt's NVFP4"},
                             {".weight_scale_inv", "FP8"},
                             {".weight.absmax", "bitsandbytes"},
                             {".SCB", "LLM.int8 of bitsandbytes"}};

// Null: it may belong to a checkpoint that is not quantised.
const char* method_of(const SourceTensor& tensor) {
  for (const Trace& trace : kTraces) {
    if (tensor.name.ends_with(trace.end)) return trace.method;
  }
  const bool codes = tensor.name.ends_with(".weight");
  if (codes && tensor.type == SourceType::kI8) return "codes of 8 bits";
  if (codes && tensor.type == SourceType::kF8E4M3) return "FP8";
  return nullptr;
}

void refuse_undescribed(const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const char* const method = method_of(tensor);
    if (method == nullptr) continue;
    fail(MOE_ERR_FORMAT,
         "tensor %.200s: looks like %s, but config.json has no quantization_config, which says how "
         "to read it; take config.json from the published checkpoint",
         name.c_str(), method);
  }
}

struct OlderFile {
  const char* name;
  void (*unpack)(Checkpoint* checkpoint, const JsonNode& quantization);
};

// Files beside a config.json that says nothing.
void unpack_by_older_files(Checkpoint* checkpoint) {
  constexpr OlderFile kFiles[] = {{"quantize_config.json", unpack_gptq},
                                  {"hf_quant_config.json", unpack_modelopt}};
  for (const auto& [name, unpack] : kFiles) {
    if (!checkpoint->has_document(name)) continue;
    const Json document = checkpoint->document(name);
    unpack(checkpoint, JsonNode(document, name));
    return drop_unused_scales(checkpoint);
  }
  refuse_undescribed(*checkpoint);
}

// Models that see images have it beside their text part, within, or in both places.
bool has_within(const Json& document) {
  const Json* const text = document.find(kText);
  return text != nullptr && text->is_object() && JsonNode(*text, kText).has(kKey);
}

}  // namespace

void unpack_checkpoint(Checkpoint* checkpoint) {
  if (!checkpoint->has_document(kConfig)) return;
  Json document = checkpoint->document(kConfig);
  const JsonNode config(document, kConfig);
  if (!document.is_object()) return;
  const bool beside = config.has(kKey), within = has_within(document);
  if (!beside && !within) return unpack_by_older_files(checkpoint);
  if (beside && within) check_same(config.at(kKey), config.at(kText).at(kKey));
  const JsonNode quantization = beside ? config.at(kKey) : config.at(kText).at(kKey);
  const Method* method = find_method(quantization);
  if (method == nullptr) return;
  method->unpack(checkpoint, quantization);
  drop_unused_scales(checkpoint);
  Json left = left_of(*method, quantization);
  if (within) document[kText].erase(kKey);
  (beside ? document : document[kText])[kKey] = std::move(left);
  checkpoint->put_document(kConfig, std::move(document));
}

}  // namespace moe
