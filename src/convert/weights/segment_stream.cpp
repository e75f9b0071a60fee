// SPDX-License-Identifier: MIT
// Packs the matrices of a segment tile by tile in the order of the file and passes them to the
// writer.
#include "src/convert/weights/segment_stream.h"

#include <algorithm>
#include <memory>

#include "formats/import/failure.h"
#include "quant/formats.h"
#include "src/convert/weights/in_order.h"

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
  r.own_rounding = m.tensor->bit_linear == BitLinear::kRounded && r.format == FormatId::kTernary2;
  r.source_bytes = m.file_bytes();
  r.kept = storage.kept;
  if (m.reason) {
    r.expected_error = m.reason->error;
    r.sensitivity = m.reason->damage;
  }
  if (r.kept) r.kept_bytes = stored_bytes(blob_matrix(m.slot, storage_of_codes(*r.kept)));
  return r;
}

// Neighbouring tiles of each matrix of a group, which one thread packs.
struct PackedTiles {
  std::vector<uint8_t> bytes;
  std::vector<StorageError> errors;  // of each matrix
};

}  // namespace

SegmentStream::SegmentStream(const PlannedSegment& segment, const Checkpoint& checkpoint,
                             InputStatistics* inputs, ThreadPool& pool,
                             std::function<void(uint64_t)> advance)
    : segment_(segment),
      checkpoint_(checkpoint),
      inputs_(inputs),
      pool_(pool),
      advance_(std::move(advance)),
      scales_(segment.matrices.size()) {
  for (const PlannedMatrix& m : segment.matrices) {
    storages_.push_back(
        choose_storage(m, checkpoint, importance(m), pool, [this] { advance_(0); }));
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
  KnownInputs known{importance(m), nullptr};
  if (known.importance == nullptr || !can_calibrate(m, storage)) return known;
  known.feedback = inputs_->feedback(m.slot.short_name());
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
  using Packers = std::vector<std::unique_ptr<TilePacker>>;
  const size_t n_matrices = group.size();
  std::vector<KnownInputs> known;
  bool together = true;
  for (const size_t i : group) {
    const PlannedMatrix& m = segment_.matrices[i];
    known.push_back(known_inputs(m, storages_[i]));
    scales_[i] = first_scales(m, storages_[i]);
    together &= rows_are_together(*m.tensor, m.source);
  }
  const Slot& slot = segment_.matrices[group[0]].slot;  // a gate and its up have one shape
  const int64_t n_tiles = (slot.rows + kTileRows - 1) / kTileRows;
  const int64_t per_part = rows_per_part(slot.cols) / kTileRows;
  const BlobMatrix& first_blob = layout_.matrices[group[0]];
  std::vector<Packers> workers(static_cast<size_t>(pool_.n_threads()));
  std::vector<PackedTiles> parts(slots_of(pool_));
  std::vector<StorageError> errors(n_matrices);
  InOrder work;
  work.n = (n_tiles + per_part - 1) / per_part;
  work.alone = !together;
  work.make = [&](int worker, int64_t p, size_t at) {
    Packers& packers = workers[static_cast<size_t>(worker)];
    for (size_t g = packers.size(); g < n_matrices; ++g) {
      const size_t i = group[g];
      packers.push_back(std::make_unique<TilePacker>(segment_.matrices[i], storages_[i],
                                                     checkpoint_, known[g], &scales_[i]));
    }
    PackedTiles& part = parts[at];
    part.bytes.clear();  // so that what lies between tiles is 0
    part.errors.clear();
    const int64_t end = std::min(n_tiles, (p + 1) * per_part);
    for (int64_t t = p * per_part; t < end; ++t) {
      for (size_t g = 0; g < n_matrices; ++g) {
        const BlobMatrix& blob = layout_.matrices[group[g]];
        const uint64_t place = blob.offset - first_blob.offset +
                               static_cast<uint64_t>(t - p * per_part) * blob.tile_stride;
        part.bytes.resize(static_cast<size_t>(place) +
                          format_info(blob.format).tile_bytes(blob.cols));
        packers[g]->pack(static_cast<int32_t>(t), part.bytes.data() + place);
      }
    }
    for (const auto& packer : packers) part.errors.push_back(packer->take_error());
  };
  work.use = [&](int64_t p, size_t at) {
    pad_to(first_blob.offset + static_cast<uint64_t>(p * per_part) * first_blob.tile_stride);
    put(parts[at].bytes.data(), parts[at].bytes.size());
    for (size_t g = 0; g < n_matrices; ++g) errors[g].add(parts[at].errors[g]);
    return true;
  };
  work.tell = [&](int64_t p) {
    const int64_t first = p * per_part * kTileRows;
    const int64_t n_rows = std::min<int64_t>(slot.rows - first, per_part * kTileRows);
    uint64_t bytes = 0;
    for (const size_t i : group) {
      bytes += segment_.matrices[i].source_bytes(static_cast<uint64_t>(n_rows) *
                                                 static_cast<uint64_t>(slot.cols));
    }
    advance_(bytes);
  };
  run_in_order(pool_, work);
  for (size_t g = 0; g < n_matrices; ++g) {
    std::vector<const TilePacker*> packers;
    for (const Packers& of_worker : workers) {
      if (of_worker.size() > g) packers.push_back(of_worker[g].get());
    }
    report(group[g], errors[g], packers);
  }
}

void SegmentStream::report(size_t i, const StorageError& error,
                           const std::vector<const TilePacker*>& packers) {
  MatrixReport& report = reports_[i];
  report.lossless = error.lossless();
  report.relative_error = error.relative();
  report.max_error = error.largest;
  report.zeros = error.squared_norm == 0;
  report.weighted = packers[0]->is_weighted();
  report.compensated = std::all_of(packers.begin(), packers.end(),
                                   [](const TilePacker* p) { return p->is_compensated(); });
  report.weighted_error = error.weighted();
  if (inputs_ != nullptr) report.n_tokens = inputs_->n_tokens(report.name);
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
