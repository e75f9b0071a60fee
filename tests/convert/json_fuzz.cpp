// SPDX-License-Identifier: MIT
// Parses any bytes as JSON and reads the result with every getter.

#include "formats/import/failure.h"
#include "formats/import/json.h"

namespace {

void walk(const moe::JsonNode& node) {
  if (node.value().is_object()) {
    for (const auto& [key, value] : node.value().items()) {
      walk({value, node.path() + "." + key.substr(0, 20)});
      (void)node.has(key.c_str());
    }
  } else if (node.value().is_array()) {
    for (const moe::JsonNode& element : node.elements()) walk(element);
  }
  (void)moe::guarded([&] { (void)node.integer(0, 10); });
  (void)moe::guarded([&] { (void)node.number(); });
  (void)moe::guarded([&] { (void)node.choice({"one", "two"}); });
  (void)moe::guarded([&] { node.only({"a"}); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const moe::Status status = moe::guarded([&] {
    const moe::Json document = moe::parse_json(text, "fuzz");
    walk({document, "fuzz"});
  });
  if (!status.ok() && status.code() != MOE_ERR_FORMAT) __builtin_trap();
  return 0;
}
