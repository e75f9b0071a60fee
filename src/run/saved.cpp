// SPDX-License-Identifier: MIT
// Writes and reads saved sessions; all of a header and each checksum are verified before a text is
// used.
#include "src/run/saved.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "src/base/inline.h"
#include "src/run/kv_heads.h"
#include "src/run/session_state.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace moe {
namespace {

template <class T>
T load_le(const uint8_t* bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof value; ++i) {
    value = static_cast<T>(value | static_cast<T>(bytes[i]) << (8 * i));
  }
  return value;
}

template <class T>
void store_le(T value, uint8_t* bytes) {
  for (size_t i = 0; i < sizeof value; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
}

// A single copy of xxHash, which its header would inline into each caller.
__attribute__((noinline)) uint64_t hash_of(const void* bytes, size_t n, uint64_t before) {
  return XXH64(bytes, n, before);
}

/// The checksum of a saved session's arrays, each in pieces. That of one array is the seed of the
/// next.
class Checksum {
 public:
  __attribute__((noinline)) void begin() { XXH64_reset(&state_, value_); }
  __attribute__((noinline)) void add(const void* bytes, size_t n) {
    XXH64_update(&state_, bytes, n);
  }
  __attribute__((noinline)) void end() { value_ = XXH64_digest(&state_); }
  uint64_t value() const { return value_; }

 private:
  XXH64_state_t state_;
  uint64_t value_ = 0;
};

constexpr uint8_t kMagicOfSaved[8] = {0x8F, 'M', 'O', 'E', 'S', '\r', '\n', 0x1A};
constexpr uint16_t kMajor = 1;
constexpr uint16_t kMinor = 1;  // with the layer that guesses; 0: without
constexpr size_t kHeader = 64;
constexpr size_t kChecked = 56;  // bytes of the header that its checksum covers
constexpr size_t kGuesses = 16;  // bytes of the numbers of the layer that guesses

/// Contents of the header.
struct Saved {
  uint16_t minor = 0;
  uint32_t kv = 0;
  uint64_t model_hash = 0;
  uint64_t model_bytes = 0;
  uint64_t n_tokens = 0;
  uint64_t body = 0;
  uint32_t context = 0;
  uint32_t mixers = 0;
};

// By KvType.
constexpr struct {
  uint32_t number;  // in the header
  const char* name;
} kKvTypes[] = {
    {MOE_KV_F16, "f16"}, {MOE_KV_INT8, "int8"}, {MOE_KV_F32, "f32"}, {MOE_KV_LATENT, "latent"}};

uint32_t kv_number(KvType type) { return kKvTypes[static_cast<size_t>(type)].number; }

const char* kv_name(uint32_t number) {
  for (const auto& kv : kKvTypes) {
    if (kv.number == number) return kv.name;
  }
  return "of an unknown type";
}

}  // namespace

const char* kv_type_name(KvType type) { return kKvTypes[static_cast<size_t>(type)].name; }

uint32_t context_of_positions(const SessionState& state) {
  for (const LayerConfig& layer : state.model.config().layers) {
    if (layer.attention.rope.scaling == RopeScaling::kLongrope) {
      return static_cast<uint32_t>(state.options.context);
    }
  }
  return 0;
}

