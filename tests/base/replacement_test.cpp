// SPDX-License-Identifier: MIT
// Files that replace others: the old one or the new one, whole, at any time.

#include "src/base/replacement.h"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace moe {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class ReplacementTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name = "m") const { return files_.file(name); }
  void put(const std::string& name, const std::string& text) const { files_.write(name, text); }
  std::string text(const std::string& name = "m") const { return files_.text(name); }
  Names names() const { return files_.names(); }
  mode_t mode(const std::string& name = "m") const {
    struct stat info {};
    EXPECT_EQ(stat(path(name).c_str(), &info), 0);
    return info.st_mode & 07777;
  }
  static void write(Replacement& file, const std::string& text) {
    int to = -1;
    const Status begun = file.begin(&to);
    ASSERT_TRUE(begun.ok()) << begun.text();
    ASSERT_EQ(::write(to, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void replace(const std::string& name, const std::string& text) const {
    Replacement file;
    const Status opened = file.open(path(name).c_str());
    ASSERT_TRUE(opened.ok()) << opened.text();
    write(file, text);
    const Status committed = file.commit();
    ASSERT_TRUE(committed.ok()) << committed.text();
  }
  std::string refusal(const std::string& path) const {
    Replacement file;
    return file.open(path.c_str()).text();
  }

  const test::TempFolder files_;
  const std::string folder_ = files_.path();
};

TEST_F(ReplacementTest, TheOldFileIsThereUntilTheNewOneIsComplete) {
  put("m", "old");
  {
    Replacement file;
    ASSERT_TRUE(file.open(path().c_str()).ok());
    EXPECT_EQ(names(), (Names{".m.moe-lock", "m"}));
    write(file, "new");
    EXPECT_EQ(text(), "old");
    EXPECT_TRUE(fs::exists(file.written()));
    ASSERT_TRUE(file.commit().ok());
    EXPECT_EQ(text(), "new");
    write(file, "newer");  // the lock stays
    ASSERT_TRUE(file.commit().ok());
    write(file, "never");
  }
  EXPECT_EQ(text(), "newer");
  EXPECT_EQ(names(), Names{"m"});
}

TEST_F(ReplacementTest, BeginningAgainEmptiesTheFile) {
  Replacement file;
  ASSERT_TRUE(file.open(path().c_str()).ok());
  write(file, "a long text");
  write(file, "short");
  ASSERT_TRUE(file.commit().ok());
  EXPECT_EQ(text(), "short");
}

TEST_F(ReplacementTest, StepsOutOfOrderAreErrors) {
  Replacement file;
  int to = -1;
  EXPECT_EQ(file.begin(&to).code(), MOE_ERR_STATE);
  EXPECT_EQ(file.commit().code(), MOE_ERR_STATE);
  ASSERT_TRUE(file.open(path().c_str()).ok());
  EXPECT_EQ(file.commit().code(), MOE_ERR_STATE);
  EXPECT_EQ(file.open("").code(), MOE_ERR_ARGUMENT);
  EXPECT_TRUE(names().empty());
}

TEST_F(ReplacementTest, OneWriterAtATime) {
  Replacement first;
  ASSERT_TRUE(first.open(path().c_str()).ok());
  EXPECT_EQ(refusal(path()), path() + ": another program is writing it");
  fs::create_symlink("m", path("link"));
  EXPECT_EQ(refusal(path("link")), path() + ": another program is writing it");
  EXPECT_EQ(refusal(folder_ + "/./m"), folder_ + "/./m: another program is writing it");
  Replacement other;
  EXPECT_TRUE(other.open(path("n").c_str()).ok());
  first.close();
  Replacement second;
  EXPECT_TRUE(second.open(path().c_str()).ok());
}

TEST_F(ReplacementTest, WhoWaitedForALockThatIsRemovedMakesANewOne) {
  const int writers = 8, turns = 50;
  put("m", "0");
  for (int w = 0; w < writers; ++w) {
    if (fork() != 0) continue;
    for (int turn = 0; turn < turns;) {
      Replacement file;
      if (!file.open(path().c_str()).ok()) continue;
      write(file, std::to_string(std::stoi(text()) + 1));
      if (!file.commit().ok()) _exit(1);
      ++turn;
    }
    _exit(0);
  }
  for (int w = 0; w < writers; ++w) {
    int status = -1;
    wait(&status);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(text(), std::to_string(writers * turns));
  EXPECT_EQ(names(), Names{"m"});
}

TEST_F(ReplacementTest, ModeAndOwnerAreKept) {
  const mode_t before = umask(022);
  replace("new", "text");
  EXPECT_EQ(mode("new"), 0644u);
  for (const mode_t kept : {0600u, 0640u, 0664u, 0755u}) {
    put("m", "old");
    ASSERT_EQ(chmod(path().c_str(), kept), 0);
    {
      Replacement file;
      ASSERT_TRUE(file.open(path().c_str()).ok());
      write(file, "new");
      EXPECT_EQ(mode(fs::path(file.written()).filename().string()), 0600u);
      ASSERT_TRUE(file.commit().ok());
    }
    EXPECT_EQ(mode(), kept);
  }
  umask(before);
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(path().c_str(), 1234, 4321), 0);
  replace("m", "newer");
  struct stat info {};
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 1234u);
  EXPECT_EQ(info.st_gid, 4321u);
}

TEST_F(ReplacementTest, TheTargetOfALinkIsReplaced) {
  fs::create_directory(path("sub"));
  put("sub/m", "old");
  fs::create_symlink("sub/m", path("near"));
  fs::create_symlink(path("near"), path("far"));
  replace("far", "new");
  EXPECT_EQ(text("sub/m"), "new");
  EXPECT_TRUE(fs::is_symlink(path("near")) && fs::is_symlink(path("far")));
  fs::create_symlink("sub/none", path("dangling"));
  replace("dangling", "made");
  EXPECT_EQ(text("sub/none"), "made");
  EXPECT_TRUE(fs::is_symlink(path("dangling")));
  fs::create_symlink("loop", path("loop"));
  EXPECT_NE(refusal(path("loop")).find("symbolic links"), std::string::npos);
  EXPECT_EQ(names(), (Names{"dangling", "far", "loop", "near", "sub"}));
}

TEST_F(ReplacementTest, FilesOfOthersAreNotTouched) {
  put("victim", "precious");
  put("m.partial", "mine");
  put(".m.moe-1234567", "mine");  // seven characters
  put(".m.moe-12-456", "mine");
  put(".mm.moe-123456", "mine");
  fs::create_symlink("victim", path(".m.moe-abcdef"));
  const Names before = names();
  replace("m", "new");
  fs::remove(path());
  EXPECT_EQ(names(), before);
  EXPECT_EQ(text("victim"), "precious");
  fs::create_symlink("victim", path(".m.moe-lock"));
  EXPECT_NE(refusal(path()).find("remove it"), std::string::npos);
  fs::remove(path(".m.moe-lock"));
  put(".m.moe-lock", "mine");
  EXPECT_NE(refusal(path()).find("remove it"), std::string::npos);
  EXPECT_EQ(text(".m.moe-lock"), "mine");
  EXPECT_EQ(text("victim"), "precious");
}

TEST_F(ReplacementTest, TheNextWriterRemovesWhatAKilledOneLeft) {
  put("m", "old");
  const pid_t child = fork();
  if (child == 0) {
    Replacement file;
    if (!file.open(path().c_str()).ok()) _exit(1);
    write(file, "half of the new");
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(names().size(), 3u);
  EXPECT_EQ(text(), "old");
  {
    Replacement file;
    ASSERT_TRUE(file.open(path().c_str()).ok());
    EXPECT_EQ(names(), (Names{".m.moe-lock", "m"}));
  }
  EXPECT_EQ(names(), Names{"m"});
}

TEST_F(ReplacementTest, AForkedChildRemovesNothing) {
  Replacement file;
  ASSERT_TRUE(file.open(path().c_str()).ok());
  write(file, "new");
  if (fork() == 0) {
    file.close();
    _exit(0);
  }
  wait(nullptr);
  ASSERT_TRUE(file.commit().ok());
  EXPECT_EQ(text(), "new");
}

TEST_F(ReplacementTest, PlacesThatCannotBeWritten) {
  fs::create_directory(path("sub"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_NE(refusal(path("sub")).find("found a folder"), std::string::npos);
  EXPECT_NE(refusal(path("pipe")).find("found a named pipe"), std::string::npos);
  EXPECT_NE(refusal("/dev/null").find("found no regular file"), std::string::npos);
  EXPECT_EQ(refusal(path("no/such")), path("no/such") + ": there is no folder " + path("no/"));
  EXPECT_EQ(names(), (Names{"pipe", "sub"}));
  if (geteuid() == 0) return;  // root may write everything
  put("m", "old");
  chmod(path().c_str(), 0400);
  EXPECT_NE(refusal(path()).find("Permission denied"), std::string::npos);
}

TEST_F(ReplacementTest, LongNames) {
  for (const std::string& name : {std::string(255, 'n'), "a" + [] {
                                    std::string text;
                                    for (int i = 0; i < 120; ++i) text += "\u00e9";
                                    return text;
                                  }()}) {
    replace(name, "new");
    EXPECT_EQ(text(name), "new");
  }
  EXPECT_EQ(names().size(), 2u);
}

TEST_F(ReplacementTest, LongNamesOfOneBeginning) {
  const std::string start(230, 'n');
  Replacement first;
  ASSERT_TRUE(first.open(path(start + "1").c_str()).ok());
  write(first, "1");
  Replacement second;
  const Status opened = second.open(path(start + "2").c_str());
  ASSERT_TRUE(opened.ok()) << opened.text();
  write(second, "2");
  EXPECT_EQ(refusal(path(start + "1")), path(start + "1") + ": another program is writing it");
  ASSERT_TRUE(first.commit().ok());
  ASSERT_TRUE(second.commit().ok());
  EXPECT_EQ(text(start + "1") + text(start + "2"), "12");
}

TEST_F(ReplacementTest, ALockOfAnotherUserIsOpenedForReading) {
  put(".m.moe-lock", "");
  chmod(path(".m.moe-lock").c_str(), 0444);
  replace("m", "new");
  EXPECT_EQ(names(), Names{"m"});
}

}  // namespace
}  // namespace moe
