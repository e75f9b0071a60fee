// SPDX-License-Identifier: MIT
// Loads damaged saved sessions: each is refused, or the session can continue. The first byte of the
// input selects the type of the cache and the fields that are repaired before loading; the rest is
// the file.

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "formats/moe/checksum.h"
#include "src/c_api/handles.h"
#include "tests/run/tiny_kinds.h"
#include "tests/support/fuzz_env.h"

namespace moe {
namespace {

using Bytes = std::vector<uint8_t>;

moe_kv_type type_of(uint8_t how) {
  constexpr moe_kv_type kTypes[] = {MOE_KV_F16, MOE_KV_INT8, MOE_KV_F32, MOE_KV_LATENT};
  return kTypes[how >> 4 & 3];
}

/// The model for this type of cache.
ModelConfig config_of(moe_kv_type kv, TinyOptions* options) {
  ModelConfig config = tiny_config();
  if (kv == MOE_KV_LATENT) set_latent(config, *options);
  return config;
}

struct TinyFile {
  explicit TinyFile(moe_kv_type kv) {
    TinyOptions options;
    const ModelConfig config = config_of(kv, &options);
    bytes = build_tiny_model(config, options);
    require(moe_model_open_memory(fuzz_env(), bytes->data(), bytes->size(), nullptr, &model,
                                  nullptr) == MOE_OK);
  }
  std::unique_ptr<MemorySink> bytes;
  moe_model* model = nullptr;
};

moe_model* model_of(moe_kv_type kv) {
  static const TinyFile usual(MOE_KV_F16), latent(MOE_KV_LATENT);
  return (kv == MOE_KV_LATENT ? latent : usual).model;
}

bool append(void* user, const void* bytes, size_t n) {
  const auto* b = static_cast<const uint8_t*>(bytes);
  static_cast<Bytes*>(user)->insert(static_cast<Bytes*>(user)->end(), b, b + n);
  return true;
}

bool read(void* user, uint64_t offset, void* to, size_t n) {
  const Bytes& bytes = *static_cast<const Bytes*>(user);
  require(offset <= bytes.size() && n <= bytes.size() - offset);
  std::memcpy(to, bytes.data() + offset, n);
  return true;
}

struct Handle {
  Handle(int32_t context, moe_kv_type kv) {
    moe_session_params p{};
    p.struct_size = sizeof p;
    p.context = context;
    p.kv = kv;
    require(moe_session_create(model_of(kv), &p, &session, nullptr) == MOE_OK);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { moe_session_free(session); }
  moe_session* session = nullptr;
};

Bytes saved(moe_session* session) {
  Bytes bytes;
  const moe_writer writer = {.struct_size = sizeof writer, .write = append, .user = &bytes};
  require(moe_session_save(session, &writer, nullptr) == MOE_OK);
  return bytes;
}

template <class T>
void put(Bytes& bytes, size_t at, T value) {
  if (at + sizeof value <= bytes.size()) std::memcpy(bytes.data() + at, &value, sizeof value);
}

// The hash of a body of n tokens: each array is hashed with the hash of the previous ones as seed.
uint64_t hash_of(const Bytes& file, size_t n, moe_kv_type kv) {
  size_t at = 64;
  uint64_t hash = 0;
  const auto take = [&](int32_t numbers, size_t bytes) {
    const size_t all = n * static_cast<size_t>(numbers) * bytes;
    hash = XXH64(file.data() + at, all, hash);
    at += all;
  };
  take(1, 4);
  TinyOptions unused;
  const ModelConfig config = config_of(kv, &unused);
  for (const LayerConfig& layer : config.layers) {
    const AttentionConfig& a = layer.attention;
    if (kv == MOE_KV_LATENT) take(a.latent + a.rope.dims, 2);
    for (int32_t head = 0; head < 2 * a.n_kv_heads && kv != MOE_KV_LATENT; ++head) {
      take(a.head_dim, kv == MOE_KV_INT8 ? 1 : kv == MOE_KV_F32 ? 4 : 2);
      if (kv == MOE_KV_INT8) take(1, 4);
    }
  }
  return hash;
}

/// With all of mend()'s repairs nothing is left to refuse.
bool is_whole(uint8_t how) { return (how & 15) == 11; }

// Repairs the size for the header's number of tokens, and the hashes.
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
    if ((how & 8) != 0) put(file, file.size() - 8, hash_of(file, n, type_of(how)));
  }
  put(file, 56, xxh64(file.data(), 56));
}

void run(const uint8_t* data, size_t size) {
  if (size == 0) return;
  const uint8_t how = data[0];
  Handle handle(7, type_of(how));
  const int32_t ids[3] = {1, 2, 3};
  require(moe_session_eval(handle.session, ids, 3, MOE_ROWS_NONE, nullptr, nullptr) == MOE_OK);
  Bytes file(data + 1, data + size);
  if ((how & 1) != 0) mend(file, handle.session, how);
  const moe_reader reader = {
      .struct_size = sizeof reader, .size = file.size(), .read = read, .user = &file};
  moe_error error{};
  const moe_status status = moe_session_load(handle.session, &reader, &error);
  const int32_t position = moe_session_position(handle.session);
  require(status == MOE_OK || !is_whole(how));
  if (status == MOE_OK) {
    require(saved(handle.session) == file);
  } else {
    require(error.text[0] != '\0' && (position == 3 || position == 0));
  }
  if (position < 7) {
    const moe_status next =
        moe_session_eval(handle.session, ids, 1, MOE_ROWS_NONE, nullptr, nullptr);
    require(next == MOE_OK || next == MOE_ERR_NON_FINITE);
  }
}

}  // namespace
}  // namespace moe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  moe::run(data, size);
  return 0;
}
