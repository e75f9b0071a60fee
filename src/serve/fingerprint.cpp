// SPDX-License-Identifier: MIT
// Lists what answers depend on and hashes it.
#include "src/serve/fingerprint.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cinttypes>
#include <cstdio>

#include "src/serve/handles.h"

namespace moe_serve {
namespace {

uint64_t hash_of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

const char* kv_name(const moe_session_params* session) {
  switch (session == nullptr ? MOE_KV_F16 : session->kv) {
    case MOE_KV_F32:
      return "f32";
    case MOE_KV_INT8:
      return "int8";
    case MOE_KV_LATENT:
      return "latent";
    default:
      return "f16";
  }
}

std::string router_text(const moe_router& router) {
  std::string text(1024, '\0');
  moe_error error;
  size_t n = 0;
  check(moe_router_format(&router, text.data(), text.size(), &n, &error), error);
  text.resize(n);
  return text;
}

}  // namespace

std::string digits_of(uint64_t value) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, value);
  return digits;
}

Fingerprint fingerprint_of(const moe_model_info& info, const moe_service_params& params,
                           std::string_view chat_template, int32_t context) {
  Fingerprint f;
  f.settings = {{"model", digits_of(info.file_hash)},
                {"version", moe_version_string()},
                {"device", info.device},
                {"kv", kv_name(params.session)},
                {"context", context},
                {"router", nullptr},
                {"template", nullptr}};
  if (info.is_encoder != 0) {  // it keeps neither keys nor values, and has no conversations
    f.settings.erase("kv");
    f.settings.erase("template");
    chat_template = {};
  }
  if (params.router != nullptr) f.settings["router"] = router_text(*params.router);
  if (!chat_template.empty()) f.settings["template"] = digits_of(hash_of(chat_template));
  f.text = "moe-" + digits_of(info.file_hash) + "-" + digits_of(hash_of(to_text(f.settings)));
  return f;
}

}  // namespace moe_serve
