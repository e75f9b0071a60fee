// SPDX-License-Identifier: MIT
// Writes receipts.
#include "src/serve/receipt.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

namespace moe_serve {
namespace {

const char* path_of(moe_endpoint endpoint) {
  switch (endpoint) {
    case MOE_ENDPOINT_CHAT:
      return "/v1/chat/completions";
    case MOE_ENDPOINT_MESSAGES:
      return "/v1/messages";
    case MOE_ENDPOINT_RESPONSES:
      return "/v1/responses";
    case MOE_ENDPOINT_EMBEDDINGS:
      return "/v1/embeddings";
    case MOE_ENDPOINT_RERANK:
      return "/v1/rerank";
    default:
      return "/v1/completions";
  }
}

const char* finish_name(moe_finish finish) {
  switch (finish) {
    case MOE_FINISH_EOS:
      return "eos";
    case MOE_FINISH_STOP:
      return "stop";
    case MOE_FINISH_CONTEXT:
      return "context";
    case MOE_FINISH_CALLBACK:  // the reply ends with its first call of a tool
      return "call";
    default:
      return "length";
  }
}

/// XXH3, 128 bits, of numbers as four little-endian bytes each.
class NumberHash {
 public:
  NumberHash() { XXH3_128bits_reset(&state_); }
  void add(uint32_t value) {
    unsigned char bytes[4];
    for (unsigned i = 0; i < 4; ++i) bytes[i] = static_cast<unsigned char>(value >> (8 * i));
    XXH3_128bits_update(&state_, bytes, sizeof bytes);
  }
  /// The number of ids, then each.
  void add(const std::vector<int32_t>& ids) {
    add(static_cast<uint32_t>(ids.size()));
    for (const int32_t id : ids) add(static_cast<uint32_t>(id));
  }
  std::string digits() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_);
    return digits_of(hash.high64) + digits_of(hash.low64);
  }

 private:
  XXH3_state_t state_;
};

uint32_t bits_of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// And their hash.
void add_tokens(Json& receipt, const ReceiptTokens& tokens) {
  NumberHash hash;
  receipt["prompts"] = Json::array();
  for (const auto* prompt : tokens.prompts) {
    receipt["prompts"].push_back(*prompt);
    hash.add(*prompt);
  }
  if (tokens.vectors != nullptr) {
    for (const float value : *tokens.vectors) hash.add(bits_of(value));
  } else {
    receipt["texts"] = Json::array();
  }
  for (size_t i = 0; i < tokens.texts.size(); ++i) {
    receipt["texts"].push_back(
        {{"tokens", *tokens.texts[i]}, {"finish", finish_name(tokens.finishes[i])}});
    hash.add(*tokens.texts[i]);
  }
  receipt["hash"] = hash.digits();
}

}  // namespace

Json write_receipt(const Host& host, moe_endpoint endpoint, const Json& request,
                   const ReceiptTokens& tokens) {
  Json receipt = {{"object", "moe.receipt"},
                  {"endpoint", path_of(endpoint)},
                  {"model", host.name},
                  {"system_fingerprint", host.fingerprint.text},
                  {"settings", host.fingerprint.settings},
                  {"request", request}};
  receipt["request"].erase("receipt");
  if (tokens.seed) receipt["seed"] = *tokens.seed;
  add_tokens(receipt, tokens);
  if (host.receipt != nullptr) {
    const std::string text = to_text(receipt);
    host.receipt(host.receipt_user, text.c_str(), text.size());
  }
  return receipt;
}

}  // namespace moe_serve
