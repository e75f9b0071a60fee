// SPDX-License-Identifier: MIT
#pragma once
// Model files from a fuzzer's input: a tiny model of some kind, changes of its configuration that
// keep it valid, then changed numbers anywhere in the file, with updated checksums.

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "formats/moe/checksum.h"
#include "formats/moe/header.h"
#include "src/convert/tokenizer/tokenizer_write.h"
#include "tests/run/tiny_kinds.h"
#include "tests/support/fuzz_bytes.h"
#include "tests/text/tokenizer_support.h"

namespace moe {

inline int32_t in_range(FuzzBytes& in, int32_t low, int32_t high) {
  return low + static_cast<int32_t>(in.below(static_cast<size_t>(high - low + 1)));
}

template <class E>
E one_of(FuzzBytes& in, E last) {
  return static_cast<E>(in.below(static_cast<size_t>(last) + 1));
}

inline void change_router(FuzzBytes& in, RouterConfig& r) {
  const size_t i = in.below(16);
  if (i == 0) r.kind = kRouters[in.below(std::size(kRouters))].kind;
  if (i == 1) r.weights = one_of(in, RouterWeights::kOne);
  if (i == 2) r.k = in_range(in, 0, 12);
  if (i == 3) r.threshold = in.real();
  if (i == 4) r.by_threshold = in.flag();
  if (i == 5) r.min_k = in_range(in, 0, 9);
  if (i == 6) r.max_k = in_range(in, 0, 9);
  if (i == 7) r.scale = in.real();
  if (i == 8) r.gate = one_of(in, CosineGate::kSigmoid);
  if (i == 9) r.tau = in.real();
  if (i == 10) r.normalise_token = in.flag();
  if (i == 11) r.topk_norm = static_cast<int8_t>(in_range(in, 0, 2) - 1);
  if (i == 12) r.jitter = in.real();
  if (i == 13) r.gamma = in.real();
  if (i == 14) r.min_capacity = in_range(in, 0, 9);
  if (i == 15) r.order = one_of(in, CapacityOrder::kArrival);
}

inline void change_rope(FuzzBytes& in, RopeConfig& r) {
  static const float kFactors[512] = {1, 2, 3, 4};
  const size_t i = in.below(12);
  if (i == 0) r.kind = one_of(in, RopeKind::kInterleaved);
  if (i == 1) r.dims = in_range(in, 0, 40);
  if (i == 2) r.theta = in.real();
  if (i == 3) r.scaling = one_of(in, RopeScaling::kLongrope);
  if (i == 3) r.short_factor = r.long_factor = kFactors;
  if (i == 4) r.factor = in.real();
  if (i == 5) r.low_freq_factor = in.real();
  if (i == 6) r.high_freq_factor = in.real();
  if (i == 7) r.beta_fast = in.real();
  if (i == 8) r.beta_slow = in.real();
  if (i == 9) r.truncate = in.flag();
  if (i == 10) r.attention_factor = in.real();
  if (i == 11) r.original_context = in.number();
}

inline void change_attention(FuzzBytes& in, AttentionConfig& a) {
  const size_t i = in.below(14);
  if (i == 0) a.n_heads = in_range(in, 1, 8);
  if (i == 1) a.n_kv_heads = in_range(in, 1, 8);
  if (i == 2) a.head_dim = in_range(in, 1, 40);
  if (i == 3) a.window = in.number();
  if (i == 4) a.multiplier = in.real();
  if (i == 5) a.qk_norm = one_of(in, QkNorm::kWhole);
  if (i == 6) a.sub_norm = in.flag();
  if (i == 7) a.sinks = in.flag();
  if (i == 8) a.latent = in_range(in, 0, 40);
  if (i == 9) change_rope(in, a.rope);
  if (i == 10) a.norms = {in.flag(), in.flag(), in.flag()};
  if (i == 11) a.v_norm = in.flag(), a.v_from_k = in.flag();
  if (i == 12) a.kv_layer = in_range(in, 0, 2) - 1;
  if (i == 13) a.in_norms = in.flag();
}

inline void change_ffn(FuzzBytes& in, FfnConfig& f) {
  const size_t i = in.below(17);
  if (i == 0) f.kind = one_of(in, FfnKind::kMoe);
  if (i == 1) f.d_ff = in_range(in, 1, 70);
  if (i == 2) f.gated = in.flag();
  if (i == 3) f.sub_norm = in.flag();
  if (i == 4) f.act.kind = one_of(in, Activation::kRelu2);
  if (i == 5) f.act.alpha = in.real();
  if (i == 6) f.act.limit = in.real();
  if (i == 7) f.act.up_offset = in.real();
  if (i == 8) f.moe.n_experts = in_range(in, 1, 12);
  if (i == 9) f.moe.n_subheads = in_range(in, 1, 8);
  if (i == 10) f.moe.head = f.moe.merge = in.flag();
  if (i == 11) f.moe.n_sublayers = in_range(in, 0, 3);
  if (i == 12) f.moe.shared = {in_range(in, 0, 20), in.flag()};
  if (i == 13) change_router(in, f.moe.router);
  if (i == 14) f.norms = {in.flag(), in.flag(), in.flag()};
  if (i == 15) f.moe.apart = in.flag(), f.moe.router_norm = in.flag();
  if (i == 15) f.moe.expert_scale = in.flag();
  if (i == 16) f.in_norms = in.flag();
}

inline void change_model(FuzzBytes& in, ModelConfig& c) {
  const size_t i = in.below(14);
  if (i == 0) c.vocab_size = in_range(in, 1, 80);
  if (i == 1) c.d_model = in_range(in, 1, 70);
  if (i == 2) c.context_length = in_range(in, 1, 200);
  if (i == 3) c.norm = one_of(in, NormKind::kLayer);
  if (i == 4) c.norm_eps = in.real();
  if (i == 5) c.positions = one_of(in, PositionKind::kLearned);
  if (i == 6) c.tie_embeddings = in.flag();
  if (i == 7) c.embedding_norm = in.flag();
  if (i == 8) c.embedding_multiplier = in.real();
  if (i == 9) c.residual_multiplier = in.real();
  if (i == 10) c.logit_multiplier = in.real();
  if (i == 11) c.add_bos = in.flag();
  if (i == 12) c.final_norm = in.flag();
  if (i == 13) c.rotation.block = in_range(in, 0, 32);
}

inline void change_options(FuzzBytes& in, TinyOptions& o) {
  const size_t i = in.below(9);
  if (i == 0) o.weights = kWeightFormats[in.below(std::size(kWeightFormats))].id;
  if (i == 1) o.scale = in.flag() ? ScaleKind::kRow : ScaleKind::kGroup;
  if (i == 2) o.act = one_of(in, ActPrecision::kA8Group);
  if (i == 3) o.routers = FormatId::kBf16;
  if (i == 4) o.biases = in.flag();
  if (i == 8) o.rotated = in.flag();
  if (i == 5) o.compress = in.flag();
  if (i == 6) o.d_e = in_range(in, 1, 20);
  if (i == 7) o.keys_apart = true;
}

inline void change_config(FuzzBytes& in, ModelConfig& config, TinyOptions& options) {
  LayerConfig& layer = config.layers[in.below(config.layers.size())];
  const size_t i = in.below(11);
  if (i == 0) change_model(in, config);
  if (i == 1) change_options(in, options);
  if (i == 2 || i == 3) change_attention(in, layer.attention);
  if (i == 4) change_router(in, layer.ffn.moe.router);
  if (i > 4 && i < 8) change_ffn(in, layer.ffn);
  if (i == 8) layer.has_attention = false, layer.attention = {};
  if (i == 9) layer.has_ffn = false, layer.ffn = {};
  if (i == 10) layer.multiplier = in.real();
}

/// Whether a matrix can have this combination of format, scale and activation.
inline bool can_be_stored(const TinyOptions& options) {
  if (!format_info(options.weights).integer) return !format_info(options.weights).table;
  BlobMatrix m;
  m.format = options.weights;
  m.scale = options.scale;
  m.act = options.act;
  m.group = options.scale == ScaleKind::kGroup ? options.group : 0;
  m.rows = m.cols = 64;
  BlobLayout layout;
  return layout.matrices.push(m).ok() && place(&layout).ok();
}

/// 64-byte aligned bytes of a file.
class FuzzFile {
 public:
  explicit FuzzFile(const MemorySink& sink) : memory_(sink.size() + 64), size_(sink.size()) {
    std::memcpy(data(), sink.data(), size_);
    uint8_t bytes[kHeaderBytes];
    std::memcpy(bytes, data(), sizeof bytes);
    require(decode_header(bytes, size_, &header_).ok());
  }
  uint8_t* data() { return memory_.data() + (64 - address() % 64) % 64; }
  size_t size() const { return size_; }

