// SPDX-License-Identifier: MIT
#pragma once
// Writes a model file as a stream: segments first, metadata last. Part of libmoe_convert.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "formats/moe/layout.h"
#include "formats/moe/schema.h"
#include "formats/moe/stream_hash.h"
#include "src/base/status.h"

namespace moe {

/// Destination of a model file. Positions are absolute.
class ModelSink {
 public:
  virtual ~ModelSink() = default;
  virtual Status write(uint64_t offset, const void* bytes, size_t n) = 0;
  virtual Status read(uint64_t offset, void* bytes, size_t n) = 0;
  virtual Status truncate(uint64_t size) = 0;
  /// Finishes the file. A sink destroyed before leaves nothing behind.
  virtual Status commit() = 0;
  /// The name of the file that is written until commit(); empty if it has none.
  virtual std::string written() const { return ""; }
};

/// Replaces the file at commit() (src/base/replacement.h). MOE_ERR_IO while another sink for the
/// same path is open.
Result<std::unique_ptr<ModelSink>> open_file_sink(const std::string& path);

/// A file without a name in the folder of `neighbour`: it disappears with the process in any case.
Result<std::unique_ptr<ModelSink>> open_unnamed_sink(const std::string& neighbour);

/// Growing memory; 64-byte aligned, so that the result can be opened in place.
class MemorySink final : public ModelSink {
 public:
  /// `expected_bytes` avoids reallocation.
  explicit MemorySink(size_t expected_bytes = 0) : expected_(expected_bytes) {}
  MemorySink(const MemorySink&) = delete;
  MemorySink& operator=(const MemorySink&) = delete;
  ~MemorySink() override;

  Status write(uint64_t offset, const void* bytes, size_t n) override;
  Status read(uint64_t offset, void* bytes, size_t n) override;
  Status truncate(uint64_t size) override;
  Status commit() override { return {}; }

  const uint8_t* data() const { return data_; }
  uint8_t* data() { return data_; }
  size_t size() const { return size_; }
  /// The memory, to be freed with free(). The sink is empty afterwards.
  uint8_t* release();

 private:
  Status grow(size_t size);

  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
  size_t expected_;
};

/// Identifies a segment; `layer` and `expert` are -1 if not applicable.
struct SegmentId {
  Part part = Part::kEmbedding;
  int32_t layer = -1;
  int32_t expert = -1;
};

class ModelWriter {
 public:
  template <class T>
  using Builder = std::function<flatbuffers::Offset<T>(flatbuffers::FlatBufferBuilder&)>;
  using Notes = std::vector<std::pair<std::string, std::string>>;

  /// `compress`: zstd for segments where it saves at least 5 %. `sink` must outlive the writer.
  ModelWriter(ModelSink& sink, bool compress) : sink_(sink), compress_(compress) {}

  /// Begins a segment of layout.bytes bytes (after place()). Any order is allowed; readers reject
  /// duplicates.
  Status begin_segment(const SegmentId& id, const BlobLayout& layout);
  /// The next n bytes of the segment. Padding bytes are zero.
  Status write(const void* bytes, size_t n);
  /// All bytes must have been written.
  Status end_segment();
  /// A segment whose bytes are a hole and cannot be read, in a file that only describes a model.
  Status write_hole(const SegmentId& id, const BlobLayout& layout);
  /// All three calls for a blob in memory.
  Status write_segment(const SegmentId& id, const BlobLayout& layout, const void* blob);

  /// Writes metadata and header and commits the sink. `tokenizer` may be null. `minor`: of the
  /// version. For a ModelConfig use finish_model() in src/convert/config_write.h.
  Status finish(const Builder<fbs::ModelConfig>& config, const Builder<fbs::Tokenizer>& tokenizer,
                const Notes& notes, uint16_t minor = 0);

 private:
  struct Entry {
    SegmentId id;
    uint32_t layout = 0;
    Codec codec = Codec::kNone;
    uint64_t offset = 0;
    uint64_t stored = 0;
    uint64_t raw = 0;
    uint64_t xxh64 = 0;
  };
  struct Layout {
    std::vector<BlobMatrix> matrices;
    uint64_t bytes = 0;
  };

  uint32_t layout_index(const BlobLayout& layout);
  Status compress_segment(Entry* entry);
  Status write_metadata(const Builder<fbs::ModelConfig>& config,
                        const Builder<fbs::Tokenizer>& tokenizer, const Notes& notes,
                        uint16_t minor);

  ModelSink& sink_;
  bool compress_;
  bool open_ = false;      // inside a segment
  uint64_t position_ = 0;  // start of the next segment; 0: after the header
  uint64_t written_ = 0;   // bytes of the open segment
  Entry current_;
  std::vector<Layout> layouts_;
  std::vector<Entry> entries_;
  StreamHash hash_;  // of the open segment
};

}  // namespace moe
