// SPDX-License-Identifier: MIT
#pragma once
// The model file and the settings of a service on which its answers depend, besides their requests.

#include <string>
#include <string_view>

#include "include/moe_c.h"
#include "src/serve/json.h"

namespace moe_serve {

struct Fingerprint {
  Json settings = Json::object();  // of each its name and value
  std::string text;                // tells services apart whose settings differ
};

/// chat_template: the text of the one in use; "": none. Throws CallError.
Fingerprint fingerprint_of(const moe_model_info& info, const moe_service_params& params,
                           std::string_view chat_template, int32_t context);

/// 16 hexadecimal digits.
std::string digits_of(uint64_t value);

}  // namespace moe_serve