  /// Changes one number, in the metadata or in the segments.
  void patch(FuzzBytes& in) {
    const uint8_t how = in.byte();
    const size_t from = (how & 0x80) != 0 ? kSegmentAlign : header_.metadata_offset;
    const size_t room = ((how & 0x80) != 0 ? header_.metadata_offset : size_) - from;
    const size_t n = size_t{1} << ((how >> 5) & 3);
    const size_t at = from + in.below(65536) * ((how & 0x10) != 0 ? n : 1) % (room - 8);
    uint64_t value = 0;
    std::memcpy(&value, data() + at, n);
    value = changed(in, how & 7, value);
    std::memcpy(data() + at, &value, n);
  }
  /// Updates the header.
  void seal() {
    header_.metadata_xxh64 = xxh64(data() + header_.metadata_offset, header_.metadata_bytes);
    uint8_t bytes[kHeaderBytes];
    encode_header(header_, bytes);
    std::memcpy(data(), bytes, sizeof bytes);
  }

 private:
  static uint64_t changed(FuzzBytes& in, int how, uint64_t value) {
    if (how == 0) return in.byte();
    if (how == 1) return value + 1;
    if (how == 2) return value - 1;
    if (how == 3) return value * 2;
    if (how == 4) return static_cast<uint64_t>(in.number());
    if (how == 5) return std::bit_cast<uint32_t>(in.real());
    if (how == 6) return value ^ uint64_t { 1 } << (in.byte() & 63);
    return in.wide();
  }
  uintptr_t address() const { return reinterpret_cast<uintptr_t>(memory_.data()); }

