// A saved session that is not what it should be: it is refused, or what it holds can be continued.
// The first byte of the input says what is made right before it is loaded, the rest is the file.

#include <algorithm>
#include <cstring>
#include <vector>

#include "formats/moe/checksum.h"
#include "src/c_api.h"
#include "tests/support/fuzz_env.h"
#include "tests/support/tiny_model.h"

namespace moe {
namespace {

using Bytes = std::vector<uint8_t>;

moe_model* model() {
  static const std::unique_ptr<MemorySink> file = build_tiny_model(tiny_config());
  static moe_model* const opened = [] {
    moe_model* m = nullptr;
    require(moe_model_open_memory(fuzz_env(), file->data(), file->size(), nullptr, &m, nullptr) ==
            MOE_OK);
    return m;
  }();
  return opened;
}

int append(void* user, const void* bytes, size_t n) {
  const auto* b = static_cast<const uint8_t*>(bytes);
  static_cast<Bytes*>(user)->insert(static_cast<Bytes*>(user)->end(), b, b + n);
  return 0;
}

int read(void* user, uint64_t offset, void* to, size_t n) {
  const Bytes& bytes = *static_cast<const Bytes*>(user);
  require(offset <= bytes.size() && n <= bytes.size() - offset);
  std::memcpy(to, bytes.data() + offset, n);
  return 0;
}

struct Handle {
  explicit Handle(int32_t context, uint8_t kv) {
    moe_session_params p{};
    p.struct_size = sizeof p;
    p.context = context;
    p.kv = kv % 2 == 0 ? MOE_KV_F16 : MOE_KV_INT8;
    require(moe_session_create(model(), &p, &session, nullptr) == MOE_OK);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { moe_session_free(session); }
  moe_session* session = nullptr;
};

Bytes saved(moe_session* session) {
  Bytes bytes;
  const moe_writer writer = {append, &bytes};
  require(moe_session_save(session, &writer, nullptr) == MOE_OK);
  return bytes;
}

template <class T>
void put(Bytes& bytes, size_t at, T value) {
  if (at + sizeof value <= bytes.size()) std::memcpy(bytes.data() + at, &value, sizeof value);
}

// The hash of a body of n tokens: each array with the hash of those before it as seed.
uint64_t hash_of(const Bytes& file, size_t n, bool int8) {
  size_t at = 64;
  uint64_t hash = 0;
  const auto take = [&](size_t bytes) {
    hash = XXH64(file.data() + at, bytes, hash);
    at += bytes;
  };
  take(4 * n);
  const ModelConfig config = tiny_config();
  for (const LayerConfig& layer : config.layers) {
    const auto width = static_cast<size_t>(layer.attention.head_dim);
    for (int32_t head = 0; head < 2 * layer.attention.n_kv_heads; ++head) {
      take(n * width * (int8 ? 1 : 2));
      if (int8) take(4 * n);
    }
  }
  return hash;
}

// As many bytes as the tokens that the header speaks of need, and every hash right.
void mend(Bytes& file, moe_session* own, uint8_t how) {
  const Bytes good = saved(own);
  file.resize(std::max<size_t>(file.size(), 64));
  std::copy_n(good.begin(), 32, file.begin());  // magic, version, type, model
  uint64_t n = file[32] % 8;
  put(file, 32, n);
  if ((how & 2) != 0) {
    const uint64_t row =
        (good.size() - 72) / std::max<size_t>(1, static_cast<size_t>(moe_session_position(own)));
    file.resize(64 + static_cast<size_t>(n * row) + 8);
    put(file, 40, n * row + 8);
    put(file, 48, uint64_t{0});
    for (size_t i = 0; i < n; ++i) file[64 + 4 * i] %= 64;
    for (size_t i = 0; i < n && (how & 4) == 0; ++i) std::memset(&file[65 + 4 * i], 0, 3);
    if ((how & 8) != 0) put(file, file.size() - 8, hash_of(file, n, (how >> 4) % 2 != 0));
  }
  put(file, 56, xxh64(file.data(), 56));
}

void run(const uint8_t* data, size_t size) {
  if (size == 0) return;
  const uint8_t how = data[0];
  Handle handle(7, how >> 4);
  const int32_t ids[3] = {1, 2, 3};
  require(moe_session_eval(handle.session, ids, 3, nullptr, 0, nullptr) == MOE_OK);
  Bytes file(data + 1, data + size);
  if ((how & 1) != 0) mend(file, handle.session, how);
  const moe_reader reader = {file.size(), read, &file};
  moe_error error{};
  const moe_status status = moe_session_load(handle.session, &reader, &error);
  const int32_t position = moe_session_position(handle.session);
  if (status == MOE_OK) {
    require(saved(handle.session) == file);
  } else {
    require(error.text[0] != '\0' && (position == 3 || position == 0));
  }
  if (position < 7) {
    const moe_status next = moe_session_eval(handle.session, ids, 1, nullptr, 0, nullptr);
    require(next == MOE_OK || next == MOE_ERR_NON_FINITE);
  }
}

}  // namespace
}  // namespace moe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  moe::run(data, size);
  return 0;
}
