// SPDX-License-Identifier: MIT
#pragma once
// Splits a model file into parts, so that tests can assemble wrong files with valid checksums.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "formats/moe/checksum.h"
#include "formats/moe/header.h"
#include "formats/moe/reader.h"
#include "formats/moe/writer.h"
#include "src/convert/config_write.h"

namespace moe {

struct RawMatrix {
  std::string role, format, scale, activations;
  int32_t sublayer = -1, group = 0, rows = 0, cols = 0;
  uint64_t offset = 0, tile_stride = 0, scales_offset = 0;
  bool rotated = false;
};
struct RawBlob {
  uint64_t bytes = 0;
  std::vector<RawMatrix> matrices;
};
struct RawSegment {
  std::string part, codec;
  int32_t layer = -1, expert = -1;
  uint32_t layout = 0;
  uint64_t offset = 0, stored = 0, raw = 0, xxh64 = 0;
};

struct RawFile {
  std::vector<uint8_t> front;  // header and segments, up to the metadata
  std::vector<RawBlob> layouts;
  std::vector<RawSegment> segments;
  const ModelConfig* config = nullptr;

  RawSegment& segment(const std::string& part, int32_t layer = -1, int32_t expert = -1) {
    for (RawSegment& s : segments) {
      if (s.part == part && s.layer == layer && s.expert == expert) return s;
    }
    ADD_FAILURE() << "no segment " << part;
    return segments[0];
  }
  RawBlob& blob(const std::string& part, int32_t layer = -1, int32_t expert = -1) {
    return layouts[segment(part, layer, expert).layout];
  }
  RawMatrix& matrix(const std::string& role, const std::string& part, int32_t layer = -1,
                    int32_t expert = -1) {
    for (RawMatrix& m : blob(part, layer, expert).matrices) {
      if (m.role == role) return m;
    }
    ADD_FAILURE() << "no tensor " << part << "." << role;
    return layouts[0].matrices[0];
  }
  /// The bytes of a segment in `front`.
  uint8_t* bytes(const RawSegment& s) { return front.data() + s.offset; }
  /// Recomputes the checksum of a changed segment.
  void sign(RawSegment* s) { s->xxh64 = xxh64(bytes(*s), s->stored); }
};

/// Recomputes header and metadata checksums. The metadata is at the end.
inline void seal(std::vector<uint8_t>* file, uint64_t metadata_offset) {
  FileHeader header;
  header.file_bytes = file->size();
  header.metadata_offset = metadata_offset;
  header.metadata_bytes = file->size() - metadata_offset;
  header.metadata_xxh64 = xxh64(file->data() + metadata_offset, header.metadata_bytes);
  uint8_t bytes[kHeaderBytes];
  encode_header(header, bytes);
  std::copy(bytes, bytes + kHeaderBytes, file->begin());
}

inline RawFile take_apart(const MemorySink& sink, const ModelConfig& config) {
  RawFile raw;
  raw.config = &config;
  auto opened =
      MoeFile::open(FileSource::from_memory(sink.data(), sink.size()), system_allocator());
  EXPECT_TRUE(opened.ok()) << opened.status().text();
  const MoeFile& file = **opened;
  raw.front.assign(sink.data(), sink.data() + file.header().metadata_offset);
  const auto text = [](const flatbuffers::String* s) {
    return s == nullptr ? std::string() : s->str();
  };
  for (const fbs::Blob* b : *file.metadata().layouts()) {
    RawBlob blob{b->bytes(), {}};
    for (const fbs::Matrix* m : *b->matrices()) {
      blob.matrices.push_back({text(m->role()), text(m->format()), text(m->scale()),
                               text(m->activations()), m->sublayer(), m->group(), m->rows(),
                               m->cols(), m->offset(), m->tile_stride(), m->scales_offset(),
                               m->rotated()});
    }
    raw.layouts.push_back(blob);
  }
  for (const fbs::Segment* s : *file.metadata().segments()) {
    raw.segments.push_back({text(s->part()), text(s->codec()), s->layer(), s->expert(), s->layout(),
                            s->offset(), s->stored(), s->raw(), s->xxh64()});
  }
  return raw;
}

/// Assembles the file that `raw` describes, valid or not.
inline std::vector<uint8_t> put_together(const RawFile& raw) {
  flatbuffers::FlatBufferBuilder b;
  const auto text = [&b](const std::string& s) {
    return s.empty() ? flatbuffers::Offset<flatbuffers::String>() : b.CreateString(s);
  };
  std::vector<flatbuffers::Offset<fbs::Blob>> layouts;
  for (const RawBlob& blob : raw.layouts) {
    std::vector<flatbuffers::Offset<fbs::Matrix>> matrices;
    for (const RawMatrix& m : blob.matrices) {
      const auto role = b.CreateString(m.role);
      const auto format = b.CreateString(m.format);
      const auto scale = text(m.scale);
      const auto act = text(m.activations);
      matrices.push_back(fbs::CreateMatrix(b, role, m.sublayer, format, scale, m.group, act, m.rows,
                                           m.cols, m.offset, m.tile_stride, m.scales_offset,
                                           m.rotated));
    }
    layouts.push_back(fbs::CreateBlobDirect(b, blob.bytes, &matrices));
  }
  std::vector<flatbuffers::Offset<fbs::Segment>> segments;
  for (const RawSegment& s : raw.segments) {
    const auto part = b.CreateString(s.part);
    const auto codec = text(s.codec);
    segments.push_back(fbs::CreateSegment(b, part, s.layer, s.expert, s.layout, codec, s.offset,
                                          s.stored, s.raw, s.xxh64));
  }
  const auto config = write_config(b, *raw.config);
  fbs::FinishMetadataBuffer(b, fbs::CreateMetadataDirect(b, config, &layouts, &segments));
  std::vector<uint8_t> file = raw.front;
  file.insert(file.end(), b.GetBufferPointer(), b.GetBufferPointer() + b.GetSize());
  seal(&file, raw.front.size());
  return file;
}

/// Opens any bytes (copied: used in place only if the copy is aligned).
inline Result<Box<MoeFile>> open_bytes(const std::vector<uint8_t>& bytes) {
  return MoeFile::open(FileSource::from_memory(bytes.data(), bytes.size()), system_allocator());
}

}  // namespace moe
