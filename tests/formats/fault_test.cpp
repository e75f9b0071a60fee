// SPDX-License-Identifier: MIT
// Reads and writes that are short, interrupted or fail. This program's own pread, pwrite and fsync
// replace the C library's.

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "formats/import/failure.h"
#include "formats/import/file.h"
#include "tests/convert/checkpoint_builder.h"
#include "tests/support/memory_device.h"
#include "tests/support/raw_file.h"
#include "tests/support/tiny_model.h"

namespace {

enum class Fault {
  kNone,
  kHesitate,
  kFail
};  // kHesitate: short transfers, and every second call is interrupted
std::atomic<Fault> g_fault{Fault::kNone};
std::atomic<unsigned> g_calls{0};
int g_errno = EIO;

// Whether the call must fail, with errno set; also shortens the transfer.
bool fails(size_t* n) {
  if (g_fault == Fault::kNone) return false;
  const bool interrupt = g_fault == Fault::kHesitate && g_calls++ % 2 == 0;
  *n = std::min<size_t>(*n, 5);
  errno = interrupt ? EINTR : g_errno;
  return interrupt || g_fault == Fault::kFail;
}

}  // namespace

extern "C" ssize_t pread(int fd, void* buffer, size_t n, off_t offset) {
  return fails(&n) ? -1 : syscall(SYS_pread64, fd, buffer, n, offset);
}
extern "C" ssize_t pwrite(int fd, const void* buffer, size_t n, off_t offset) {
  return fails(&n) ? -1 : syscall(SYS_pwrite64, fd, buffer, n, offset);
}
extern "C" int fsync(int) {
  errno = g_errno;
  return g_fault == Fault::kFail ? -1 : 0;
}

namespace moe {
namespace {

class FaultTest : public ::testing::Test {
 protected:
  ~FaultTest() override { g_fault = Fault::kNone; }
  test::TempFolder folder_;
  const std::string content_ = "a text that takes more than five bytes";
};

TEST_F(FaultTest, InterruptedAndShortReadsAreRepeated) {
  folder_.write("a", content_);
  auto source = FileSource::open_path(folder_.file("a").c_str());
  ASSERT_TRUE(source.ok());
  const InputFile input(folder_.file("a"));
  g_fault = Fault::kHesitate;
  std::string got(content_.size(), '\0');
  ASSERT_TRUE(source->read(0, got.data(), got.size()).ok());
  EXPECT_EQ(got, content_);
  got.assign(got.size(), '\0');
  input.read(0, got.data(), got.size());
  EXPECT_EQ(got, content_);
  EXPECT_GT(g_calls, 10u) << "the test's own functions were not called";
}

TEST_F(FaultTest, InterruptedAndShortWritesAreRepeated) {
  g_fault = Fault::kHesitate;
  auto sink = open_file_sink(folder_.file("m"));
  ASSERT_TRUE(sink.ok());
  ASSERT_TRUE((*sink)->write(0, content_.data(), content_.size()).ok());
  std::string got(content_.size(), '\0');
  ASSERT_TRUE((*sink)->read(0, got.data(), got.size()).ok());
  EXPECT_EQ(got, content_);
  ASSERT_TRUE((*sink)->commit().ok());
  EXPECT_EQ(folder_.text("m"), content_);
}

TEST_F(FaultTest, AFailedReadOrWriteIsAnError) {
  folder_.write("m", "old");
  const InputFile input(folder_.file("m"));
  char buffer[3];
  for (const int code : {EIO, ENOSPC}) {
    auto sink = open_file_sink(folder_.file("m"));
    ASSERT_TRUE(sink.ok());
    g_errno = code;
    g_fault = Fault::kFail;
    EXPECT_EQ((*sink)->write(0, "new", 3).code(), MOE_ERR_IO);
    EXPECT_EQ((*sink)->read(0, buffer, 3).code(), MOE_ERR_IO);
    EXPECT_EQ(guarded([&] { input.read(0, buffer, 3); }).code(), MOE_ERR_IO);
    g_fault = Fault::kNone;
  }
  EXPECT_EQ(folder_.text("m"), "old");
  EXPECT_EQ(folder_.names(), std::vector<std::string>{"m"});
}

TEST_F(FaultTest, AFailedSyncPreventsTheRename) {
  folder_.write("m", "old");
  {
    auto sink = open_file_sink(folder_.file("m"));
    ASSERT_TRUE(sink.ok());
    ASSERT_TRUE((*sink)->write(0, "new", 3).ok());
    g_errno = EIO;
    g_fault = Fault::kFail;
    EXPECT_EQ((*sink)->commit().code(), MOE_ERR_IO);
  }
  EXPECT_EQ(folder_.text("m"), "old");
  EXPECT_EQ(folder_.names(), std::vector<std::string>{"m"});
}

TEST_F(FaultTest, AnExpertThatCouldNotBeReadCanBeReadLater) {
  const auto sink = build_tiny_model(tiny_config());
  folder_.write("m", std::string(reinterpret_cast<const char*>(sink->data()), sink->size()));
  auto source = FileSource::open_path(folder_.file("m").c_str());
  ASSERT_TRUE(source.ok());
  auto file = MoeFile::open(std::move(source.value()), system_allocator());
  ASSERT_TRUE(file.ok()) << file.status().text();
  MemoryDevice device(system_allocator());
  auto model = Model::open(std::move(file.value()), {}, device, Logger(), system_allocator());
  ASSERT_TRUE(model.ok()) << model.status().text();
  g_errno = EIO;
  g_fault = Fault::kFail;
  EXPECT_EQ((*model)->prepare().code(), MOE_ERR_IO);
  g_fault = Fault::kHesitate;
  ASSERT_TRUE((*model)->prepare().ok());
  ExpertSource& experts = *(*model)->layer(1).experts;
  Expert expert;
  g_fault = Fault::kFail;
  EXPECT_EQ(experts.acquire(2, {}, &expert).code(), MOE_ERR_IO);
  g_fault = Fault::kNone;
  EXPECT_TRUE(experts.acquire(2, {}, &expert).ok());
  EXPECT_TRUE((*model)->verify().ok());
}

}  // namespace
}  // namespace moe
