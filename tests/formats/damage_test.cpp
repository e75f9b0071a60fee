// SPDX-License-Identifier: MIT
// Damaged files of every kind: each is refused with the right status, and none crashes.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/support/raw_file.h"
#include "tests/support/tiny_model.h"

namespace moe {
namespace {

class Damage : public ::testing::Test {
 protected:
  Damage() : config_(tiny_config()) {
    TinyOptions options;
    options.weights = FormatId::kTernary2;
    sink_ = build_tiny_model(config_, options);
    bytes_.assign(sink_->data(), sink_->data() + sink_->size());
    raw_ = take_apart(*sink_, config_);
    metadata_ = raw_.front.size();
  }

  static Status open(const std::vector<uint8_t>& bytes) {
    auto file = open_bytes(bytes);
    return file.ok() ? Status() : file.status();
  }
  // Opens the changed file and expects an error whose message contains `text`.
  void expect(moe_status code, const char* text) const {
    const Status status = open(put_together(raw_));
    EXPECT_EQ(status.code(), code) << status.text();
    EXPECT_NE(std::strstr(status.text(), text), nullptr) << status.text();
  }

  ModelConfig config_;
  std::unique_ptr<MemorySink> sink_;
  std::vector<uint8_t> bytes_;
  RawFile raw_;
  size_t metadata_ = 0;
};
using Header = Damage;
using Metadata = Damage;
using Layouts = Damage;
using Segments = Damage;

void put(std::vector<uint8_t>* bytes, size_t at, uint64_t value, size_t n = 8) {
  for (size_t i = 0; i < n; ++i) (*bytes)[at + i] = static_cast<uint8_t>(value >> (8 * i));
}

// Updates the header's own checksum.
void sign_header(std::vector<uint8_t>* bytes) { put(bytes, 56, xxh64(bytes->data(), 56)); }

TEST_F(Header, TheGoodFileOpens) { EXPECT_TRUE(open(bytes_).ok()); }

TEST_F(Header, CutAtEveryBoundary) {
  std::vector<size_t> cuts = {0,
                              1,
                              7,
                              8,
                              12,
                              16,
                              55,
                              56,
                              63,
                              64,
                              4095,
                              4096,
                              metadata_ - 1,
                              metadata_,
                              metadata_ + 1,
                              metadata_ + 8,
                              bytes_.size() - 1};
  for (const RawSegment& s : raw_.segments) {
    cuts.insert(cuts.end(), {s.offset, s.offset + 1, s.offset + s.stored - 1, s.offset + s.stored});
  }
  for (const size_t n : cuts) {
    const Status status = open({bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(n)});
    EXPECT_EQ(status.code(), MOE_ERR_FORMAT) << n << ": " << status.text();
  }
}

TEST_F(Header, EveryByteCounts) {
  for (size_t i = 0; i < kHeaderBytes; ++i) {
    for (const uint8_t flip : {uint8_t{1}, uint8_t{0x80}, uint8_t{0xFF}}) {
      auto bad = bytes_;
      bad[i] ^= flip;
      EXPECT_FALSE(open(bad).ok()) << "byte " << i;
    }
  }
}

TEST_F(Header, VersionsAndByteOrder) {
  auto newer = bytes_;
  put(&newer, 8, 2, 2);
  EXPECT_EQ(open(newer).code(), MOE_ERR_VERSION);
  auto minor = bytes_;
  put(&minor, 10, kVersionMinor + 1, 2);
  EXPECT_EQ(open(minor).code(), MOE_ERR_VERSION);
  EXPECT_EQ(bytes_[10], 0);  // minor version 0: a decoder, which every 1.x reader can open
  auto older = bytes_;
  put(&older, 8, 0, 2);
  EXPECT_EQ(open(older).code(), MOE_ERR_FORMAT);
  auto big_endian = bytes_;
  put(&big_endian, 8, 0x0100, 2);
  EXPECT_EQ(open(big_endian).code(), MOE_ERR_VERSION);
}

TEST_F(Header, TrailingJunk) {
  auto bad = bytes_;
  bad.push_back(0);
  EXPECT_EQ(open(bad).code(), MOE_ERR_FORMAT);
}

TEST_F(Header, ImpossibleMetadataRanges) {
  const uint64_t n = bytes_.size();
  const uint64_t m = metadata_;
  const struct {
    uint64_t offset, bytes, size;
  } cases[] = {{m, n - m, n + 1},
               {m, n - m + 1, n},
               {m, 0, n},
               {m, n - m - 1, n},
               {m + 8, n - m - 8, n},
               {0, n, n},
               {m - 64, n - m + 64, n},
               {~0ULL - 4095, n, n},
               {~0ULL & ~4095ULL, 4096, n},
               {n / 4096 * 4096 + 4096, ~0ULL, n},
               {m, ~0ULL, n},
               {m, uint64_t{65} << 20, n}};
  for (const auto& c : cases) {
    auto bad = bytes_;
    put(&bad, 16, c.size);
    put(&bad, 24, c.offset);
    put(&bad, 32, c.bytes);
    sign_header(&bad);
    EXPECT_EQ(open(bad).code(), MOE_ERR_FORMAT) << c.offset << " " << c.bytes << " " << c.size;
  }
  auto size = bytes_;
  put(&size, 12, 72, 4);
  sign_header(&size);
  EXPECT_EQ(open(size).code(), MOE_ERR_FORMAT);
}

TEST_F(Metadata, AChecksumThatDoesNotMatch) {
  for (const size_t at : {metadata_, metadata_ + 100, bytes_.size() - 1}) {
    auto bad = bytes_;
    bad[at] ^= 1;
    EXPECT_EQ(open(bad).code(), MOE_ERR_CORRUPT);
  }
}

// Changes every byte of the FlatBuffer (offsets, vtables, sizes, numbers, names) and updates the
// checksum. If the file still opens, every tensor must be readable.
TEST_F(Metadata, EveryByteChanged) {
  size_t refused = 0;
  for (size_t i = metadata_; i < bytes_.size(); ++i) {
    for (const uint8_t flip : {uint8_t{1}, uint8_t{0x80}, uint8_t{0xFF}}) {
      auto bad = bytes_;
      bad[i] ^= flip;
      seal(&bad, metadata_);
      auto file = open_bytes(bad);
      refused += !file.ok();
      if (!file.ok()) continue;
      for (size_t t = 0; t < (*file)->tensor_count(); ++t)
        EXPECT_NE((*file)->tensor(t).segment, nullptr);
    }
  }
  EXPECT_GT(refused, 1000u);
}

TEST_F(Metadata, CutUnderARightChecksum) {
  for (size_t n = metadata_ + 1; n < bytes_.size(); n += 3) {
    std::vector<uint8_t> bad(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(n));
    seal(&bad, metadata_);
    EXPECT_FALSE(open(bad).ok()) << n;
  }
}

TEST_F(Metadata, MissingFields) {
  flatbuffers::FlatBufferBuilder b;
  const auto start = b.StartTable();
  const auto table = b.EndTable(start);
  b.Finish(flatbuffers::Offset<fbs::Metadata>(table), fbs::MetadataIdentifier());
  std::vector<uint8_t> bad = raw_.front;
  bad.insert(bad.end(), b.GetBufferPointer(), b.GetBufferPointer() + b.GetSize());
  seal(&bad, metadata_);
  EXPECT_EQ(open(bad).code(), MOE_ERR_FORMAT);
}

// A million segments that share one table are refused before memory is allocated for them.
TEST_F(Metadata, ATableBomb) {
  flatbuffers::FlatBufferBuilder b;
  const auto segment = fbs::CreateSegmentDirect(b, "embedding");
  const std::vector<flatbuffers::Offset<fbs::Segment>> segments(1100000, segment);
  const std::vector<flatbuffers::Offset<fbs::Blob>> none;
  fbs::FinishMetadataBuffer(
      b, fbs::CreateMetadataDirect(b, write_config(b, config_), &none, &segments));
  std::vector<uint8_t> bad = raw_.front;
  bad.insert(bad.end(), b.GetBufferPointer(), b.GetBufferPointer() + b.GetSize());
  seal(&bad, metadata_);
  EXPECT_EQ(open(bad).code(), MOE_ERR_FORMAT);
}

TEST_F(Layouts, UnknownNames) {
  raw_.matrix("q", "attention", 0).format = "ternary9";
  expect(MOE_ERR_UNSUPPORTED, "unknown weight format 'ternary9'");
  raw_.matrix("q", "attention", 0).format = "ternary2";
  raw_.matrix("q", "attention", 0).scale = "spiral";
  expect(MOE_ERR_UNSUPPORTED, "unknown scale kind 'spiral'");
  raw_.matrix("q", "attention", 0).scale = "tensor";
  raw_.matrix("q", "attention", 0).activations = "a4";
  expect(MOE_ERR_UNSUPPORTED, "unknown activation precision 'a4'");
  raw_.matrix("q", "attention", 0).activations = "a8";
  raw_.matrix("q", "attention", 0).role = std::string(500, 'q');
  expect(MOE_ERR_UNSUPPORTED, "unknown tensor role 'qqqq");
}

TEST_F(Layouts, ImpossibleOffsets) {
  const RawFile good = raw_;
  const auto try_all = [&](uint64_t RawMatrix::*field) {
    for (const uint64_t delta :
         {uint64_t{1}, uint64_t{64}, ~uint64_t{63}, uint64_t{1} << 31, uint64_t{1} << 63}) {
      raw_ = good;
      raw_.matrix("down", "experts", 1, 0).*field += delta;
      EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT) << delta;
    }
  };
  try_all(&RawMatrix::offset);
  try_all(&RawMatrix::tile_stride);
  try_all(&RawMatrix::scales_offset);
  raw_ = good;
  raw_.matrix("down", "experts", 1, 0).offset = raw_.matrix("gate", "experts", 1, 0).offset;
  EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT);
}

