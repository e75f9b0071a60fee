// SPDX-License-Identifier: MIT
// Encodes a file's text with the checkpoint's tokenizer; refuses files that are no text.
#include "src/convert/calibration/calibration_text.h"

#include "formats/import/failure.h"
#include "formats/import/safetensors.h"
#include "formats/moe/little_endian.h"

namespace moe {
namespace {

void refuse_safetensors(std::string_view text) {
  uint64_t n_header = 0;
  if (text.size() <= sizeof n_header || text[sizeof n_header] != '{') return;
  n_header = load_le<uint64_t>(reinterpret_cast<const uint8_t*>(text.data()));
  if (n_header > kMaxSafetensorsHeader) return;
  fail(MOE_ERR_ARGUMENT,
       "calibration: expected a text, found a safetensors file; saved statistics are an option of "
       "their own");
}

}  // namespace

CalibrationText read_calibration_text(std::string_view text, const ModelConfig& config,
                                      const std::optional<TokenizerData>& tokenizer) {
  if (config.is_encoder_decoder()) {
    fail(MOE_ERR_UNSUPPORTED,
         "calibration: the checkpoint is an encoder-decoder, which no single text calibrates");
  }
  if (!tokenizer) {
    fail(MOE_ERR_ARGUMENT, "calibration: the checkpoint has no tokenizer to read a text with");
  }
  refuse_safetensors(text);
  CalibrationText out;
  out.tokens = encode_text(*tokenizer, static_cast<uint32_t>(config.vocab_size), text);
  const int32_t begin_id = config.begin_id();
  out.prefix.assign(tokenizer->prefix.begin(), tokenizer->prefix.end());
  if (out.prefix.empty() && begin_id >= 0) out.prefix = {begin_id};
  const size_t least = out.prefix.empty() ? 2 : 1;
  if (out.tokens.size() < least) {
    fail(MOE_ERR_ARGUMENT, "calibration: expected a text of %zu tokens or more, found %zu", least,
         out.tokens.size());
  }
  return out;
}

}  // namespace moe