namespace {

// Names and shapes of all states, as a number; 0: the model has no mixers.
uint32_t mixers_number(const SessionState& state) {
  const ModelConfig& config = state.model.config();
  if (!config.has_mixers()) return 0;
  uint64_t hash = 0;
  for (const LayerConfig& layer : config.layers) {
    if (!layer.has_mixer) continue;
    const char* const name = mixer_info(layer.mixer.mixer).name;
    const auto size = static_cast<uint64_t>(mixer_state(layer.mixer.mixer, config.d_model));
    uint8_t bytes[sizeof size];
    store_le(size, bytes);
    hash = hash_of(name, std::strlen(name), hash);
    hash = hash_of(bytes, sizeof bytes, hash);
  }
  return static_cast<uint32_t>(hash) | 1;
}

uint64_t state_bytes(const SessionState& state, uint64_t n) {
  const auto size = static_cast<uint64_t>(MixerStates::size(state.model.config()));
  return n == 0 ? 0 : size * sizeof(float);  // before the first token it is zero
}

// Keys and values of one position.
uint64_t row_bytes(const LayerConfig& layer, KvType kv) {
  if (!layer.has_attention || layer.attention.shares_kv()) return 0;
  const KvWidths w = kv_widths(layer.attention, kv);
  const uint64_t scales = kv == KvType::kInt8 ? 2 * sizeof(float) : 0;
  return static_cast<uint64_t>(w.n_heads) *
         (static_cast<uint64_t>(w.key + w.value) * element_bytes(kv) + scales);
}

// Without the layer that guesses.
uint64_t body_bytes(const SessionState& state, uint64_t n) {
  uint64_t row = sizeof(int32_t);
  const ModelConfig& config = state.model.config();
  for (int32_t l = 0; l < config.n_main_layers(); ++l) {
    row += row_bytes(config.layers[static_cast<size_t>(l)], state.options.kv);
  }
  return row * n + state_bytes(state, n) + sizeof(uint64_t);
}

uint64_t guess_bytes(const SessionState& state, uint64_t n_rows, uint64_t n_kept) {
  const ModelConfig& config = state.model.config();
  const LayerConfig& layer = config.layers[static_cast<size_t>(config.n_main_layers())];
  return kGuesses + n_rows * row_bytes(layer, state.options.kv) +
         n_kept * static_cast<uint64_t>(config.d_model) * sizeof(float) + sizeof(uint64_t);
}

// Whether the layer that guesses has read the end of the text, or is going to.
bool keeps_guesses(const SessionState& state) {
  const Predictions& own = state.predictions;
  return own.any() && state.position() > 0 && own.end() == state.position();
}

Saved describe(const SessionState& state, const ModelFileName& name, uint64_t n) {
  return {.kv = kv_number(state.options.kv),
          .model_hash = name.metadata_hash,
          .model_bytes = name.file_bytes,
          .n_tokens = n,
          .body = body_bytes(state, n),
          .context = context_of_positions(state),
          .mixers = mixers_number(state)};
}

void encode(const Saved& s, uint8_t (&h)[kHeader]) {
  std::memset(h, 0, kHeader);
  std::memcpy(h, kMagicOfSaved, sizeof kMagicOfSaved);
  store_le<uint16_t>(kMajor, h + 8);
  store_le(s.minor, h + 10);
  store_le(s.kv, h + 12);
  store_le(s.model_hash, h + 16);
  store_le(s.model_bytes, h + 24);
  store_le(s.n_tokens, h + 32);
  store_le(s.body, h + 40);
  store_le(s.context, h + 48);
  store_le(s.mixers, h + 52);
  store_le<uint64_t>(hash_of(h, kChecked, 0), h + kChecked);
}

Status decode(const uint8_t (&h)[kHeader], Saved* out) {
  if (std::memcmp(h, kMagicOfSaved, sizeof kMagicOfSaved) != 0) {
    return Status::error(MOE_ERR_FORMAT,
                         "not a saved session: it does not begin with the magic bytes");
  }
  const auto major = load_le<uint16_t>(h + 8);
  const auto minor = load_le<uint16_t>(h + 10);
  if (major != kMajor || minor > kMinor) {
    return Status::error(MOE_ERR_VERSION,
                         "saved session: this library reads versions %d.0 to %d.%d, it has %d.%d",
                         kMajor, kMajor, kMinor, major, minor);
  }
  if (load_le<uint64_t>(h + kChecked) != hash_of(h, kChecked, 0)) {
    return Status::error(MOE_ERR_CORRUPT, "saved session: the checksum of its header is wrong");
  }
  *out = {minor,
          load_le<uint32_t>(h + 12),
          load_le<uint64_t>(h + 16),
          load_le<uint64_t>(h + 24),
          load_le<uint64_t>(h + 32),
          load_le<uint64_t>(h + 40),
          load_le<uint32_t>(h + 48),
          load_le<uint32_t>(h + 52)};
  return {};
}

// Checks that this session can load what the header describes.
Status check_fit(const SessionState& state, const ModelFileName& name, const Saved& found,
                 uint64_t size) {
  const auto context = static_cast<uint64_t>(state.options.context);
  const Saved own = describe(state, name, std::min(found.n_tokens, context));
  if (found.model_hash != own.model_hash || found.model_bytes != own.model_bytes) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "saved session: saved with another model file (hash %016" PRIx64
                         ", %" PRIu64 " bytes; this one's is %016" PRIx64 ", %" PRIu64 " bytes)",
                         found.model_hash, found.model_bytes, own.model_hash, own.model_bytes);
  }
  if (found.kv != own.kv) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "saved session: keys and values are %s, those of this session %s",
                         kv_name(found.kv), kv_name(own.kv));
  }
  if (found.mixers != own.mixers) {
    return Status::error(
        MOE_ERR_ARGUMENT, "saved session: %s, and this model %s",
        found.mixers == 0 ? "it has no states of mixers" : "its states are of other mixers",
        own.mixers == 0 ? "has no mixers" : "needs those of its own");
  }
  if (found.n_tokens > context) {
    return Status::error(MOE_ERR_TOO_LONG,
                         "saved session: %" PRIu64 " tokens; this session's context holds %" PRIu64,
                         found.n_tokens, context);
  }
  if (found.context != own.context) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "saved session: positions are those of a context of %u, and this "
                         "session's of %u",
                         found.context, own.context);
  }
  const uint64_t more = found.body - own.body;  // of the layer that guesses
  const bool as_long =
      found.minor == 0 ? more == 0 : found.body > own.body && more >= kGuesses + sizeof(uint64_t);
  if (!as_long || size != kHeader + found.body) {
    const uint64_t body = as_long ? found.body : own.body;
    return Status::error(MOE_ERR_FORMAT,
                         "saved session: expected %" PRIu64 " bytes for %" PRIu64
                         " tokens, found %" PRIu64 " (cut off or added to)",
                         kHeader + body, found.n_tokens, size);
  }
  return {};
}

