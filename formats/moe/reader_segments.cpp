// SPDX-License-Identifier: MIT
// Converts metadata to layouts and segments.
#include <cinttypes>

#include "formats/moe/parse.h"
#include "formats/moe/reader.h"
#include "formats/moe/zstd_frame.h"
#include "quant/formats.h"

namespace moe {
namespace {

Status read_matrix(const fbs::Matrix& m, BlobMatrix* out) {
  MOE_TRY(parse_name(kRoles, "tensor role", text_of(m.role()), &out->role));
  const WeightFormat* format = find_format(text_of(m.format()));
  if (format == nullptr) return unknown_name("weight format", text_of(m.format()));
  out->format = format->id;
  MOE_TRY(parse_name(kScaleKinds, "scale kind", text_of(m.scale(), "none"), &out->scale));
  MOE_TRY(parse_name(kActPrecisions, "activation precision", text_of(m.activations(), "f32"),
                     &out->act));
  out->sublayer = m.sublayer();
  out->group = m.group();
  out->rows = m.rows();
  out->cols = m.cols();
  out->rotated = m.rotated();
  return {};
}

bool same_place(const fbs::Matrix& m, const BlobMatrix& computed) {
  return m.offset() == computed.offset && m.tile_stride() == computed.tile_stride &&
         m.scales_offset() == computed.scales_offset;
}

Status check_codec(const FileSegment& s) {
  const bool fits = s.codec == Codec::kNone ? s.stored == s.raw : zstd_size_fits(s.stored, s.raw);
  if (fits) return {};
  return Status::error(MOE_ERR_FORMAT, "%" PRIu64 " bytes cannot hold %" PRIu64 " with codec %s",
                       s.stored, s.raw, name_in(kCodecs, s.codec));
}

Status check_owner(const FileSegment& s) {
  const bool layer_fits = part_has_layer(s.part) ? s.layer >= 0 : s.layer == -1;
  const bool expert_fits = s.part == Part::kExperts ? s.expert >= 0 : s.expert == -1;
  if (layer_fits && expert_fits) return {};
  return Status::error(MOE_ERR_FORMAT, "layer %d and expert %d do not match this part", s.layer,
                       s.expert);
}

}  // namespace

Status MoeFile::read_layouts() {
  const auto& blobs = *metadata_->layouts();
  MOE_TRY(layouts_.reserve(blobs.size()));
  for (uint32_t i = 0; i < blobs.size(); ++i) {
    const Status status = read_layout(*blobs.Get(i));
    if (!status.ok()) return status.with_context("layout %u", i);
  }
  return {};
}

Status MoeFile::read_layout(const fbs::Blob& blob) {
  BlobLayout layout(allocator_);
  const auto& matrices = *blob.matrices();
  MOE_TRY(layout.matrices.reserve(matrices.size()));
  for (const fbs::Matrix* m : matrices) {
    BlobMatrix read;
    MOE_TRY(read_matrix(*m, &read));
    MOE_TRY(layout.matrices.push(read));
  }
  MOE_TRY(place(&layout));
  for (uint32_t i = 0; i < matrices.size(); ++i) {
    if (same_place(*matrices.Get(i), layout.matrices[i])) continue;
    const BlobMatrix& m = layout.matrices[i];
    return Status::error(MOE_ERR_FORMAT,
                         "%s: expected offset %" PRIu64 ", tile stride %" PRIu64 ", scales %" PRIu64
                         ", file has %" PRIu64 ", %" PRIu64 ", %" PRIu64,
                         name_in(kRoles, m.role), m.offset, m.tile_stride, m.scales_offset,
                         matrices.Get(i)->offset(), matrices.Get(i)->tile_stride(),
                         matrices.Get(i)->scales_offset());
  }
  if (blob.bytes() != layout.bytes) {
    return Status::error(MOE_ERR_FORMAT, "expected %" PRIu64 " bytes, file has %" PRIu64,
                         layout.bytes, blob.bytes());
  }
  return layouts_.push(std::move(layout));
}

Status MoeFile::read_segments() {
  const auto& segments = *metadata_->segments();
  MOE_TRY(segments_.reserve(segments.size()));
  uint64_t expected = kSegmentAlign;
  for (uint32_t i = 0; i < segments.size(); ++i) {
    const Status status = read_segment(*segments.Get(i), &expected);
    if (!status.ok()) return status.with_context("segment %u", i);
  }
  if (expected == header_.metadata_offset) return {};
  return Status::error(MOE_ERR_FORMAT,
                       "model file: expected metadata at %" PRIu64
                       ", after the last segment, found at %" PRIu64,
                       expected, header_.metadata_offset);
}

Status MoeFile::read_segment(const fbs::Segment& segment, uint64_t* next) {
  FileSegment s;
  MOE_TRY(parse_name(kParts, "part", text_of(segment.part()), &s.part));
  MOE_TRY(parse_name(kCodecs, "codec", text_of(segment.codec(), "none"), &s.codec));
  s.layer = segment.layer();
  s.expert = segment.expert();
  s.layout = segment.layout();
  s.offset = segment.offset();
  s.stored = segment.stored();
  s.raw = segment.raw();
  s.xxh64 = segment.xxh64();
  MOE_TRY(check_owner(s));
  if (s.layout >= layouts_.size()) {
    return Status::error(MOE_ERR_FORMAT, "layout: expected below %zu, found %u", layouts_.size(),
                         s.layout);
  }
  if (s.raw != layout(s).bytes) {
    return Status::error(MOE_ERR_FORMAT,
                         "expected %" PRIu64 " bytes, as its layout says, file has %" PRIu64,
                         layout(s).bytes, s.raw);
  }
  MOE_TRY(check_codec(s));
  if (s.raw > SIZE_MAX / 2 || s.stored > SIZE_MAX / 2) {
    return Status::error(MOE_ERR_UNSUPPORTED, "%" PRIu64 " bytes: more than this CPU can address",
                         std::max(s.raw, s.stored));
  }
  if (s.offset != *next) {
    return Status::error(MOE_ERR_FORMAT, "expected at %" PRIu64 ", found at %" PRIu64, *next,
                         s.offset);
  }
  // *next never exceeds metadata_offset: no overflow.
  if (s.stored > header_.metadata_offset - s.offset) {
    return Status::error(MOE_ERR_FORMAT,
                         "%" PRIu64 " bytes at %" PRIu64
                         " reach beyond the segments' end at %" PRIu64,
                         s.stored, s.offset, header_.metadata_offset);
  }
  *next = round_up(s.offset + s.stored, kSegmentAlign);
  return segments_.push(s);
}

}  // namespace moe