  std::vector<uint8_t> memory_;
  size_t size_;
  FileHeader header_;
};

/// The configuration and options that a model is made from.
struct FuzzedConfig {
  ModelConfig config = tiny_config();
  TinyOptions options;

  explicit FuzzedConfig(FuzzBytes& in) {
    static const std::vector<TinyKind> kinds = all_tiny_kinds();
    kinds[in.below(kinds.size())].change(config, options);
    options.quick = true;
    for (size_t n = in.byte() % 8; n > 0; --n) change_config(in, config, options);
    if (!in.flag()) return;
    options.tokenizer = [](flatbuffers::FlatBufferBuilder& b) {
      return write_tokenizer(b, small_bpe());
    };
  }
};

/// Bytes of the input: kind, number of changes, the changes, whether there is a tokenizer, number
/// of patches, the patches. Null if the changed configuration is not valid.
inline std::unique_ptr<FuzzFile> fuzz_model(FuzzBytes& in) {
  static std::map<std::string, std::unique_ptr<MemorySink>>
      made;  // by the input bytes that they are made from
  if (made.size() == 200) made.clear();
  FuzzBytes begin = in;
  const FuzzedConfig model(in);
  if (!validate(model.config).ok() || !can_be_stored(model.options)) return nullptr;
  auto& sink = made[std::string(begin.take(begin.size() - in.size()))];
  if (sink == nullptr) sink = build_tiny_model(model.config, model.options);
  auto file = std::make_unique<FuzzFile>(*sink);
  for (size_t n = in.byte() % 16; n > 0; --n) file->patch(in);
  file->seal();
  return file;
}

}  // namespace moe
