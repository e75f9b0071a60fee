// SPDX-License-Identifier: MIT
// Reads that bypass the page cache, and the buffered reads that replace them where they are not
// possible. This program's own pread replaces the C library's.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "tests/convert/checkpoint_builder.h"
#include "tests/support/failing_allocator.h"
#include "tests/support/raw_file.h"
#include "tests/support/tiny_model.h"

namespace {

enum class Fault { kNone, kRefuse, kShort, kInterrupt, kFail };  // of direct reads
std::atomic<Fault> g_fault{Fault::kNone};
std::atomic<unsigned> g_direct{0};  // direct reads attempted
std::atomic<unsigned> g_usual{0};
std::atomic<size_t> g_largest{0};

bool is_direct(int fd) { return (fcntl(fd, F_GETFL) & O_DIRECT) != 0; }

}  // namespace

extern "C" ssize_t pread(int fd, void* buffer, size_t n, off_t offset) {
  g_largest = std::max<size_t>(g_largest, n);
  if (!is_direct(fd)) {
    ++g_usual;
    return syscall(SYS_pread64, fd, buffer, n, offset);
  }
  const bool even = g_direct++ % 2 == 0;
  if (g_fault == Fault::kRefuse || g_fault == Fault::kFail ||
      (g_fault == Fault::kInterrupt && even)) {
    errno = g_fault == Fault::kRefuse ? EINVAL : g_fault == Fault::kFail ? EIO : EINTR;
    return -1;
  }
  const ssize_t got = syscall(SYS_pread64, fd, buffer, n, offset);
  return g_fault == Fault::kShort && got > 100 ? got - 100 : got;
}

namespace moe {
namespace {

struct Bytes {  // aligned for direct reads, or misaligned by 64 bytes
  Bytes(size_t n, bool aligned) : memory(n + 2 * kDirectAlign, 0xEE), data(memory.data()) {
    while (reinterpret_cast<uintptr_t>(data) % kDirectAlign != 0) ++data;
    if (!aligned) data += 64;
  }
  std::vector<uint8_t> memory;
  uint8_t* data;
};

class DirectTest : public ::testing::Test {
 protected:
  ~DirectTest() override { g_fault = Fault::kNone; }

  // Skips the test if the file system of temporary files does not support direct reads.
  void open_direct(const std::string& name) {
    path_ = folder_.file(name);
    auto opened = FileSource::open_path(path_.c_str());
    ASSERT_TRUE(opened.ok()) << opened.status().text();
    source_ = std::make_unique<FileSource>(std::move(opened.value()));
    const Status status = source_->go_direct(path_.c_str());
    if (!status.ok()) GTEST_SKIP() << status.text();
    EXPECT_TRUE(source_->direct());
    g_direct = g_usual = 0;
    g_largest = 0;
  }
  void open_text(size_t n) {
    content_.resize(n);
    for (size_t i = 0; i < n; ++i) content_[i] = static_cast<char>(i * i >> 5);
    folder_.write("a", content_);
    open_direct("a");
  }
  void expect_read(uint64_t offset, size_t n, size_t room, bool aligned) {
    Bytes bytes(room, aligned);
    const Status status = source_->read(offset, bytes.data, n, room);
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(std::memcmp(bytes.data, content_.data() + offset, n), 0) << offset << " " << n;
    EXPECT_EQ(bytes.data[room], 0xEE) << "written behind the room";
  }

