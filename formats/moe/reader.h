// SPDX-License-Identifier: MIT
#pragma once
// An open model file: verified metadata, and segments that are read and checked on demand.

#include "formats/moe/file_source.h"
#include "formats/moe/header.h"
#include "formats/moe/layout.h"
#include "formats/moe/schema.h"
#include "src/base/array.h"
#include "src/base/checked.h"

namespace moe {

struct FileSegment {
  Part part = Part::kEmbedding;
  Codec codec = Codec::kNone;
  int32_t layer = -1;
  int32_t expert = -1;
  uint32_t layout = 0;
  uint64_t offset = 0;  // in the file
  uint64_t stored = 0;  // bytes in the file
  uint64_t raw = 0;     // bytes in memory, as in the layout
  uint64_t xxh64 = 0;   // of the stored bytes
};

/// One matrix or vector of the file, for lists.
struct FileTensor {
  const FileSegment* segment;
  const BlobMatrix* matrix;
};

/// Destination of a segment.
struct SegmentRoom {
  uint8_t* out = nullptr;      // a multiple of kMatrixAlign
  uint64_t bytes = 0;          // at `out`: the segment's raw bytes, or more
  uint8_t* scratch = nullptr;  // MoeFile::scratch_bytes() at a multiple of kSegmentAlign; null:
                               // allocated for this read
};

/// Immutable after open(); any thread.
class MoeFile final {
 public:
  /// Reads and checks only header and metadata, including every segment's location. MOE_ERR_FORMAT
  /// (another kind of file, or damaged), MOE_ERR_VERSION, MOE_ERR_CORRUPT (checksum),
  /// MOE_ERR_UNSUPPORTED (an unknown name), MOE_ERR_IO, MOE_ERR_MEMORY.
  static Result<Box<MoeFile>> open(FileSource source, const Allocator& allocator);

  MoeFile(const MoeFile&) = delete;
  MoeFile& operator=(const MoeFile&) = delete;
  ~MoeFile();

  /// Errors of reads begin with the end of this name, such as a path. Before the file is shared.
  void set_name(const char* name);
  /// `status` with the names of file and segment, or of the file alone.
  Status in_segment(const FileSegment& s, const Status& status) const;
  Status in_file(const Status& status) const;

  const fbs::Metadata& metadata() const { return *metadata_; }
  uint64_t file_bytes() const { return header_.file_bytes; }
  uint64_t metadata_bytes() const { return header_.metadata_bytes; }
  const FileHeader& header() const { return header_; }

  std::span<const FileSegment> segments() const { return segments_.span(); }  // in file order
  const BlobLayout& layout(const FileSegment& s) const { return layouts_[s.layout]; }
  /// Null if the file has no such segment.
  const FileSegment* find(Part part, int32_t layer, int32_t expert) const;

  size_t tensor_count() const { return n_tensors_; }
  FileTensor tensor(size_t index) const;

  /// The segment's bytes if they can be used in place: uncompressed, in memory or mapped, and
  /// aligned; otherwise null. Not verified; see check().
  const uint8_t* in_place(const FileSegment& s) const;
  /// True if the whole file is in memory or mapped.
  bool in_memory() const { return source_.data() != nullptr; }
  /// True if reads bypass the page cache.
  bool direct() const { return source_.direct(); }
  /// Buffer of a direct read to an unsuitable address.
  static constexpr uint64_t kBufferBytes = uint64_t{1} << 20;
  /// With this much room at a multiple of kSegmentAlign a direct read needs no buffer; otherwise it
  /// uses one of at most kBufferBytes.
  static uint64_t room_bytes(const FileSegment& s) { return round_up(s.raw, kSegmentAlign); }
  /// Temporary memory for reading this segment: the frame and zstd's state. 0 if not compressed.
  uint64_t scratch_bytes(const FileSegment& s) const;
  /// Reads and decompresses the segment; `verify` compares the checksum first. Bytes in `room`
  /// after the raw bytes may be overwritten. MOE_ERR_CORRUPT, MOE_ERR_IO, MOE_ERR_MEMORY.
  Status read(const FileSegment& s, bool verify, const SegmentRoom& room) const;
  Status read(const FileSegment& s, bool verify, uint8_t* out) const {
    return read(s, verify, SegmentRoom{out, s.raw, nullptr});
  }
  /// Verifies the checksum of in_place() bytes.
  Status check(const FileSegment& s, const uint8_t* bytes) const;

  /// Room for a part of n bytes, at a multiple of kSegmentAlign.
  static constexpr size_t part_room_bytes(size_t n) {
    return round_up(n, static_cast<size_t>(kSegmentAlign)) + static_cast<size_t>(kSegmentAlign);
  }
  /// Reads n bytes from `offset` of a segment that is not compressed; *out is their place in
  /// `room`, of part_room_bytes(n). Nothing is verified. MOE_ERR_IO.
  Status read_part(const FileSegment& s, uint64_t offset, size_t n, uint8_t* room,
                   const uint8_t** out) const;
  /// Compares the checksum of the segment's stored bytes.
  Status check_sum(const FileSegment& s, uint64_t xxh64) const;

 private:
  static constexpr size_t kNameBytes = 200;  // half of an error's text

  template <class T, class... Args>
  friend Result<Box<T>> make_box(const Allocator&, Args&&...);
  MoeFile(FileSource source, const Allocator& allocator);

  Status read_metadata();
  Status read_layouts();
  Status read_layout(const fbs::Blob& blob);
  Status read_segments();
  Status read_segment(const fbs::Segment& segment, uint64_t* next);
  Status build_index();
  Status fetch(const FileSegment& s, uint8_t* out, uint64_t room) const;
  Status decompress(const FileSegment& s, bool verify, const SegmentRoom& room) const;

  const Allocator& allocator_;
  FileSource source_;
  char name_[kNameBytes] = "";
  FileHeader header_;
  Array<uint8_t> metadata_memory_;
  const fbs::Metadata* metadata_ = nullptr;
  Array<BlobLayout> layouts_;
  Array<FileSegment> segments_;
  Array<uint32_t> index_;         // segments by (part, layer, expert)
  Array<uint64_t> tensor_begin_;  // number of tensors before each segment
  size_t n_tensors_ = 0;
};

}  // namespace moe
