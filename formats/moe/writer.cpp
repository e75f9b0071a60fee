// SPDX-License-Identifier: MIT
// Hashes, writes and compresses segments as they come; the metadata, with an entry for each
// segment, ends the file.
#include "formats/moe/writer.h"

#include <algorithm>
#include <cinttypes>

#include "formats/moe/checksum.h"
#include "formats/moe/header.h"
#include "formats/moe/zstd_segment.h"
#include "quant/formats.h"

namespace moe {

uint32_t ModelWriter::layout_index(const BlobLayout& layout) {
  const auto equal = [&layout](const Layout& known) {
    return known.bytes == layout.bytes &&
           std::equal(known.matrices.begin(), known.matrices.end(), layout.matrices.begin(),
                      layout.matrices.end());
  };
  const auto found = std::find_if(layouts_.begin(), layouts_.end(), equal);
  const auto index = static_cast<uint32_t>(found - layouts_.begin());
  if (found == layouts_.end()) {
    layouts_.push_back({{layout.matrices.begin(), layout.matrices.end()}, layout.bytes});
  }
  return index;
}

Status ModelWriter::begin_segment(const SegmentId& id, const BlobLayout& layout) {
  if (open_) return Status::error(MOE_ERR_STATE, "model writer: a segment is open already");
  if (layout.bytes == 0)
    return Status::error(MOE_ERR_STATE, "model writer: the layout was not placed");
  if (position_ == 0) position_ = kSegmentAlign;
  current_ = {};
  current_.id = id;
  current_.layout = layout_index(layout);
  current_.offset = position_;
  current_.raw = layout.bytes;
  written_ = 0;
  hash_.reset();
  open_ = true;
  return {};
}

Status ModelWriter::write(const void* bytes, size_t n) {
  if (!open_ || n > current_.raw - written_) {
    return Status::error(MOE_ERR_STATE,
                         "model writer: %zu bytes more than the segment has room for", n);
  }
  if (n == 0) return {};
  MOE_TRY(sink_.write(current_.offset + written_, bytes, n));
  hash_.add(bytes, n);
  written_ += n;
  return {};
}

Status ModelWriter::end_segment() {
  if (!open_ || written_ != current_.raw) {
    return Status::error(MOE_ERR_STATE,
                         "model writer: expected %" PRIu64 " bytes in the segment, got %" PRIu64,
                         current_.raw, written_);
  }
  open_ = false;
  current_.stored = current_.raw;
  current_.xxh64 = hash_.value();
  if (compress_) MOE_TRY(compress_segment(&current_));
  entries_.push_back(current_);
  position_ = round_up(current_.offset + current_.stored, kSegmentAlign);
  return {};
}

Status ModelWriter::write_hole(const SegmentId& id, const BlobLayout& layout) {
  MOE_TRY(begin_segment(id, layout));
  written_ = current_.raw;  // its checksum is that of no bytes
  return end_segment();
}

Status ModelWriter::write_segment(const SegmentId& id, const BlobLayout& layout, const void* blob) {
  MOE_TRY(begin_segment(id, layout));
  MOE_TRY(write(blob, layout.bytes));
  return end_segment();
}

Status ModelWriter::compress_segment(Entry* entry) {
  uint64_t size = 0;
  uint64_t hash = 0;
  MOE_TRY(measure_zstd(sink_, entry->offset, entry->raw, &size));
  if (!zstd_is_worth(entry->raw, size)) return {};
  MOE_TRY(compress_in_place(sink_, entry->offset, entry->raw, &size, &hash));
  entry->codec = Codec::kZstd;
  entry->stored = size;
  entry->xxh64 = hash;
  return sink_.truncate(entry->offset + size);
}

namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

// Omits names that are the default.
Offset<flatbuffers::String> name_or_none(FlatBufferBuilder& b, const char* name,
                                         const char* absent) {
  return std::string_view(name) == absent ? Offset<flatbuffers::String>()
                                          : b.CreateSharedString(name);
}

// Fields are added in the order of flatc's Create functions (src/convert/config_write.cpp).
Offset<fbs::Matrix> write_matrix(FlatBufferBuilder& b, const BlobMatrix& m) {
  const auto role = b.CreateSharedString(name_in(kRoles, m.role));
  const auto format = b.CreateSharedString(format_info(m.format).name);
  const auto scale = name_or_none(b, name_in(kScaleKinds, m.scale), "none");
  const auto act = name_or_none(b, name_in(kActPrecisions, m.act), "f32");
  fbs::MatrixBuilder out(b);
  out.add_scales_offset(m.scales_offset);
  out.add_tile_stride(m.tile_stride);
  out.add_offset(m.offset);
  out.add_cols(m.cols);
  out.add_rows(m.rows);
  out.add_activations(act);
  out.add_group(m.group);
  out.add_scale(scale);
  out.add_format(format);
  out.add_sublayer(m.sublayer);
  out.add_role(role);
  out.add_rotated(m.rotated);
  return out.Finish();
}

// e: a ModelWriter::Entry, whose name is private.
Offset<fbs::Segment> write_entry(FlatBufferBuilder& b, const auto& e) {
  const auto part = b.CreateSharedString(name_in(kParts, e.id.part));
  const auto codec = name_or_none(b, name_in(kCodecs, e.codec), "none");
  fbs::SegmentBuilder out(b);
  out.add_xxh64(e.xxh64);
  out.add_raw(e.raw);
  out.add_stored(e.stored);
  out.add_offset(e.offset);
  out.add_codec(codec);
  out.add_layout(e.layout);
  out.add_expert(e.id.expert);
  out.add_layer(e.id.layer);
  out.add_part(part);
  return out.Finish();
}

}  // namespace