/// Writes the arrays of a saved session and hashes them.
class Writer {
 public:
  explicit Writer(const SaveSink& sink) : sink_(sink) {}
  /// A whole array.
  Status array(const void* bytes, size_t n) {
    begin();
    MOE_TRY(add(bytes, n));
    end();
    return {};
  }
  Status raw(const void* bytes, size_t n) { return sink_.write(sink_.user, bytes, n); }
  /// An array: begin(), its pieces, end().
  void begin() { checksum_.begin(); }
  Status add(const void* bytes, size_t n) {
    checksum_.add(bytes, n);
    return raw(bytes, n);
  }
  void end() { checksum_.end(); }
  Status finish() {
    uint8_t end[sizeof(uint64_t)];
    store_le(checksum_.value(), end);
    return raw(end, sizeof end);
  }

 private:
  const SaveSink& sink_;
  Checksum checksum_;
};

class Loader {
 public:
  Loader(const SaveSource& source, uint64_t at) : source_(source), at_(at) {}
  /// A whole array.
  Status array(void* to, size_t n) {
    begin();
    MOE_TRY(next(to, n));
    end();
    return {};
  }
  Status raw(void* to, size_t n) {
    MOE_TRY(source_.read(source_.user, at_, to, n));
    at_ += n;
    return {};
  }
  /// An array: begin(), its pieces, end().
  void begin() { checksum_.begin(); }
  Status next(void* to, size_t n) {
    MOE_TRY(raw(to, n));
    checksum_.add(to, n);
    return {};
  }
  void end() { checksum_.end(); }
  Status finish() {
    uint8_t end[sizeof(uint64_t)];
    MOE_TRY(raw(end, sizeof end));
    if (load_le<uint64_t>(end) == checksum_.value()) return {};
    return Status::error(MOE_ERR_CORRUPT, "saved session: its checksum is wrong");
  }

 private:
  const SaveSource& source_;
  uint64_t at_;
  Checksum checksum_;
};

