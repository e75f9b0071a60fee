// SPDX-License-Identifier: MIT
// Fails unless the largest difference between a stored matrix and its source is the one that was
// reported; tables must be equal.
#include "src/convert/verify.h"

#include <algorithm>
#include <cmath>

#include "formats/import/failure.h"
#include "formats/moe/reader.h"
#include "quant/formats.h"
#include "src/convert/weights/row_reader.h"

namespace moe {
namespace {

// The bytes of a segment: in place, or a copy.
class SegmentBytes {
 public:
  SegmentBytes(const MoeFile& file, const FileSegment& segment) {
    base_ = file.in_place(segment);
    if (base_ != nullptr) {
      check(file.check(segment, base_));
      return;
    }
    check(copy_.resize(segment.raw));
    check(file.read(segment, true, copy_.data()));
    base_ = copy_.data();
  }
  const uint8_t* base() const { return base_; }

 private:
  const uint8_t* base_ = nullptr;
  Array<uint8_t> copy_;
};

[[noreturn]] void fail_different(const PlannedMatrix& m, int32_t row) {
  fail(MOE_ERR_CORRUPT, "%.200s, row %d: the file does not hold what was written",
       m.slot.short_name().c_str(), row);
}

void verify_ids(const PlannedMatrix& m, const Matrix& stored, const Checkpoint& checkpoint,
                const std::function<void(uint64_t)>& advance) {
  for (int32_t first = 0; first < m.slot.rows; first += kTileRows) {
    const auto n = static_cast<size_t>(std::min(kTileRows, m.slot.rows - first));
    int64_t wanted[kTileRows];
    int32_t found[kTileRows];
    checkpoint.read(*m.tensor, static_cast<uint64_t>(first), n, wanted);
    std::memcpy(found, stored.tiles + (first / kTileRows) * stored.tile_stride, sizeof found);
    for (size_t i = 0; i < n; ++i) {
      if (found[i] != wanted[i]) fail_different(m, first + static_cast<int32_t>(i));
    }
    advance(m.source_bytes(n));
  }
}

void verify_matrix(const PlannedMatrix& m, const Matrix& stored, double largest_error,
                   const Checkpoint& checkpoint, const std::function<void(uint64_t)>& advance) {
  if (m.slot.kind == SlotKind::kTable) return verify_ids(m, stored, checkpoint, advance);
  check(validate_codes(stored));
  const auto cols = static_cast<size_t>(m.slot.cols);
  RowReader reader(checkpoint, *m.tensor, m.source, m.slot.rows, m.slot.cols);
  std::vector<float> found(cols);
  double largest = 0;
  for (int32_t r = 0; r < m.slot.rows; ++r) {
    const float* wanted = reader.row(r);
    read_row(stored, r, found.data());
    for (size_t c = 0; c < cols; ++c) {
      const double difference =
          std::fabs(static_cast<double>(wanted[c]) - static_cast<double>(found[c]));
      if (!(difference <= largest_error)) fail_different(m, r);
      largest = std::max(largest, difference);
    }
    advance(m.source_bytes(cols));
  }
  if (largest != largest_error) fail_different(m, m.slot.rows - 1);
}

}  // namespace

void verify_file(const std::string& path, const Plan& plan,
                 const std::vector<std::vector<double>>& largest_errors,
                 const Checkpoint& checkpoint, const std::function<void(uint64_t)>& advance) {
  // Not mapped: the pages of a whole model would count as this process's memory.
  FileSource source = take(FileSource::open_path(path.c_str()));
  const Box<MoeFile> file = take(MoeFile::open(std::move(source), system_allocator()));
  for (size_t s = 0; s < plan.segments.size(); ++s) {
    const PlannedSegment& planned = plan.segments[s];
    const FileSegment* segment = file->find(planned.part, planned.layer, planned.expert);
    if (segment == nullptr) fail_different(planned.matrices[0], 0);
    const SegmentBytes bytes(*file, *segment);
    const BlobLayout& layout = file->layout(*segment);
    if (layout.matrices.size() != planned.matrices.size()) fail_different(planned.matrices[0], 0);
    for (size_t i = 0; i < planned.matrices.size(); ++i) {
      verify_matrix(planned.matrices[i], view(layout.matrices[i], bytes.base()),
                    largest_errors[s][i], checkpoint, advance);
    }
  }
}

}  // namespace moe
