// SPDX-License-Identifier: MIT
// Removes the prefixes of wrappers (torch.compile, FSDP, DataParallel and others) from names;
// recognises adapters.
#include "formats/import/tensor_names.h"

#include <algorithm>
#include <string_view>

namespace moe {
namespace {

// Names of wrapping modules anywhere in a name; no model has modules of these names.
constexpr std::string_view kAnywhere[] = {"_orig_mod.", "_fsdp_wrapped_module.", "_fpw_module.",
                                          "_checkpoint_wrapped_module.", "_forward_module."};

// Names that wrap at the beginning only: parts of a model may have them, too.
struct Prefix {
  std::string_view found, meant;
};
constexpr Prefix kPrefixes[] = {{"module.", ""},
                                {"base_model.model.", ""},
                                {"model.module.", ""},
                                {"model.base_model.model.", ""},
                                {"model.model.", "model."},
                                {"model.lm_head.", "lm_head."}};

// The name without the modules of kAnywhere. One pass: names are untrusted, and may be long.
std::string without_inner(std::string_view name) {
  std::string out;
  for (size_t at = 0; at < name.size();) {
    const size_t dot = std::min(name.find('.', at), name.size() - 1);
    const std::string_view part = name.substr(at, dot + 1 - at);
    if (std::find(std::begin(kAnywhere), std::end(kAnywhere), part) == std::end(kAnywhere)) {
      out += part;
    }
    at = dot + 1;
  }
  return out;
}

// A replacement is the end of the prefix that it replaces, so the rest of the name stays in place.
bool replace_prefix(std::string_view* name) {
  for (const Prefix& prefix : kPrefixes) {
    if (!name->starts_with(prefix.found)) continue;
    name->remove_prefix(prefix.found.size() - prefix.meant.size());
    return true;
  }
  return false;
}

bool is_adapter_part(std::string_view part) {
  constexpr std::string_view kParts[] = {"base_layer", "modules_to_save", "original_module",
                                         "prompt_embeddings", "prompt_encoder"};
  return part.starts_with("lora_") || part.starts_with("hada_") || part.starts_with("lokr_") ||
         part.starts_with("oft_") || part.starts_with("ia3_") || part.starts_with("vera_lambda") ||
         std::find(std::begin(kParts), std::end(kParts), part) != std::end(kParts);
}

}  // namespace

std::string unwrapped_name(const std::string& name) {
  const std::string flat = without_inner(name);
  std::string_view rest = flat;
  while (replace_prefix(&rest)) {
  }
  return std::string(rest);
}

bool is_adapter_name(const std::string& name) {
  const std::string_view whole = name;
  for (size_t at = 0; at < whole.size();) {
    const size_t end = std::min(whole.find('.', at), whole.size());
    if (is_adapter_part(whole.substr(at, end - at))) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace moe