Status load_state(SessionState& state, Loader& loader, size_t n) {
  if (!state.mixers.any() || n == 0) return {};
  const std::span<float> values = state.mixers.values(static_cast<int32_t>(n));
  StateMover mover(state.device, state.model.allocator());
  MOE_TRY(mover.init(static_cast<int64_t>(values.size())));
  const auto fill = [&](std::span<float> numbers) -> Status {
    MOE_TRY(loader.next(numbers.data(), numbers.size_bytes()));
    for (const float v : numbers) {
      if (!is_finite(v)) {
        return Status::error(MOE_ERR_CORRUPT, "saved session: a state is not a finite number");
      }
    }
    return {};
  };
  loader.begin();
  MOE_TRY(mover.write(values, fill));
  loader.end();
  return {};
}

Status save_state(SessionState& state, Writer& writer, size_t n) {
  if (!state.mixers.any() || n == 0) return {};
  const std::span<float> values = state.mixers.values(static_cast<int32_t>(n));
  StateMover mover(state.device, state.model.allocator());
  MOE_TRY(mover.init(static_cast<int64_t>(values.size())));
  writer.begin();
  MOE_TRY(mover.read(values, [&](std::span<const float> numbers) {
    return writer.add(numbers.data(), numbers.size_bytes());
  }));
  writer.end();
  return {};
}

// Keys and values of the layers from `first` to `end`.
Status load_rows(SessionState& state, Loader& loader, KvMover& mover, int32_t first, int32_t end) {
  const auto move = [&](const HeadPlace& place, bool keys) -> Status {
    MOE_TRY(check_cancel(state));
    const auto put = [&](const HeadPlace& piece) -> Status {
      MOE_TRY(loader.next(mover.rows(), mover.row_bytes(piece)));
      return mover.put(piece, keys);
    };
    const auto put_scales = [&](const HeadPlace& piece) -> Status {
      MOE_TRY(loader.next(mover.rows(), mover.scale_bytes()));
      return mover.put_scales(piece);
    };
    loader.begin();
    MOE_TRY(mover.each_piece(place, put));
    loader.end();
    if (place.scales == nullptr) return {};
    loader.begin();
    MOE_TRY(mover.each_piece(place, put_scales));
    loader.end();
    return {};
  };
  return each_head(state.model.config(), state.kv, first, end, move);
}

Status save_rows(SessionState& state, Writer& writer, KvMover& mover, int32_t first, int32_t end) {
  const auto move = [&](const HeadPlace& place, bool keys) -> Status {
    MOE_TRY(check_cancel(state));
    const auto take = [&](const HeadPlace& piece) -> Status {
      MOE_TRY(mover.take(piece, keys));
      return writer.add(mover.rows(), mover.row_bytes(piece));
    };
    const auto take_scales = [&](const HeadPlace& piece) -> Status {
      MOE_TRY(mover.take_scales(piece));
      return writer.add(mover.rows(), mover.scale_bytes());
    };
    writer.begin();
    MOE_TRY(mover.each_piece(place, take));
    writer.end();
    if (place.scales == nullptr) return {};
    writer.begin();
    MOE_TRY(mover.each_piece(place, take_scales));
    writer.end();
    return {};
  };
  return each_head(state.model.config(), state.kv, first, end, move);
}

Status save_guesses(SessionState& state, Writer& writer, KvMover& mover) {
  const ModelConfig& config = state.model.config();
  const Predictions& own = state.predictions;
  uint8_t numbers[kGuesses] = {};
  store_le(own.begin(), numbers);
  store_le(own.done(), numbers + 4);
  store_le(static_cast<int32_t>(own.n_kept()), numbers + 8);
  MOE_TRY(writer.array(numbers, sizeof numbers));
  mover.set_rows(own.n_rows());
  MOE_TRY(save_rows(state, writer, mover, config.n_main_layers(), config.n_layers()));
  const size_t width = static_cast<size_t>(config.d_model);
  MOE_TRY(writer.array(own.kept(), own.n_kept() * width * sizeof(float)));
  return writer.finish();
}