Status ModelWriter::write_metadata(const Builder<fbs::ModelConfig>& config,
                                   const Builder<fbs::Tokenizer>& tokenizer, const Notes& notes,
                                   uint16_t minor) {
  FlatBufferBuilder b;
  std::vector<Offset<fbs::Blob>> layouts;
  for (const Layout& layout : layouts_) {
    std::vector<Offset<fbs::Matrix>> matrices;
    for (const BlobMatrix& m : layout.matrices) matrices.push_back(write_matrix(b, m));
    layouts.push_back(fbs::CreateBlobDirect(b, layout.bytes, &matrices));
  }
  std::vector<Offset<fbs::Segment>> segments;
  for (const Entry& e : entries_) {
    segments.push_back(write_entry(b, e));
  }
  std::vector<Offset<fbs::Note>> written_notes;
  for (const auto& [key, value] : notes) {
    written_notes.push_back(fbs::CreateNoteDirect(b, key.c_str(), value.c_str()));
  }
  const auto config_offset = config(b);
  const auto tokenizer_offset = tokenizer ? tokenizer(b) : Offset<fbs::Tokenizer>();
  fbs::FinishMetadataBuffer(
      b, fbs::CreateMetadataDirect(b, config_offset, &layouts, &segments, tokenizer_offset,
                                   notes.empty() ? nullptr : &written_notes));
  if (b.GetSize() > kMaxMetadataBytes) {
    return Status::error(MOE_ERR_TOO_LONG, "metadata: expected at most %" PRIu64 " bytes, found %u",
                         kMaxMetadataBytes, b.GetSize());
  }
  flatbuffers::Verifier verifier(b.GetBufferPointer(), b.GetSize(), kMaxMetadataDepth,
                                 kMaxMetadataTables);
  if (!fbs::VerifyMetadataBuffer(verifier)) {
    return Status::error(MOE_ERR_TOO_LONG, "metadata: more than %u tables, which no reader takes",
                         kMaxMetadataTables);
  }
  FileHeader header;
  header.minor = minor;
  header.metadata_offset = position_;
  header.metadata_bytes = b.GetSize();
  header.metadata_xxh64 = xxh64(b.GetBufferPointer(), b.GetSize());
  header.file_bytes = position_ + b.GetSize();
  MOE_TRY(sink_.write(position_, b.GetBufferPointer(), b.GetSize()));
  uint8_t bytes[kHeaderBytes];
  encode_header(header, bytes);
  return sink_.write(0, bytes, sizeof bytes);
}

Status ModelWriter::finish(const Builder<fbs::ModelConfig>& config,
                           const Builder<fbs::Tokenizer>& tokenizer, const Notes& notes,
                           uint16_t minor) {
  if (open_) return Status::error(MOE_ERR_STATE, "model writer: a segment is still open");
  if (position_ == 0) position_ = kSegmentAlign;
  MOE_TRY(write_metadata(config, tokenizer, notes, minor));
  return sink_.commit();
}

}  // namespace moe
