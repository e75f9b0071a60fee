// SPDX-License-Identifier: MIT
// Reads any bytes as the header of a safetensors file; the only exception is Failure.

#include "formats/import/failure.h"
#include "formats/import/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const moe::Status status = moe::guarded([&] {
    for (const moe::SourceTensor& t : moe::parse_safetensors_header(text, size, "fuzz", 0)) {
      const uint64_t bytes = t.n_elements * moe::source_type_info(t.type).bytes;
      if (t.offset > size || bytes > size - t.offset) __builtin_trap();
    }
  });
  if (!status.ok() && status.code() != MOE_ERR_FORMAT) __builtin_trap();
  return 0;
}
