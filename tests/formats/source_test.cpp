// SPDX-License-Identifier: MIT
// Paths, memory and callbacks as sources; sinks.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "formats/moe/file_source.h"
#include "formats/moe/writer.h"
#include "tests/support/temp_folder.h"

static bool g_fstat_fails = false;

// Replaces the C library's function.
extern "C" int fstat(int fd, struct stat* info) noexcept {
  if (!g_fstat_fails) return fstatat(fd, "", info, AT_EMPTY_PATH);
  errno = EIO;
  return -1;
}

namespace moe {
namespace {

class Folder : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.file(name); }
  std::string file(const std::string& name, const std::string& content) const {
    folder_.write(name, content);
    return path(name);
  }
  static bool exists(const std::string& p) { return access(p.c_str(), F_OK) == 0; }
  std::vector<std::string> names() const { return folder_.names(); }

  const test::TempFolder folder_;
  const std::string path_ = folder_.path();
};
using FileSourceTest = Folder;
using SinkTest = Folder;

TEST_F(FileSourceTest, ReadsAndMapsAFile) {
  auto opened = FileSource::open_path(file("a", "0123456789").c_str());
  ASSERT_TRUE(opened.ok()) << opened.status().text();
  FileSource source = std::move(opened.value());
  EXPECT_EQ(source.size(), 10u);
  char buffer[4] = {};
  ASSERT_TRUE(source.read(6, buffer, 4).ok());
  EXPECT_EQ(std::string(buffer, 4), "6789");
  EXPECT_EQ(source.data(), nullptr);
  ASSERT_TRUE(source.map().ok());
  EXPECT_EQ(std::memcmp(source.data(), "0123456789", 10), 0);
}

TEST_F(FileSourceTest, RefusesWhatIsOutside) {
  const FileSource source = FileSource::from_memory("0123", 4);
  char buffer[8];
  EXPECT_EQ(source.read(1, buffer, 4).code(), MOE_ERR_IO);
  EXPECT_EQ(source.read(5, buffer, 0).code(), MOE_ERR_IO);
  EXPECT_EQ(source.read(~0ULL, buffer, 2).code(), MOE_ERR_IO);
  EXPECT_TRUE(source.read(4, buffer, 0).ok());
}

TEST_F(FileSourceTest, AFileThatShrankIsAnError) {
  const std::string p = file("a", "0123456789");
  auto source = FileSource::open_path(p.c_str());
  ASSERT_TRUE(source.ok());
  ASSERT_EQ(truncate(p.c_str(), 5), 0);
  char buffer[10];
  EXPECT_EQ(source->read(0, buffer, 10).code(), MOE_ERR_IO);
}

TEST_F(FileSourceTest, RefusesMissingFilesFoldersAndPipes) {
  EXPECT_EQ(FileSource::open_path(path("missing").c_str()).status().code(), MOE_ERR_NOT_FOUND);
  EXPECT_EQ(FileSource::open_path(path_.c_str()).status().code(), MOE_ERR_IO);
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(FileSource::open_path(path("pipe").c_str()).status().code(), MOE_ERR_IO);
}

TEST_F(FileSourceTest, Callbacks) {
  const auto read = [](void* user, uint64_t offset, void* buffer, size_t n) {
    if (offset == 3) return false;
    std::memcpy(buffer, static_cast<const char*>(user) + offset, n);
    return true;
  };
  char text[] = "0123456789";
  const FileSource source = FileSource::from_callbacks({10, read, text});
  char buffer[2];
  ASSERT_TRUE(source.read(1, buffer, 2).ok());
  EXPECT_EQ(std::string(buffer, 2), "12");
  EXPECT_EQ(source.read(3, buffer, 2).code(), MOE_ERR_IO);
  EXPECT_EQ(source.read(9, buffer, 2).code(), MOE_ERR_IO);
}

TEST_F(SinkTest, TheFinalNameAppearsAtCommit) {
  const std::string p = file("m", "the old one");
  {
    auto sink = open_file_sink(p);
    ASSERT_TRUE(sink.ok()) << sink.status().text();
    ASSERT_TRUE((*sink)->write(0, "new", 3).ok());
    EXPECT_TRUE(exists((*sink)->written()));
    ASSERT_TRUE((*sink)->commit().ok());
  }
  std::string content;
  std::ifstream(p) >> content;
  EXPECT_EQ(content, "new");
  EXPECT_EQ(names(), std::vector<std::string>{"m"});
}

TEST_F(SinkTest, NothingIsLeftWithoutCommit) {
  const std::string p = file("m", "the old one");
  {
    auto sink = open_file_sink(p);
    ASSERT_TRUE(sink.ok());
    ASSERT_TRUE((*sink)->write(0, "new", 3).ok());
  }
  EXPECT_EQ(names(), std::vector<std::string>{"m"});
  std::string word;
  std::ifstream(p) >> word;
  EXPECT_EQ(word, "the");
}

TEST_F(SinkTest, AnUnnamedFileLeavesNothing) {
  auto sink = open_unnamed_sink(path("m"));
  ASSERT_TRUE(sink.ok()) << sink.status().text();
  EXPECT_TRUE(names().empty());
  ASSERT_TRUE((*sink)->write(5, "new", 3).ok());
  char read[3] = {};
  ASSERT_TRUE((*sink)->read(5, read, 3).ok());
  EXPECT_EQ(std::string(read, 3), "new");
  EXPECT_EQ(open_unnamed_sink(path("no/m")).status().code(), MOE_ERR_IO);
}

TEST_F(SinkTest, OneWriterAtATime) {
  auto first = open_file_sink(path("m"));
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE((*first)->write(0, "new", 3).ok());
  const auto second = open_file_sink(path("m"));
  EXPECT_EQ(second.status().code(), MOE_ERR_IO);
  EXPECT_NE(std::strstr(second.status().text(), "another program"), nullptr);
  ASSERT_TRUE((*first)->commit().ok());
  auto third = open_file_sink(path("m"));  // while the first one still exists
  EXPECT_TRUE(third.ok()) << third.status().text();
  std::string content;
  std::ifstream(path("m")) >> content;
  EXPECT_EQ(content, "new");
}

TEST_F(SinkTest, PlacesThatCannotBeWritten) {
  EXPECT_EQ(open_file_sink(path("no/such/folder/m")).status().code(), MOE_ERR_IO);
  EXPECT_EQ(open_file_sink(path_).status().code(), MOE_ERR_IO);
}

TEST_F(SinkTest, AFailedFstatIsAnErrorAndLeavesNothing) {
  g_fstat_fails = true;
  const Status status = open_file_sink(path("m")).status();
  g_fstat_fails = false;
  EXPECT_EQ(status.code(), MOE_ERR_IO);
  EXPECT_NE(std::strstr(status.text(), "look at"), nullptr) << status.text();
  EXPECT_TRUE(names().empty());
}

TEST_F(SinkTest, AFileThatMayNotGrowIsAnErrorAndLeavesNothing) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  {
    auto sink = open_file_sink(path("m"));
    ASSERT_TRUE(sink.ok()) << sink.status().text();
    const rlimit small{2, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    const Status status = (*sink)->write(0, "new", 3);
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(status.code(), MOE_ERR_IO);
    EXPECT_NE(std::strstr(status.text(), "File too large"), nullptr) << status.text();
  }
  EXPECT_TRUE(names().empty());
}

}  // namespace
}  // namespace moe
