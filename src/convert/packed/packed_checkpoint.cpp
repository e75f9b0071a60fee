#include "src/convert/packed/packed_checkpoint.h"

#include "src/convert/packed/bitsandbytes.h"
#include "src/convert/packed/compressed_tensors.h"
#include "src/convert/packed/fp8_checkpoint.h"
#include "src/convert/packed/integer_codes.h"
#include "src/convert/packed/modelopt.h"
#include "src/convert/packed/quark.h"

namespace moe {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kKey = "quantization_config";

struct Method {
  const char* name;
  void (*unpack)(Checkpoint* checkpoint, const JsonNode& quantization);
};

constexpr Method kMethods[] = {{"awq", unpack_awq},
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

// Files beside a config.json that says nothing.
void unpack_by_older_files(Checkpoint* checkpoint) {
  constexpr const char* kAutoGptq = "quantize_config.json";
  constexpr const char* kModelOpt = "hf_quant_config.json";
  if (checkpoint->has_document(kAutoGptq)) {
    const Json document = checkpoint->document(kAutoGptq);
    unpack_gptq(checkpoint, JsonNode(document, kAutoGptq));
  } else if (checkpoint->has_document(kModelOpt)) {
    const Json document = checkpoint->document(kModelOpt);
    unpack_modelopt(checkpoint, JsonNode(document, kModelOpt));
  }
}

}  // namespace

void unpack_checkpoint(Checkpoint* checkpoint) {
  if (!checkpoint->has_document(kConfig)) return;
  Json document = checkpoint->document(kConfig);
  const JsonNode config(document, kConfig);
  if (!document.is_object()) return;
  if (!config.has(kKey)) return unpack_by_older_files(checkpoint);
  const JsonNode quantization = config.at(kKey);
  const Method* method = find_method(quantization);
  if (method == nullptr) return;
  method->unpack(checkpoint, quantization);
  document.erase(kKey);
  checkpoint->put_document(kConfig, std::move(document));
}

}  // namespace moe
