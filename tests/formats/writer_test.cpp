// SPDX-License-Identifier: MIT
// Files from the writer, read by the reader.

#include "formats/moe/writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/support/failing_allocator.h"
#include "tests/support/raw_file.h"
#include "tests/support/tiny_model.h"

namespace moe {
namespace {

TEST(Writer, SegmentsComeBackByteForByte) {
  const ModelConfig config = tiny_config();
  for (const bool compress : {false, true}) {
    TinyOptions options;
    options.weights = FormatId::kTernary2;
    options.compress = compress;
    const auto sink = build_tiny_model(config, options);
    auto file =
        MoeFile::open(FileSource::from_memory(sink->data(), sink->size()), system_allocator());
    ASSERT_TRUE(file.ok()) << file.status().text();
    TinyWeights weights(config, options);
    size_t n_zstd = 0;
    for (const FileSegment& s : (*file)->segments()) {
      n_zstd += s.codec == Codec::kZstd;
      const BlobLayout layout = weights.layout(s.part, s.layer);
      EXPECT_TRUE(layout == (*file)->layout(s));
      const int32_t n_experts =
          s.layer < 0 ? 0 : config.layers[static_cast<size_t>(s.layer)].ffn.moe.n_experts;
      const std::vector<uint8_t> expected =
          weights.fill(layout, n_experts);  // the same order gives the same random values
      std::vector<uint8_t> got(s.raw);
      const Status status = (*file)->read(s, true, got.data());
      ASSERT_TRUE(status.ok()) << status.text();
      EXPECT_EQ(got, expected);
      EXPECT_EQ((*file)->in_place(s) != nullptr, s.codec == Codec::kNone);
    }
    EXPECT_EQ(n_zstd > 0, compress);
  }
}

TEST(Writer, KeepsZstdOnlyWhereItPays) {
  BlobLayout layout;
  BlobMatrix m;
  m.role = Role::kWeight;
  m.rows = 64;
  m.cols = 64;
  ASSERT_TRUE(layout.matrices.push(m).ok());
  ASSERT_TRUE(place(&layout).ok());
  MemorySink sink;
  ModelWriter writer(sink, true);
  std::mt19937 random(1);
  std::vector<uint8_t> blob(layout.bytes);
  for (uint8_t& b : blob) b = static_cast<uint8_t>(random());
  ASSERT_TRUE(writer.write_segment({Part::kEmbedding}, layout, blob.data()).ok());
  for (size_t i = 0; i < blob.size(); ++i) blob[i] &= 15;
  ASSERT_TRUE(writer.write_segment({Part::kHead}, layout, blob.data()).ok());
  std::fill(blob.begin(), blob.end(), uint8_t{0});  // readers refuse such a high compression ratio
  ASSERT_TRUE(writer.write_segment({Part::kFinalNorm}, layout, blob.data()).ok());
  ASSERT_TRUE(finish_model(writer, tiny_config(), nullptr, {}).ok());
  auto file = MoeFile::open(FileSource::from_memory(sink.data(), sink.size()), system_allocator());
  ASSERT_TRUE(file.ok()) << file.status().text();
  const auto segments = (*file)->segments();
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(segments[0].codec, Codec::kNone);
  EXPECT_EQ(segments[0].stored, layout.bytes);
  EXPECT_EQ(segments[1].codec, Codec::kZstd);
  EXPECT_LT(segments[1].stored, layout.bytes * 95 / 100);
  EXPECT_EQ(segments[2].codec, Codec::kNone);
}

TEST(Writer, CompressesLargeSegmentsInPlace) {
  BlobLayout layout;
  BlobMatrix m;
  m.role = Role::kWeight;
  m.rows = 1024;
  m.cols = 1200;
  ASSERT_TRUE(layout.matrices.push(m).ok());
  ASSERT_TRUE(place(&layout).ok());
  std::mt19937 random(2);
  std::vector<uint8_t> blob(layout.bytes);
  // The first half is incompressible, so the frame is at first longer than its input. It must not
  // overwrite input that has not been read.
  for (size_t i = 0; i < blob.size(); ++i)
    blob[i] = static_cast<uint8_t>(random() & (i < blob.size() / 2 ? 255 : 3));
  MemorySink sink;
  ModelWriter writer(sink, true);
  ASSERT_TRUE(writer.begin_segment({Part::kEmbedding}, layout).ok());
  for (size_t i = 0; i < blob.size(); i += 100000) {
    ASSERT_TRUE(writer.write(blob.data() + i, std::min<size_t>(100000, blob.size() - i)).ok());
  }
  ASSERT_TRUE(writer.end_segment().ok());
  ModelConfig config = tiny_config();
  ASSERT_TRUE(finish_model(writer, config, nullptr, {}).ok());
  auto file = MoeFile::open(FileSource::from_memory(sink.data(), sink.size()), system_allocator());
  ASSERT_TRUE(file.ok()) << file.status().text();
  std::vector<uint8_t> got(layout.bytes);
  const FileSegment& segment = (*file)->segments()[0];
  ASSERT_EQ(segment.codec, Codec::kZstd);
  ASSERT_TRUE((*file)->read(segment, true, got.data()).ok());
  EXPECT_EQ(got, blob);
}

TEST(Writer, WrongUseIsAnError) {
  BlobLayout layout;
  BlobMatrix m;
  m.rows = 16;
  m.cols = 16;
  ASSERT_TRUE(layout.matrices.push(m).ok());
  MemorySink sink;
  ModelWriter writer(sink, false);
  EXPECT_EQ(writer.begin_segment({}, layout).code(),
            MOE_ERR_STATE);  // the layout has not been placed
  ASSERT_TRUE(place(&layout).ok());
  EXPECT_EQ(writer.write("x", 1).code(), MOE_ERR_STATE);
  ASSERT_TRUE(writer.begin_segment({}, layout).ok());
  EXPECT_EQ(writer.begin_segment({}, layout).code(), MOE_ERR_STATE);
  EXPECT_EQ(writer.end_segment().code(), MOE_ERR_STATE);
  const std::vector<uint8_t> blob(layout.bytes + 1);
  EXPECT_EQ(writer.write(blob.data(), blob.size()).code(), MOE_ERR_STATE);
  EXPECT_EQ(finish_model(writer, tiny_config(), nullptr, {}).code(), MOE_ERR_STATE);
}

TEST(Writer, MetadataThatReadersRefuseIsAnError) {
  MemorySink sink;
  ModelWriter writer(sink, false);
  const ModelWriter::Notes notes(kMaxMetadataTables, {"", ""});
  const Status status = finish_model(writer, tiny_config(), nullptr, notes);
  EXPECT_EQ(status.code(), MOE_ERR_TOO_LONG) << status.text();
}

TEST(Writer, TensorsAreListed) {
  const ModelConfig config = tiny_config();
  const auto sink = build_tiny_model(config);
  auto file =
      MoeFile::open(FileSource::from_memory(sink->data(), sink->size()), system_allocator());
  ASSERT_TRUE(file.ok());
  std::vector<std::string> names;
  for (size_t i = 0; i < (*file)->tensor_count(); ++i) {
    const FileTensor t = (*file)->tensor(i);
    char text[kTensorNameBytes];
    names.emplace_back(
        tensor_name(t.segment->part, t.segment->layer, t.segment->expert, *t.matrix, text));
  }
  EXPECT_EQ(names.size(), 1u + 1 + 2 * 5 + 4 + 1 + 1 + 8 * 3);
  for (const char* name : {"embedding.weight", "layers.1.attention.o", "layers.1.router.scores",
                           "layers.1.experts.7.down"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  }
}

TEST(Writer, TakenApartAndPutTogetherItIsTheSame) {
  const ModelConfig config = tiny_config();
  const auto sink = build_tiny_model(config);
  auto file = open_bytes(put_together(take_apart(*sink, config)));
  ASSERT_TRUE(file.ok()) << file.status().text();
  EXPECT_GT((*file)->segments().size(), 10u);
}

TEST(Reader, EveryAllocationMayFail) {
  TinyOptions options;
  options.compress = true;
  const auto sink = build_tiny_model(tiny_config(), options);
  const size_t tried = try_every_allocation_failure([&sink](const Allocator& allocator) {
    auto file = MoeFile::open(FileSource::from_memory(sink->data(), sink->size()), allocator);
    if (!file.ok()) return file.status().code();
    for (const FileSegment& s : (*file)->segments()) {
      std::vector<uint8_t> out(s.raw);
      const Status status = (*file)->read(s, true, out.data());
      if (!status.ok()) return status.code();
    }
    return MOE_OK;
  });
  EXPECT_GT(tried, 10u);
}

}  // namespace
}  // namespace moe
