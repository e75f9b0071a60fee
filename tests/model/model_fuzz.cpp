// SPDX-License-Identifier: MIT
// Opens, prepares and reads the model file that fuzz_file() makes of the input.

#include <atomic>
#include <cstdlib>

#include "formats/moe/reader.h"
#include "src/model/model.h"
#include "tests/model/fuzz_input.h"
#include "tests/support/memory_device.h"

namespace moe {
namespace {

// A small file must not make the reader allocate much memory: allocations beyond this limit fail.
constexpr size_t kMost = size_t{256} << 20;
std::atomic<size_t> held{0};

void* take(void*, size_t bytes, size_t align) {
  if (bytes > kMost || held + bytes > kMost) return nullptr;
  void* p = nullptr;
  if (posix_memalign(&p, align < 64 ? 64 : align, bytes == 0 ? 64 : bytes) != 0) return nullptr;
  held += bytes;
  return p;
}
void give(void*, void* p, size_t bytes) {
  held -= bytes;
  std::free(p);
}
constexpr Allocator kBounded = {take, give, nullptr};

Status use(std::span<const uint8_t> bytes, bool verify) {
  MOE_ASSIGN(Box<MoeFile> file,
             MoeFile::open(FileSource::from_memory(bytes.data(), bytes.size()), kBounded));
  MemoryDevice device(kBounded);
  ModelOptions options;
  options.verify = verify;
  MOE_ASSIGN(Box<Model> model, Model::open(std::move(file), options, device, Logger(), kBounded));
  MOE_TRY(model->prepare());
  for (int32_t l = 0; l < model->config().n_layers(); ++l) {
    ExpertSource* experts = model->layer(l).experts;
    const int32_t n =
        experts == nullptr ? 0 : model->config().layers[static_cast<size_t>(l)].ffn.moe.n_experts;
    for (int32_t e = 0; e < n; ++e) {
      Expert expert;
      MOE_TRY(experts->acquire(e, {}, &expert));
      experts->release(e);
    }
  }
  return {};
}

}  // namespace
}  // namespace moe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n) {
  std::vector<uint8_t> memory;
  const std::span<const uint8_t> file = moe::fuzz_file(data, n, &memory);
  if (!file.empty()) (void)moe::use(file, (data[0] & 1) != 0);
  if (moe::held != 0) std::abort();  // a leak
  return 0;
}
