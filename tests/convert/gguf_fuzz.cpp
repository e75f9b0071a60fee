// SPDX-License-Identifier: MIT
// Reads any bytes as a GGUF file: values of its tensors, then its configuration and tokenizer.

#include <algorithm>

#include "formats/import/failure.h"
#include "src/convert/gguf/gguf_source.h"
#include "src/convert/importer.h"
#include "tests/convert/checkpoint_builder.h"

namespace {

// Reads the first and the last values of each tensor.
void read_ends(const moe::Checkpoint& checkpoint) {
  std::vector<float> values;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const uint64_t block = moe::source_type_info(tensor.type).block;
    const uint64_t n = std::min<uint64_t>(tensor.n_elements, 1024 / block * block);
    values.resize(n);
    checkpoint.read(tensor, 0, n, values.data());
    checkpoint.read(tensor, tensor.n_elements - n, n, values.data());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const moe::test::TempFolder folder;
  folder.write("m.gguf", {reinterpret_cast<const char*>(data), size});
  const moe::Status read = moe::guarded([&] { read_ends(moe::Checkpoint(folder.file("m.gguf"))); });
  if (read.code() == MOE_ERR_INTERNAL) __builtin_trap();
  const moe::Status status = moe::guarded([&] {
    const moe::Checkpoint checkpoint =
        moe::open_checkpoint(folder.file("m.gguf"), [] {}, {.allow_zeros = true});
    (void)moe::import_checkpoint(checkpoint);
  });
  if (status.code() == MOE_ERR_INTERNAL) __builtin_trap();
  return 0;
}