// `size`: bytes of all of it.
Status load_guesses(SessionState& state, Loader& loader, KvMover& mover, uint64_t size) {
  const ModelConfig& config = state.model.config();
  uint8_t numbers[kGuesses];
  MOE_TRY(loader.array(numbers, sizeof numbers));
  const auto begin = load_le<int32_t>(numbers), done = load_le<int32_t>(numbers + 4),
             n_kept = load_le<int32_t>(numbers + 8);
  const bool fits = begin >= 0 && begin <= done && n_kept >= 0 &&
                    n_kept <= static_cast<int32_t>(Predictions::kMost) &&
                    done <= state.position() && done + n_kept == state.position();
  const auto n_rows = static_cast<uint64_t>(done) - static_cast<uint64_t>(begin);
  if (!fits || size != guess_bytes(state, n_rows, static_cast<uint64_t>(n_kept))) {
    return Status::error(MOE_ERR_FORMAT,
                         "saved session: %" PRIu64
                         " bytes of the layer that guesses are not those of %d to %d and %d more "
                         "of %d tokens",
                         size, begin, done, n_kept, state.position());
  }
  const std::span<float> hidden =
      state.predictions.restore(begin, done, static_cast<size_t>(n_kept));
  mover.set_rows(state.predictions.n_rows());
  MOE_TRY(load_rows(state, loader, mover, config.n_main_layers(), config.n_layers()));
  MOE_TRY(loader.array(hidden.data(), hidden.size_bytes()));
  return loader.finish();
}

Status load_body(SessionState& state, Loader& loader, const Saved& found) {
  const auto n = static_cast<size_t>(found.n_tokens);
  state.tokens.resize(n);
  MOE_TRY(loader.array(state.tokens.data(), n * sizeof(int32_t)));
  const Status ids = check_ids(state, state.tokens.span());
  if (!ids.ok()) return Status::error(MOE_ERR_CORRUPT, "saved session: %s", ids.text());
  const ModelConfig& config = state.model.config();
  KvMover mover(state.device, state.options.kv, state.model.allocator());
  MOE_TRY(mover.init(config, n));
  MOE_TRY(load_rows(state, loader, mover, 0, config.n_main_layers()));
  MOE_TRY(load_state(state, loader, n));
  MOE_TRY(loader.finish());
  if (found.minor == 0 || !state.predictions.any()) return {};
  return load_guesses(state, loader, mover, found.body - body_bytes(state, found.n_tokens));
}

}  // namespace

Status save_session(Session& session, const ModelFileName& name, const SaveSink& sink) {
  SessionCall call(session);
  MOE_TRY(call.status());
  SessionState& state = call.state();
  const ModelConfig& config = state.model.config();
  MOE_TRY(check_keeps(config));
  MOE_TRY(reach_state(state, state, state.position()));
  const size_t n = state.tokens.size();
  KvMover mover(state.device, state.options.kv, state.model.allocator());
  MOE_TRY(mover.init(config, n));
  Writer writer(sink);
  Saved saved = describe(state, name, n);
  const bool guesses = keeps_guesses(state);
  if (guesses) {
    const Predictions& own = state.predictions;
    saved.minor = kMinor;
    saved.body += guess_bytes(state, own.n_rows(), own.n_kept());
  }
  uint8_t header[kHeader];
  encode(saved, header);
  MOE_TRY(writer.raw(header, sizeof header));
  MOE_TRY(writer.array(state.tokens.data(), n * sizeof(int32_t)));
  MOE_TRY(save_rows(state, writer, mover, 0, config.n_main_layers()));
  MOE_TRY(save_state(state, writer, n));
  MOE_TRY(writer.finish());
  return guesses ? save_guesses(state, writer, mover) : Status();
}

Status load_session(Session& session, const ModelFileName& name, const SaveSource& source) {
  SessionCall call(session);
  MOE_TRY(call.status());
  SessionState& state = call.state();
  MOE_TRY(check_keeps(state.model.config()));
  if (source.size < kHeader) {
    return Status::error(MOE_ERR_FORMAT, "not a saved session: %" PRIu64 " bytes are too few",
                         source.size);
  }
  uint8_t header[kHeader];
  Loader loader(source, 0);
  MOE_TRY(loader.raw(header, sizeof header));
  Saved found;
  MOE_TRY(decode(header, &found));
  MOE_TRY(check_fit(state, name, found, source.size));
  rewind_to(state, 0);
  state.mixers.clear();
  const Status status = load_body(state, loader, found);
  if (!status.ok()) rewind_to(state, 0);
  if (!status.ok()) state.mixers.clear();
  return status;
}

}  // namespace moe
