// SPDX-License-Identifier: MIT
// Reads any JSON as the config.json of a checkpoint.

#include "formats/import/failure.h"
#include "src/convert/importer.h"
#include "tests/convert/checkpoint_builder.h"

namespace {

// Contains the one tensor that an importer may read for the configuration.
const moe::Checkpoint& checkpoint() {
  static const moe::test::TempFolder folder;
  static const moe::Checkpoint* const opened = [] {
    const std::vector<float> values(8);
    folder.write("model.safetensors",
                 moe::test::safetensors_text(
                     {{"layers.1.moe.router.proj.weight", moe::test::f32_tensor({2, 4}, values)}}));
    return new moe::Checkpoint(folder.path());
  }();
  return *opened;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const moe::Status status = moe::guarded([&] {
    const moe::Json document = moe::parse_json(text, "config.json", {.max_depth = 32});
    (void)moe::import_config({document, "config.json"}, checkpoint());
  });
  if (status.code() == MOE_ERR_INTERNAL) __builtin_trap();
  return 0;
}
