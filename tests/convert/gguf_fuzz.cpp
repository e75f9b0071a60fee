// Any bytes as a GGUF file, up to the configuration and tokenizer that come of it.

#include "formats/import/failure.h"
#include "src/convert/gguf_source.h"
#include "src/convert/importer.h"
#include "tests/convert/checkpoint_builder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const moe::test::TempFolder folder;
  folder.write("m.gguf", {reinterpret_cast<const char*>(data), size});
  const moe::Status status = moe::guarded([&] {
    const moe::Checkpoint checkpoint = moe::open_checkpoint(folder.file("m.gguf"));
    (void)moe::import_checkpoint(checkpoint);
  });
  if (status.code() == MOE_ERR_INTERNAL) __builtin_trap();
  return 0;
}
