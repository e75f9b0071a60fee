// SPDX-License-Identifier: MIT
#pragma once
// One segment of the model file, streamed from the checkpoint.

#include "formats/moe/writer.h"
#include "src/convert/calibration/calibrate.h"
#include "src/convert/report.h"
#include "src/convert/weights/storage.h"
#include "src/convert/weights/tile_packer.h"

namespace moe {

class SegmentStream {
 public:
  /// `advance` receives the bytes of the checkpoint packed since the last call (0: still analysing)
  /// and may throw. `segment` and `checkpoint` must outlive the stream. Decides how each matrix is
  /// stored, which may read it. `inputs`: null, or statistics that weight its errors. Memory grows
  /// with the threads of `pool`: about ten parts of rows_per_part() each, of gate and up in floats
  /// twenty.
  SegmentStream(const PlannedSegment& segment, const Checkpoint& checkpoint,
                InputStatistics* inputs, ThreadPool& pool, std::function<void(uint64_t)> advance);

  void write(ModelWriter& writer);

  const BlobLayout& layout() const { return layout_; }
  /// One per matrix of the segment; complete after write().
  const std::vector<MatrixReport>& reports() const { return reports_; }

 private:
  void put_tiles(const std::vector<size_t>& group);
  void report(size_t i, const StorageError& error, const std::vector<const TilePacker*>& packers);
  void put_scales(size_t i);
  KnownInputs known_inputs(const PlannedMatrix& matrix, const Storage& storage);
  const float* importance(const PlannedMatrix& matrix) const;
  void put(const void* bytes, size_t n);
  void pad_to(uint64_t offset);
  void flush();

  const PlannedSegment& segment_;
  const Checkpoint& checkpoint_;
  InputStatistics* inputs_;
  ThreadPool& pool_;
  std::function<void(uint64_t)> advance_;
  std::vector<Storage> storages_;
  BlobLayout layout_;
  std::vector<std::vector<float>> scales_;  // per matrix, written after its tiles
  std::vector<MatrixReport> reports_;
  ModelWriter* writer_ = nullptr;
  std::vector<uint8_t> buffer_;
  uint64_t position_ = 0;  // in the segment, including the buffer
};

}  // namespace moe