TEST_F(Layouts, ImpossibleShapes) {
  const RawFile good = raw_;
  for (const int32_t rows :
       {0, -1, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    raw_ = good;
    raw_.matrix("q", "attention", 0).rows = rows;
    expect(MOE_ERR_SHAPE, "q: expected (1, 1) to");
    raw_ = good;
    raw_.matrix("q", "attention", 0).cols = rows;
    expect(MOE_ERR_SHAPE, "q: expected (1, 1) to");
  }
  raw_ = good;
  raw_.matrix("q", "attention", 0).rows += 16;
  EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT);
  raw_ = good;
  raw_.matrix("q", "attention", 0).group = 64;
  EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_RANGE);
  raw_ = good;
  raw_.matrix("q", "attention", 0).scale = "group";
  raw_.matrix("q", "attention", 0).group = 0;
  EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_RANGE);
  raw_ = good;
  raw_.blob("attention", 0).matrices.clear();
  EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_SHAPE);
  raw_ = good;
  raw_.blob("attention", 0).bytes += 64;
  EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT);
}

TEST_F(Segments, UnknownNames) {
  raw_.segments[0].part = "soul";
  expect(MOE_ERR_UNSUPPORTED, "unknown part 'soul'");
  raw_.segments[0].part = "embedding";
  raw_.segments[0].codec = "lzma";
  expect(MOE_ERR_UNSUPPORTED, "unknown codec 'lzma'");
}

