// SPDX-License-Identifier: MIT
// Packs the matrices of a segment tile by tile in the order of the file and passes them to the
// writer.
#include "src/convert/weights/segment_stream.h"

#include <memory>

#include "formats/import/failure.h"
#include "quant/formats.h"

namespace moe {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

// Matrices with interleaved tiles: a gate and its up, or one matrix alone.
std::vector<std::vector<size_t>> tile_groups(const BlobLayout& layout) {
  std::vector<std::vector<size_t>> groups;
  for (size_t i = 0; i < layout.matrices.size(); ++i) {
    const BlobMatrix& m = layout.matrices[i];
    const bool joins = i > 0 && m.offset < layout.matrices[i - 1].offset + m.tile_stride &&
                       m.tile_stride == layout.matrices[i - 1].tile_stride;
    if (joins) {
      groups.back().push_back(i);
    } else {
      groups.push_back({i});
    }
  }
  return groups;
}

MatrixReport first_report(const PlannedMatrix& m, const Storage& storage, const BlobMatrix& blob) {
  MatrixReport r;
  r.name = m.slot.short_name();
  r.rows = m.slot.rows;
  r.cols = m.slot.cols;
  r.format = storage.format;
  r.scale = storage.scale;
  r.group = storage.group;
  r.act = storage.act;
  r.bytes = stored_bytes(blob);
  r.source_type = source_type_info(m.tensor->type).name;
  r.source_bytes = m.file_bytes();
  r.kept = storage.kept;
  if (r.kept) r.kept_bytes = stored_bytes(blob_matrix(m.slot, storage_of_codes(*r.kept)));
  return r;
}

}  // namespace

SegmentStream::SegmentStream(const PlannedSegment& segment, const Checkpoint& checkpoint,
                             InputStatistics* inputs, std::function<void(uint64_t)> advance)
    : segment_(segment),
      checkpoint_(checkpoint),
      inputs_(inputs),
      advance_(std::move(advance)),
      scales_(segment.matrices.size()) {
  for (const PlannedMatrix& m : segment.matrices) {
    storages_.push_back(choose_storage(m, checkpoint, importance(m), [this] { advance_(0); }));
    check(layout_.matrices.push(blob_matrix(m.slot, storages_.back())));
  }
  const Status placed = place(&layout_);
  if (!placed.ok()) {
    char name[kTensorNameBytes];
    segment_name(segment.part, segment.layer, segment.expert, name);
    throw Failure(placed.with_context("%s", name));
  }
  for (size_t i = 0; i < segment.matrices.size(); ++i) {
    reports_.push_back(first_report(segment.matrices[i], storages_[i], layout_.matrices[i]));
  }
}

const float* SegmentStream::importance(const PlannedMatrix& m) const {
  return inputs_ != nullptr ? inputs_->importance(m.slot.short_name()) : nullptr;
}

KnownInputs SegmentStream::known_inputs(const PlannedMatrix& m, const Storage& storage) {
  KnownInputs known{importance(m), nullptr, nullptr};
  if (known.importance == nullptr || !can_calibrate(m, storage)) return known;
  known.feedback = inputs_->feedback(m.slot.short_name());
  known.pool = &inputs_->pool();
  return known;
}

void SegmentStream::write(ModelWriter& writer) {
  writer_ = &writer;
  position_ = 0;
  buffer_.reserve(kBufferBytes);
  check(writer.begin_segment({segment_.part, segment_.layer, segment_.expert}, layout_));
  for (const std::vector<size_t>& group : tile_groups(layout_)) put_tiles(group);
  for (size_t i = 0; i < scales_.size(); ++i) put_scales(i);
  pad_to(layout_.bytes);
  flush();
  check(writer.end_segment());
}

void SegmentStream::put_tiles(const std::vector<size_t>& group) {
  std::vector<std::unique_ptr<TilePacker>> packers;
  std::vector<std::vector<uint8_t>> tiles;
  for (const size_t i : group) {
    const PlannedMatrix& m = segment_.matrices[i];
    packers.push_back(
        std::make_unique<TilePacker>(m, storages_[i], checkpoint_, known_inputs(m, storages_[i])));
    tiles.emplace_back(format_info(storages_[i].format).tile_bytes(m.slot.cols));
  }
  const Slot& slot = segment_.matrices[group[0]].slot;  // a gate and its up have one shape
  const int32_t n_tiles = (slot.rows + kTileRows - 1) / kTileRows;
  for (int32_t t = 0; t < n_tiles; ++t) {
    const int32_t n_rows = std::min(kTileRows, slot.rows - t * kTileRows);
    for (size_t g = 0; g < group.size(); ++g) {
      const BlobMatrix& blob = layout_.matrices[group[g]];
      pad_to(blob.offset + static_cast<uint64_t>(t) * blob.tile_stride);
      packers[g]->pack(t, tiles[g].data());
      put(tiles[g].data(), tiles[g].size());
      advance_(segment_.matrices[group[g]].source_bytes(static_cast<uint64_t>(n_rows) *
                                                        static_cast<uint64_t>(slot.cols)));
    }
  }
  for (size_t g = 0; g < group.size(); ++g) {
    MatrixReport& report = reports_[group[g]];
    report.lossless = packers[g]->error().lossless();
    report.relative_error = packers[g]->error().relative();
    report.max_error = packers[g]->error().largest;
    report.zeros = packers[g]->error().squared_norm == 0;
    report.weighted = packers[g]->is_weighted();
    report.compensated = packers[g]->is_compensated();
    report.weighted_error = packers[g]->error().weighted();
    if (inputs_ != nullptr) report.n_tokens = inputs_->n_tokens(report.name);
    scales_[group[g]] = packers[g]->scales();
  }
}

void SegmentStream::put_scales(size_t i) {
  if (scales_[i].empty()) return;
  pad_to(layout_.matrices[i].scales_offset);
  put(scales_[i].data(), scales_[i].size() * sizeof(float));
}

void SegmentStream::put(const void* bytes, size_t n) {
  if (buffer_.size() + n > kBufferBytes) flush();
  position_ += n;
  if (n > kBufferBytes) {
    check(writer_->write(bytes, n));
    return;
  }
  const auto* p = static_cast<const uint8_t*>(bytes);
  buffer_.insert(buffer_.end(), p, p + n);
}

void SegmentStream::pad_to(uint64_t offset) {
  static constexpr uint8_t kZeros[kMatrixAlign] = {};
  if (offset < position_ || offset - position_ >= kMatrixAlign) {
    fail(MOE_ERR_INTERNAL, "segment layout: at byte %llu, expected to be at %llu",
         static_cast<unsigned long long>(position_), static_cast<unsigned long long>(offset));
  }
  put(kZeros, static_cast<size_t>(offset - position_));
}

void SegmentStream::flush() {
  check(writer_->write(buffer_.data(), buffer_.size()));
  buffer_.clear();
}

}  // namespace moe
