// SPDX-License-Identifier: MIT
#pragma once
// A table of embeddings that stays in the file: its rows are read as tokens need them.

#include <algorithm>
#include <atomic>

#include "formats/moe/reader.h"
#include "kernels/row_source.h"
#include "src/base/mutex.h"

namespace moe {

/// The tile around one row is in memory, and what else the segment has beside its table.
class RowTable final : public RowSource {
 public:
  explicit RowTable(const Allocator& allocator) : allocator_(allocator), rest_(allocator) {}
  RowTable(const RowTable&) = delete;
  RowTable& operator=(const RowTable&) = delete;
  ~RowTable() { deallocate(allocator_, memory_, bytes()); }

  /// True if single rows of the segment can be read, and are not in memory anyway.
  static bool can_read(const MoeFile& file, const FileSegment& segment) {
    return segment.codec == Codec::kNone && file.in_place(segment) == nullptr;
  }
  /// Takes the segment's matrix with role `weight` as the table. MOE_ERR_MEMORY.
  Status open(const MoeFile& file, const FileSegment& segment);
  bool is_open() const { return segment_ != nullptr; }
  bool is_of(const FileSegment& segment) const { return segment_ == &segment; }
  /// Memory that load() allocates.
  size_t bytes() const { return is_open() ? 2 * room_bytes() + rest_bytes() : 0; }

  /// Reads the rest once; `verify` reads the segment through before and compares its checksum. On
  /// failure it may be repeated. Not while another load() or verify() runs. MOE_ERR_CORRUPT,
  /// MOE_ERR_IO, MOE_ERR_MEMORY.
  Status load(bool verify);
  /// The rest, whose layout has offsets of its own; without matrices if there is none.
  const BlobLayout& rest() const { return rest_; }
  const uint8_t* rest_base() const { return memory_ == nullptr ? nullptr : memory_ + rest_at(); }

  /// How rows are rotated, if the table is; before the first read().
  void set_rotation(const InputRotation* rotation) {
    rotation_ = table_.rotated ? rotation : nullptr;
  }
  /// Verifies the row's codes and scales. MOE_ERR_RANGE, MOE_ERR_NON_FINITE, MOE_ERR_IO.
  Status read(int32_t row, float* out) override;
  /// Checks everything: the checksum, and codes and scales of all rows. Loads what is not loaded.
  /// Rows may be read meanwhile: they wait for a part, not for all of it.
  Status verify();

 private:
  static constexpr int32_t kNoTile = -1;

  size_t tile_bytes() const { return static_cast<size_t>(table_.tile_stride); }
  size_t scale_bytes() const;  // of a tile, if the scales are not in it
  size_t room_bytes() const {
    return MoeFile::part_room_bytes(std::max(tile_bytes(), scale_bytes()));
  }
  size_t rest_at() const { return 2 * room_bytes(); }
  size_t rest_bytes() const { return static_cast<size_t>(rest_.bytes); }
  Status allocate_memory();
  void let_rows_pass() const;
  Status check_sum();
  Status read_rest();
  Status copy(uint64_t offset, uint64_t n, uint8_t* out);
  Status read_tile(int32_t tile);

  const Allocator& allocator_;
  const MoeFile* file_ = nullptr;
  const FileSegment* segment_ = nullptr;
  BlobMatrix table_;
  const InputRotation* rotation_ = nullptr;
  BlobLayout rest_;
  bool loaded_ = false;
  uint8_t* memory_ = nullptr;  // room for a tile, room for its scales, the rest

  Mutex mutex_;  // of the tile and its room, which passes at the same time share
  std::atomic<int32_t> n_waiting_{0};  // rows
  int32_t tile_index_ = kNoTile;
  Matrix tile_;
};

}  // namespace moe
