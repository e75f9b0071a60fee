// SPDX-License-Identifier: MIT
#pragma once
// Copying the keys and values of a session, head by head.

#include <algorithm>

#include "src/base/host_buffer.h"
#include "src/run/kv_cache.h"

namespace moe {

/// MOE_ERR_UNSUPPORTED for an encoder, which has nothing to copy, and an encoder-decoder.
Status check_keeps(const ModelConfig& config);

/// One KV head of a layer's keys or values.
struct HeadPlace {
  uint8_t* at;
  float* scales;  // null unless int8
  int32_t head_dim;
};

/// Calls f(place, keys) for every head of a layer in file order; `keys`: the device defines their
/// layout.
template <class F>
Status each_head_of(const ModelConfig& config, const KvCache& cache, int32_t layer, F&& f) {
  const LayerConfig& of = config.layers[static_cast<size_t>(layer)];
  const KvCacheView kv = cache.view(layer);
  const KvWidths w = kv_widths(of.attention, kv.type);
  const bool own = of.has_attention && !of.attention.shares_kv();
  const int n_sides = !own ? 0 : w.value > 0 ? 2 : 1;
  for (int side = 0; side < n_sides; ++side) {
    auto* const values = static_cast<uint8_t*>(side == 0 ? kv.layer.k : kv.layer.v);
    float* const scales = side == 0 ? kv.layer.k_scale : kv.layer.v_scale;
    for (int64_t h = 0; h < w.n_heads; ++h) {
      const int64_t first = h * kv.capacity;
      const HeadPlace place = {values + static_cast<size_t>(first * w.key) * element_bytes(kv.type),
                               kv.type == KvType::kInt8 ? scales + first : nullptr, w.key};
      MOE_TRY(f(place, side == 0 && !is_latent(kv.type)));
    }
  }
  return {};
}

/// The same for the layers from `first` to `end`.
template <class F>
Status each_head(const ModelConfig& config, const KvCache& cache, int32_t first, int32_t end,
                 F&& f) {
  for (int32_t l = first; l < end; ++l) MOE_TRY(each_head_of(config, cache, l, f));
  return {};
}

/// Copies pieces of heads between the device, which defines the layout of keys, and rows in host
/// memory. A piece has at most kMost positions, so the memory does not grow with the text.
class KvMover {
 public:
  static constexpr size_t kMost = kKeyBlock;

  KvMover(Device& device, KvType type, const Allocator& allocator)
      : device_(device), type_(type), memory_(allocator) {}

  /// n: positions of the text.
  Status init(const ModelConfig& config, size_t n);
  /// From now on the pieces are of n positions, at most those of init().
  void set_rows(size_t n) { n_text_ = n; }
  /// Host memory that init() allocates, at most.
  static uint64_t bytes(Device& device, const ModelConfig& config, KvType type);
  /// Calls f(piece) for the pieces of a head, in order.
  template <class F>
  Status each_piece(const HeadPlace& head, F&& f);
  /// Copies from `piece` to rows().
  Status take(const HeadPlace& piece, bool keys);
  /// Copies from rows() to `piece`.
  Status put(const HeadPlace& piece, bool keys);
  Status take_scales(const HeadPlace& piece) {
    return device_.download(rows(), piece.scales, scale_bytes());
  }
  Status put_scales(const HeadPlace& piece) {
    return device_.upload(piece.scales, rows(), scale_bytes());
  }
  uint8_t* rows() { return rows_.data(); }
  // The bytes of the rows at hand of a piece.
  size_t row_bytes(const HeadPlace& piece) const {
    return n_ * static_cast<size_t>(piece.head_dim) * element_bytes(type_);
  }
  size_t scale_bytes() const { return n_ * sizeof(float); }

 private:
  size_t raw_bytes(const HeadPlace& piece) const {
    return round_up(n_, size_t{kKeyBlock}) * static_cast<size_t>(piece.head_dim) *
           element_bytes(type_);
  }
  void lay_out(Carver& c, const ModelConfig& config);
  void learn_places(int32_t head_dim);
  template <size_t kBytes>
  void each_key(int32_t head_dim, bool to_rows);
  void move_keys(int32_t head_dim, bool to_rows);

  Device& device_;
  KvType type_;
  size_t n_text_ = 0;
  size_t n_ = 0;  // positions of the piece at hand
  std::span<uint8_t> raw_;
  std::span<uint8_t> rows_;
  std::span<int32_t> places_;  // of the elements of a key block, row by row
  int32_t places_of_ = 0;      // the head_dim of places_
  HostBuffer memory_;
};

template <class F>
Status KvMover::each_piece(const HeadPlace& head, F&& f) {
  for (size_t first = 0; first < n_text_; first += n_) {
    n_ = std::min(n_text_ - first, kMost);
    HeadPlace piece = head;
    piece.at += first * static_cast<size_t>(head.head_dim) * element_bytes(type_);
    if (head.scales != nullptr) piece.scales += first;
    MOE_TRY(f(piece));
  }
  return {};
}

}  // namespace moe
