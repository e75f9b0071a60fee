// SPDX-License-Identifier: MIT
// Verifies the metadata and builds the index of segments; reads, checks and decompresses a segment
// on demand.
#include "formats/moe/reader.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "formats/moe/checksum.h"
#include "formats/moe/zstd_frame.h"

namespace moe {
namespace {

bool before(const FileSegment& a, const FileSegment& b) {
  if (a.part != b.part) return a.part < b.part;
  if (a.layer != b.layer) return a.layer < b.layer;
  return a.expert < b.expert;
}

}  // namespace

MoeFile::MoeFile(FileSource source, const Allocator& allocator)
    : allocator_(allocator),
      source_(std::move(source)),
      metadata_memory_(allocator),
      layouts_(allocator),
      segments_(allocator),
      index_(allocator),
      tensor_begin_(allocator) {}

MoeFile::~MoeFile() = default;

void MoeFile::set_name(const char* name) {
  const size_t n = std::strlen(name);
  const char* shown = n < sizeof name_ ? name : name + n - (sizeof name_ - 1);
  while ((*shown & 0xc0) == 0x80) ++shown;  // not within a UTF-8 character
  std::memcpy(name_, shown, std::strlen(shown) + 1);
}

Status MoeFile::in_file(const Status& status) const {
  return name_[0] == '\0' ? status : status.with_context("%s", name_);
}

Status MoeFile::in_segment(const FileSegment& s, const Status& status) const {
  char name[kTensorNameBytes];
  return in_file(status.with_context("segment %s", segment_name(s.part, s.layer, s.expert, name)));
}

Result<Box<MoeFile>> MoeFile::open(FileSource source, const Allocator& allocator) {
  MOE_ASSIGN(Box<MoeFile> file, make_box<MoeFile>(allocator, std::move(source), allocator));
  MOE_TRY(file->read_metadata());
  MOE_TRY(file->read_layouts());
  MOE_TRY(file->read_segments());
  MOE_TRY(file->build_index());
  return file;
}

Status MoeFile::read_metadata() {
  if (source_.size() < kHeaderBytes) {
    return Status::error(MOE_ERR_FORMAT, "not a model file: it has %" PRIu64 " bytes",
                         source_.size());
  }
  uint8_t header[kHeaderBytes];
  MOE_TRY(source_.read(0, header, sizeof header));
  MOE_TRY(decode_header(header, source_.size(), &header_));
  const auto n = static_cast<size_t>(header_.metadata_bytes);  // at most kMaxMetadataBytes
  MOE_TRY(metadata_memory_.resize(n));
  MOE_TRY(source_.read(header_.metadata_offset, metadata_memory_.data(), n));
  if (xxh64(metadata_memory_.data(), n) != header_.metadata_xxh64) {
    return Status::error(MOE_ERR_CORRUPT,
                         "model file: the checksum of the metadata does not match");
  }
  flatbuffers::Verifier verifier(metadata_memory_.data(), n, kMaxMetadataDepth, kMaxMetadataTables);
  if (!fbs::VerifyMetadataBuffer(verifier)) {
    return Status::error(MOE_ERR_FORMAT, "model file: damaged metadata");
  }
  metadata_ = fbs::GetMetadata(metadata_memory_.data());
  return {};
}

const FileSegment* MoeFile::find(Part part, int32_t layer, int32_t expert) const {
  FileSegment wanted;
  wanted.part = part;
  wanted.layer = layer;
  wanted.expert = expert;
  const uint32_t* found = std::lower_bound(
      index_.begin(), index_.end(), wanted,
      [this](uint32_t i, const FileSegment& s) { return before(segments_[i], s); });
  if (found == index_.end() || before(wanted, segments_[*found])) return nullptr;
  return &segments_[*found];
}

Status MoeFile::build_index() {
  MOE_TRY(index_.reserve(segments_.size()));
  MOE_TRY(tensor_begin_.reserve(segments_.size()));
  for (size_t i = 0; i < segments_.size(); ++i) {
    MOE_TRY(index_.push(static_cast<uint32_t>(i)));
    MOE_TRY(tensor_begin_.push(n_tensors_));
    n_tensors_ += layout(segments_[i]).matrices.size();
  }
  std::sort(index_.begin(), index_.end(),
            [this](uint32_t a, uint32_t b) { return before(segments_[a], segments_[b]); });
  for (size_t i = 1; i < index_.size(); ++i) {
    const FileSegment& s = segments_[index_[i]];
    if (!before(segments_[index_[i - 1]], s)) {
      return in_segment(s, Status::error(MOE_ERR_FORMAT, "the file has it twice"));
    }
  }
  return {};
}

FileTensor MoeFile::tensor(size_t index) const {
  const uint64_t* after = std::upper_bound(tensor_begin_.begin(), tensor_begin_.end(), index);
  const auto i = static_cast<size_t>(after - tensor_begin_.begin()) - 1;
  return {&segments_[i],
          &layout(segments_[i]).matrices[static_cast<size_t>(index - tensor_begin_[i])]};
}

const uint8_t* MoeFile::in_place(const FileSegment& s) const {
  if (source_.data() == nullptr || s.codec != Codec::kNone) return nullptr;
  const uint8_t* bytes = source_.data() + s.offset;
  return reinterpret_cast<uintptr_t>(bytes) % kMatrixAlign == 0 ? bytes : nullptr;
}

Status MoeFile::check(const FileSegment& s, const uint8_t* bytes) const {
  return check_sum(s, xxh64(bytes, static_cast<size_t>(s.stored)));
}

Status MoeFile::check_sum(const FileSegment& s, uint64_t xxh64) const {
  if (xxh64 == s.xxh64) return {};
  return in_segment(
      s, Status::error(MOE_ERR_CORRUPT, "its checksum does not match%s",
                       source_.changed() ? ": the file was written to while it was open" : ""));
}

uint64_t MoeFile::scratch_bytes(const FileSegment& s) const {
  if (s.codec == Codec::kNone) return 0;
  const uint64_t frame = source_.data() != nullptr ? 0 : round_up(s.stored, kSegmentAlign);
  return frame + zstd_state_bytes();
}

Status MoeFile::read(const FileSegment& s, bool verify, const SegmentRoom& room) const {
  const uint64_t n_scratch = scratch_bytes(s);
  if (s.raw > SIZE_MAX || n_scratch > SIZE_MAX) {  // 32-bit machines
    return in_segment(s, out_of_memory("segment", std::max(s.raw, n_scratch)));
  }
  if (s.codec == Codec::kNone) {
    MOE_TRY(fetch(s, room.out, room.bytes));
    return verify ? check(s, room.out) : Status();
  }
  if (room.scratch != nullptr) return decompress(s, verify, room);
  SegmentRoom whole = room;
  const auto n = static_cast<size_t>(n_scratch);
  whole.scratch = static_cast<uint8_t*>(allocate(allocator_, n, kSegmentAlign));
  if (whole.scratch == nullptr) return in_segment(s, out_of_memory("compressed segment", n));
  const Status status = decompress(s, verify, whole);
  deallocate(allocator_, whole.scratch, n);
  return status;
}

// Reads the stored bytes. A direct read to an unsuitable address uses a buffer.
Status MoeFile::fetch(const FileSegment& s, uint8_t* out, uint64_t room) const {
  static_assert(kSegmentAlign % kDirectAlign == 0);
  const auto n = static_cast<size_t>(s.stored);
  const uint64_t whole = round_up(s.stored, kSegmentAlign);
  const bool suits = reinterpret_cast<uintptr_t>(out) % kDirectAlign == 0 && room >= whole;
  const auto block = static_cast<size_t>(std::min(kBufferBytes, whole));
  uint8_t* buffer = nullptr;
  if (direct() && !suits) {
    buffer = static_cast<uint8_t*>(allocate(allocator_, block, kSegmentAlign));
  }
  Status status;
  if (buffer == nullptr) {
    status = source_.read(s.offset, out, n, static_cast<size_t>(std::min<uint64_t>(room, whole)));
  }
  for (size_t done = 0; buffer != nullptr && status.ok() && done < n; done += block) {
    const size_t part = std::min(block, n - done);
    status = source_.read(s.offset + done, buffer, part, block);
    if (status.ok()) std::memcpy(out + done, buffer, part);
  }
  deallocate(allocator_, buffer, block);
  return status.ok() ? status : in_segment(s, status);
}

// A direct read begins before the part, at a multiple of its unit.
Status MoeFile::read_part(const FileSegment& s, uint64_t offset, size_t n, uint8_t* room,
                          const uint8_t** out) const {
  const uint64_t at = s.offset + offset;
  const auto before = static_cast<size_t>(direct() ? at % kDirectAlign : 0);
  const size_t whole = round_up(n + before, static_cast<size_t>(kDirectAlign));
  const Status status = source_.read(at - before, room, n + before, whole);
  *out = room + before;
  return status.ok() ? status : in_segment(s, status);
}

Status MoeFile::decompress(const FileSegment& s, bool verify, const SegmentRoom& room) const {
  const uint8_t* frame = source_.data();
  uint8_t* state = room.scratch;
  if (frame != nullptr) {
    frame += s.offset;
  } else {
    const uint64_t frame_bytes = round_up(s.stored, kSegmentAlign);
    MOE_TRY(fetch(s, room.scratch, frame_bytes));
    frame = room.scratch;
    state += frame_bytes;
  }
  if (verify) MOE_TRY(check(s, frame));
  const Status status = zstd_decompress(frame, static_cast<size_t>(s.stored), room.out,
                                        static_cast<size_t>(s.raw), state);
  return status.ok() ? status : in_segment(s, status);
}

}  // namespace moe
