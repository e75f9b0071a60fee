// SPDX-License-Identifier: MIT
// Moves pieces of heads between the device's layout and plain rows, for saving and forking.
#include "src/run/kv_heads.h"

#include <algorithm>
#include <cstring>

namespace moe {
namespace {

int32_t widest_head(const ModelConfig& config, KvType type) {
  int32_t widest = 1;
  for (const LayerConfig& layer : config.layers) {
    widest = std::max(widest, kv_widths(layer.attention, type).key);
  }
  return widest;
}

}  // namespace

Status check_keeps(const ModelConfig& config) {
  if (config.is_encoder()) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "the model is an encoder: its sessions have nothing to save");
  }
  if (!config.is_encoder_decoder()) return {};
  return Status::error(
      MOE_ERR_UNSUPPORTED,
      "the model is an encoder-decoder: its sessions are neither saved nor forked");
}

void KvMover::lay_out(Carver& c, const ModelConfig& config) {
  const HeadPlace largest = {nullptr, nullptr, widest_head(config, type_)};
  c.take(&rows_, static_cast<int64_t>(std::max(row_bytes(largest), scale_bytes())));
  if (is_latent(type_)) return;
  c.take(&raw_, static_cast<int64_t>(raw_bytes(largest)));
  c.take(&places_, int64_t{kKeyBlock} * largest.head_dim);
}

Status KvMover::init(const ModelConfig& config, size_t n) {
  n_text_ = n;
  n_ = std::min(n, kMost);
  return memory_.init("moving keys and values", [&](Carver& c) { lay_out(c, config); });
}

uint64_t KvMover::bytes(Device& device, const ModelConfig& config, KvType type) {
  KvMover mover(device, type, system_allocator());
  mover.n_ = kMost;
  return measured([&](Carver& c) { mover.lay_out(c, config); });
}

void KvMover::learn_places(int32_t head_dim) {
  if (places_of_ == head_dim) return;
  int32_t* place = places_.data();
  for (int32_t p = 0; p < kKeyBlock; ++p) {
    for (int32_t i = 0; i < head_dim; ++i) {
      *place++ = static_cast<int32_t>(device_.key_place(type_, head_dim, p, i));
    }
  }
  places_of_ = head_dim;
}

// Copies keys of n rows element by element.
template <size_t kBytes>
void KvMover::each_key(int32_t head_dim, bool to_rows) {
  const size_t block = size_t{kKeyBlock} * static_cast<size_t>(head_dim);
  const size_t n = n_ * static_cast<size_t>(head_dim);
  for (size_t i = 0; i < n; ++i) {
    uint8_t* const raw =
        raw_.data() + (i / block * block + static_cast<size_t>(places_[i % block])) * kBytes;
    uint8_t* const row = rows_.data() + i * kBytes;
    std::memcpy(to_rows ? row : raw, to_rows ? raw : row, kBytes);
  }
}

void KvMover::move_keys(int32_t head_dim, bool to_rows) {
  if (type_ == KvType::kInt8) return each_key<1>(head_dim, to_rows);
  return type_ == KvType::kF32 ? each_key<4>(head_dim, to_rows) : each_key<2>(head_dim, to_rows);
}

Status KvMover::take(const HeadPlace& piece, bool keys) {
  if (!keys) return device_.download(rows(), piece.at, row_bytes(piece));
  learn_places(piece.head_dim);
  MOE_TRY(device_.download(raw_.data(), piece.at, raw_bytes(piece)));
  move_keys(piece.head_dim, true);
  return {};
}

Status KvMover::put(const HeadPlace& piece, bool keys) {
  if (!keys) return device_.upload(piece.at, rows(), row_bytes(piece));
  learn_places(piece.head_dim);
  std::memset(raw_.data(), 0, raw_bytes(piece));  // zeros for positions after the last one
  move_keys(piece.head_dim, false);
  return device_.upload(piece.at, raw_.data(), raw_bytes(piece));
}

}  // namespace moe