  test::TempFolder folder_;
  std::string path_;
  std::string content_;
  std::unique_ptr<FileSource> source_;
};

TEST_F(DirectTest, ReadsTheSameBytes) {
  ASSERT_NO_FATAL_FAILURE(open_text(3'000'001));
  if (IsSkipped()) return;
  expect_read(0, 4096, 4096, true);
  expect_read(8192, 5000, 8192, true);
  expect_read(4096, 2'500'000, 2'502'656, true);  // three reads
  expect_read(2'998'272, 1729, 4096, true);       // the file ends within a page
  EXPECT_EQ(g_usual, 0u);
  EXPECT_EQ(g_direct, 6u);
  EXPECT_EQ(g_largest, size_t{1} << 20);
}

TEST_F(DirectTest, UnalignedReadsGoThroughThePageCache) {
  ASSERT_NO_FATAL_FAILURE(open_text(100'000));
  if (IsSkipped()) return;
  expect_read(4096, 5000, 8192, false);
  expect_read(4100, 4096, 8192, true);
  expect_read(4096, 5000, 5000, true);  // no room for the rest of the page
  EXPECT_EQ(g_direct, 0u);
}

TEST_F(DirectTest, ShortAndInterruptedReadsGoOn) {
  ASSERT_NO_FATAL_FAILURE(open_text(3'000'001));
  if (IsSkipped()) return;
  for (const Fault fault : {Fault::kShort, Fault::kInterrupt, Fault::kRefuse}) {
    g_fault = fault;
    g_direct = 0;
    expect_read(4096, 2'500'000, 2'502'656, true);
    EXPECT_GT(g_direct, 0u);
  }
  g_fault = Fault::kFail;
  Bytes bytes(4096, true);
  const Status status = source_->read(0, bytes.data, 4096, 4096);
  EXPECT_EQ(status.code(), MOE_ERR_IO);
  EXPECT_NE(std::strstr(status.text(), "Input/output error"), nullptr) << status.text();
}

TEST_F(DirectTest, AFileThatShrankIsAnError) {
  ASSERT_NO_FATAL_FAILURE(open_text(100'000));
  if (IsSkipped()) return;
  EXPECT_FALSE(source_->changed());
  ASSERT_EQ(truncate(path_.c_str(), 10'000), 0);
  Bytes bytes(20480, true);
  const Status status = source_->read(0, bytes.data, 20'000, 20480);
  EXPECT_EQ(status.code(), MOE_ERR_IO);
  EXPECT_NE(std::strstr(status.text(), "ends at 10000"), nullptr) << status.text();
  EXPECT_TRUE(source_->changed());
}

TEST_F(DirectTest, AFileSystemThatRefusesIsNamed) {
  auto source = FileSource::open_path("/proc/cpuinfo");  // open() itself is refused
  ASSERT_TRUE(source.ok());
  const Status status = source->go_direct("/proc/cpuinfo");
  EXPECT_EQ(status.code(), MOE_ERR_UNSUPPORTED);
  EXPECT_NE(std::strstr(status.text(), "/proc/cpuinfo"), nullptr) << status.text();
  EXPECT_FALSE(source->direct());
  folder_.write("a", "0123456789");
  auto other = FileSource::open_path(folder_.file("a").c_str());
  ASSERT_TRUE(other.ok());
  g_fault = Fault::kRefuse;  // open() succeeds, and the first read is refused
  EXPECT_EQ(other->go_direct(folder_.file("a").c_str()).code(), MOE_ERR_UNSUPPORTED);
  char buffer[4] = {};
  ASSERT_TRUE(other->read(6, buffer, 4).ok());
  EXPECT_EQ(std::string(buffer, 4), "6789");
}

TEST_F(DirectTest, AnotherFileOfThatNameIsNotRead) {
  folder_.write("a", "0123456789");
  folder_.write("b", "abcdefghij");
  auto source = FileSource::open_path(folder_.file("a").c_str());
  ASSERT_TRUE(source.ok());
  const Status status = source->go_direct(folder_.file("b").c_str());
  ASSERT_FALSE(status.ok());
  if (status.code() == MOE_ERR_UNSUPPORTED) GTEST_SKIP() << status.text();  // the file system
  EXPECT_NE(std::string(status.text()).find("replaced"), std::string::npos) << status.text();
}

class DirectModelTest : public DirectTest {
 protected:
  void save(bool compress) {
    TinyOptions options;
    options.weights = FormatId::kTernary2;
    options.compress = compress;
    sink_ = build_tiny_model(tiny_config(), options);
    folder_.write("m", std::string(reinterpret_cast<const char*>(sink_->data()), sink_->size()));
  }
  // Compares every segment, read this way, with the same segment read from memory.
  void expect_segments(const MoeFile& file, bool aligned, bool whole_room, bool scratch) {
    auto expected =
        MoeFile::open(FileSource::from_memory(sink_->data(), sink_->size()), system_allocator());
    for (const FileSegment& s : file.segments()) {
      std::vector<uint8_t> want(s.raw);
      ASSERT_TRUE((*expected)->read(s, true, want.data()).ok());
      const uint64_t room = whole_room ? MoeFile::room_bytes(s) : s.raw;
      Bytes got(room, aligned);
      Bytes lent(file.scratch_bytes(s), true);
      const Status status = file.read(s, true, {got.data, room, scratch ? lent.data : nullptr});
      ASSERT_TRUE(status.ok()) << status.text();
      EXPECT_EQ(std::memcmp(got.data, want.data(), want.size()), 0);
      EXPECT_EQ(got.data[room], 0xEE) << "written behind the room";
    }
  }
  std::unique_ptr<MemorySink> sink_;
};

TEST_F(DirectModelTest, EverySegmentFromEveryPlace) {
  for (const bool compress : {false, true}) {
    save(compress);
    ASSERT_NO_FATAL_FAILURE(open_direct("m"));
    if (IsSkipped()) return;
    auto file = MoeFile::open(std::move(*source_), system_allocator());
    ASSERT_TRUE(file.ok()) << file.status().text();
    g_direct = g_usual = 0;
    expect_segments(**file, true, true, true);
    expect_segments(**file, true, true, false);
    expect_segments(**file, true, false, false);
    expect_segments(**file, false, true, true);
    EXPECT_EQ(g_usual, 0u);
    EXPECT_GE(g_direct, 4 * (*file)->segments().size());
  }
}

TEST_F(DirectModelTest, WithRoomAndScratchNothingIsAllocated) {
  for (const bool compress : {false, true}) {
    save(compress);
    ASSERT_NO_FATAL_FAILURE(open_direct("m"));
    if (IsSkipped()) return;
    FailingAllocator memory(FailingAllocator::kNever, true);
    auto file = MoeFile::open(std::move(*source_), memory.get());
    ASSERT_TRUE(file.ok()) << file.status().text();
    memory.fail_in(0);
    expect_segments(**file, true, true, true);
    EXPECT_FALSE(memory.failed());
    // If no buffer can be allocated, uncompressed segments are read with buffered reads.
    if (!compress) expect_segments(**file, false, false, false);
  }
}

TEST_F(DirectModelTest, AFileThatWasWrittenToSaysSo) {
  save(false);
  ASSERT_NO_FATAL_FAILURE(open_direct("m"));
  if (IsSkipped()) return;
  auto file = MoeFile::open(std::move(*source_), system_allocator());
  ASSERT_TRUE(file.ok());
  const FileSegment& last = (*file)->segments()[(*file)->segments().size() - 1];
  usleep(20'000);  // the file system's timestamps are coarse
  const int fd = open(path_.c_str(), O_WRONLY);
  ASSERT_EQ(pwrite(fd, "changed", 7, static_cast<off_t>(last.offset)), 7);
  close(fd);
  Bytes room(MoeFile::room_bytes(last), true);
  const Status status = (*file)->read(last, true, {room.data, MoeFile::room_bytes(last), nullptr});
  EXPECT_EQ(status.code(), MOE_ERR_CORRUPT);
  EXPECT_NE(std::strstr(status.text(), "written to while it was open"), nullptr) << status.text();
}

}  // namespace
}  // namespace moe
