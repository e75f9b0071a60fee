// SPDX-License-Identifier: MIT
// Loads damaged saved sessions: each is refused, or the session can continue. The first byte of the
// input selects the model, the type of the cache and the fields that are repaired before loading;
// the rest is the file.

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

/// Whether the model has a layer that guesses.
bool guesses(uint8_t how) { return (how & 64) != 0; }

/// The model for this type of cache.
ModelConfig config_of(uint8_t how, TinyOptions* options) {
  ModelConfig config = tiny_config();
  if (guesses(how)) {
    require(config.layers.push(config.layers[0]).ok());
    config.n_predictions = 1;
  }
  if (type_of(how) == MOE_KV_LATENT) set_latent(config, *options);
  return config;
}

struct TinyFile {
  explicit TinyFile(uint8_t how) {
    TinyOptions options;
    const ModelConfig config = config_of(how, &options);
    bytes = build_tiny_model(config, options);
    require(moe_model_open_memory(fuzz_env(), bytes->data(), bytes->size(), nullptr, &model,
                                  nullptr) == MOE_OK);
  }
  std::unique_ptr<MemorySink> bytes;
  moe_model* model = nullptr;
};

moe_model* model_of(uint8_t how) {
  static const TinyFile usual(0), latent(48), guessing(64), latent_guessing(112);
  const bool is_latent = type_of(how) == MOE_KV_LATENT;
  if (guesses(how)) return (is_latent ? latent_guessing : guessing).model;
  return (is_latent ? latent : usual).model;
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
  Handle(int32_t context, uint8_t how) {
    moe_session_params p{};
    p.struct_size = sizeof p;
    p.context = context;
    p.kv = type_of(how);
    require(moe_session_create(model_of(how), &p, &session, nullptr) == MOE_OK);
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

/// The arrays of a saved session: each is hashed with the hash of the previous ones as seed.
class Arrays {
 public:
  Arrays(const Bytes& file, moe_kv_type kv) : file_(file), kv_(kv) {}
  void take(size_t bytes) {
    if (at_ + bytes <= file_.size()) hash_ = XXH64(file_.data() + at_, bytes, hash_);
    at_ += bytes;
  }
  /// Keys and values of n positions.
  void take_rows(const AttentionConfig& a, size_t n) {
    if (kv_ == MOE_KV_LATENT) return take(n * static_cast<size_t>(a.latent + a.rope.dims) * 2);
    const size_t bytes = kv_ == MOE_KV_INT8 ? 1 : kv_ == MOE_KV_F32 ? 4 : 2;
    for (int32_t head = 0; head < 2 * a.n_kv_heads; ++head) {
      take(n * static_cast<size_t>(a.head_dim) * bytes);
      if (kv_ == MOE_KV_INT8) take(n * 4);
    }
  }
  void skip(size_t bytes) { at_ += bytes; }
  size_t at() const { return at_; }
  uint64_t hash() const { return hash_; }

 private:
  const Bytes& file_;
  const moe_kv_type kv_;
  size_t at_ = 64;
  uint64_t hash_ = 0;
};

// A body of n tokens, up to its hash.
void take_body(const ModelConfig& config, size_t n, Arrays* arrays) {
  arrays->take(n * 4);
  for (int32_t l = 0; l < config.n_main_layers(); ++l) {
    arrays->take_rows(config.layers[static_cast<size_t>(l)].attention, n);
  }
}

/// The numbers of the layer that guesses.
struct Guesses {
  int32_t begin = 0;
  int32_t done = 0;
  int32_t n_kept = 0;
  int32_t zero = 0;
};

// All that follows the hash before, up to its own.
void take_guesses(const ModelConfig& config, const Guesses& numbers, Arrays* arrays) {
  arrays->take(sizeof numbers);
  arrays->take_rows(config.layers.back().attention,
                    static_cast<size_t>(numbers.done - numbers.begin));
  arrays->take(static_cast<size_t>(numbers.n_kept) * static_cast<size_t>(config.d_model) * 4);
}

/// With all of mend()'s repairs nothing is left to refuse.
bool is_whole(uint8_t how) { return (how & 15) == 11; }

// Repairs the size for the header's number of tokens, and the hashes.
void mend(Bytes& file, moe_session* own, uint8_t how) {
  const Bytes good = saved(own);
  file.resize(std::max<size_t>(file.size(), 64));
  std::copy_n(good.begin(), 32, file.begin());  // magic, version, type, model
  const uint64_t n = file[32] % 8;
  const auto n_kept = static_cast<int32_t>(file[33] % (n + 1));
  const int32_t done = static_cast<int32_t>(n) - n_kept;
  const Guesses numbers = {file[34] % (done + 1), done, n_kept, 0};
  put(file, 32, n);
  const bool more = guesses(how) && n > 0;
  if (guesses(how) && !more) file[10] = 0;  // no token, no layer
  if ((how & 2) != 0) {
    TinyOptions unused;
    const ModelConfig config = config_of(how, &unused);
    const Bytes none;
    Arrays sizes(none, type_of(how));
    take_body(config, n, &sizes);
    const size_t body = sizes.at();
    sizes.skip(8);
    const size_t at_numbers = sizes.at();
    if (more) take_guesses(config, numbers, &sizes);
    if (more) sizes.skip(8);
    file.resize(sizes.at());
    put(file, 40, uint64_t{sizes.at() - 64});
    put(file, 48, uint64_t{0});
    for (size_t i = 0; i < n; ++i) file[64 + 4 * i] %= 64;
    for (size_t i = 0; i < n && (how & 4) == 0; ++i) std::memset(&file[65 + 4 * i], 0, 3);
    if (more) put(file, at_numbers, numbers);
    if ((how & 8) != 0) {
      Arrays arrays(file, type_of(how));
      take_body(config, n, &arrays);
      put(file, body, arrays.hash());
      // The hash itself is no array: what follows goes on from its value.
      Arrays rest = arrays;
      rest.skip(8);
      if (more) take_guesses(config, numbers, &rest);
      if (more) put(file, file.size() - 8, rest.hash());
    }
  }
  put(file, 56, xxh64(file.data(), 56));
}

void run(const uint8_t* data, size_t size) {
  if (size == 0) return;
  const uint8_t how = data[0];
  Handle handle(7, how);
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
  if (position > 0 && position < 4) {  // drafts read what the layer has
    moe_generate_params params{};
    params.struct_size = sizeof params;
    params.max_tokens = 2;
    params.max_draft = 2;
    params.ignore_eos = 1;
    moe_generate_result result{};
    result.struct_size = sizeof result;
    const moe_status made = moe_session_generate(handle.session, ids, 1, &params, &result, nullptr);
    require(made == MOE_OK || made == MOE_ERR_NON_FINITE);
  } else if (position < 7) {
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