TEST_F(Segments, ImpossibleRanges) {
  const RawFile good = raw_;
  for (const uint64_t delta :
       {uint64_t{1}, uint64_t{4096}, ~uint64_t{4095}, uint64_t{1} << 31, uint64_t{1} << 63}) {
    raw_ = good;
    raw_.segments[3].offset += delta;
    EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT) << delta;
    raw_ = good;
    raw_.segments[3].stored += delta;
    EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT) << delta;
    raw_ = good;
    raw_.segments[3].raw += delta;
    EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT) << delta;
  }
  raw_ = good;
  std::swap(raw_.segments[2], raw_.segments[3]);  // out of order
  EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT);
  raw_ = good;
  raw_.segments[3].offset = raw_.segments[2].offset;  // overlapping
  EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT);
  raw_ = good;
  raw_.segments.pop_back();  // bytes that belong to no segment
  EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT);
  raw_ = good;
  raw_.segments.clear();
  EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT);
  raw_ = good;
  RawSegment beyond = raw_.segments.back();  // beyond the end of the segments
  beyond.offset = metadata_;
  raw_.segments.push_back(beyond);
  EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT);
}

TEST_F(Segments, SizesThatTheCodecCannotHave) {
  raw_.segments[0].codec = "zstd";  // stored = raw
  expect(MOE_ERR_FORMAT, "with codec zstd");
  raw_.segments[0].stored = 1;  // a ratio that only a decompression bomb can have
  expect(MOE_ERR_FORMAT, "with codec zstd");
  raw_.segments[0].codec = "";
  expect(MOE_ERR_FORMAT, "with codec none");
}

TEST_F(Segments, OwnersAndLayouts) {
  const RawFile good = raw_;
  raw_.segment("attention", 1).layout = 1000000;
  expect(MOE_ERR_FORMAT, "layout: expected below");
  raw_ = good;
  raw_.segment("attention", 1).layer = -1;
  EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT);
  raw_ = good;
  raw_.segment("embedding").layer = 0;
  EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT);
  raw_ = good;
  raw_.segment("attention", 1).expert = 0;
  EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT);
  raw_ = good;
  raw_.segment("experts", 1, 3).expert = -1;
  EXPECT_EQ(open(put_together(raw_)).code(), MOE_ERR_FORMAT);
  raw_ = good;
  raw_.segment("experts", 1, 3).expert = 2;
  expect(MOE_ERR_FORMAT, "segment layers.1.experts.2: the file has it twice");
}

TEST_F(Segments, AChangedByteIsFoundWhenItIsRead) {
  for (const RawSegment& s : raw_.segments) {
    for (const uint64_t at : {uint64_t{0}, s.stored / 2, s.stored - 1}) {
      auto bad = bytes_;
      bad[s.offset + at] ^= 4;
      auto file = open_bytes(bad);
      ASSERT_TRUE(file.ok()) << "opening reads metadata only: " << file.status().text();
      std::vector<uint8_t> out(s.raw);
      const FileSegment* segment = nullptr;
      for (const FileSegment& f : (*file)->segments())
        segment = f.offset == s.offset ? &f : segment;
      EXPECT_EQ((*file)->read(*segment, true, out.data()).code(), MOE_ERR_CORRUPT);
      EXPECT_TRUE((*file)->read(*segment, false, out.data()).ok());
    }
  }
}

}  // namespace
}  // namespace moe
