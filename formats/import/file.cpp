// SPDX-License-Identifier: MIT
#include "formats/import/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "formats/import/failure.h"

namespace moe {
namespace {

[[noreturn]] void fail_errno(const char* what, const std::string& path, int error) {
  char buffer[128];
  const moe_status code = error == ENOENT || error == ENOTDIR ? MOE_ERR_NOT_FOUND
                          : error == ENOMEM                   ? MOE_ERR_MEMORY
                                                              : MOE_ERR_IO;
  // The GNU strerror_r may return a static text instead of filling the buffer.
  fail(code, "cannot %s %s: %s", what, path.c_str(), strerror_r(error, buffer, sizeof buffer));
}

}  // namespace

namespace {

// Where a symbolic link leads that exists while its target does not; empty for any other path.
std::string dangling_target(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return "";
  if (::stat(path.c_str(), &info) == 0 || (errno != ENOENT && errno != ENOTDIR)) return "";
  char target[512];
  const ssize_t n = ::readlink(path.c_str(), target, sizeof target);
  return n > 0 ? std::string(target, static_cast<size_t>(n)) : "?";
}

// Such a link must not pass for an absent file: what it names was meant to be there.
void refuse_dangling(const std::string& path) {
  const std::string target = dangling_target(path);
  if (target.empty()) return;
  fail(MOE_ERR_NOT_FOUND,
       "%.170s is a link to %.120s, which is not there (a download cache that was cleared?); "
       "download it again or remove the link",
       path.c_str(), target.c_str());
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: a named pipe in a model's folder must not block.
  do {
    fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd_ < 0 && errno == EINTR);
  if (fd_ < 0) {
    const int error = errno;
    refuse_dangling(path_);
    fail_errno("open", path_, error);
  }
  struct stat info;
  const bool known = ::fstat(fd_, &info) == 0;
  const int error = errno;
  if (!known || !S_ISREG(info.st_mode)) {
    ::close(std::exchange(fd_, -1));
    if (!known) fail_errno("examine", path_, error);
    fail(MOE_ERR_FORMAT, "%s is not a regular file", path_.c_str());
  }
  size_ = static_cast<uint64_t>(info.st_size);
  try {
    refuse_pointer();
  } catch (...) {  // no destructor will run
    ::close(std::exchange(fd_, -1));
    throw;
  }
}

// Detects the pointer that Git LFS leaves in place of a large file.
void InputFile::refuse_pointer() const {
  constexpr std::string_view kPointer = "version https://git-lfs.github.com/spec";
  char start[kPointer.size()];
  if (size_ < sizeof start || size_ > 1024) return;
  read(0, start, sizeof start);
  if (std::string_view(start, sizeof start) != kPointer) return;
  fail(MOE_ERR_FORMAT, "%s is %s", path_.c_str(), foreign_start(kPointer).c_str());
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void InputFile::read(uint64_t offset, void* buffer, size_t bytes) const {
  constexpr size_t kMaxRead = size_t{1} << 30;
  auto* out = static_cast<unsigned char*>(buffer);
  while (bytes != 0) {
    const ssize_t n = ::pread(fd_, out, std::min(bytes, kMaxRead), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("read", path_, errno);
    if (n == 0) {
      fail(MOE_ERR_IO, "%s ended at byte %llu while it was read", path_.c_str(),
           static_cast<unsigned long long>(offset));
    }
    out += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
}

bool path_exists(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) return true;
  if (errno == ELOOP) fail_errno("open", path, ELOOP);
  refuse_dangling(path);
  return false;
}

void fail_cut_off(const std::string& path, uint64_t size, uint64_t whole) {
  using ull = unsigned long long;
  fail(MOE_ERR_FORMAT,
       "%.200s: cut off: %llu of its %llu bytes are missing (an incomplete download?); download it "
       "again",
       path.c_str(), static_cast<ull>(whole - size), static_cast<ull>(whole));
}

std::string foreign_start(const InputFile& file) {
  char start[48];
  const size_t n = std::min<uint64_t>(sizeof start, file.size());
  if (n == 0) return "empty (0 bytes): the download is incomplete";
  file.read(0, start, n);
  return foreign_start(std::string_view(start, n));
}

std::string foreign_start(std::string_view text) {
  constexpr size_t kMost = 48, kShown = 20;
  text = text.substr(0, kMost);
  if (text.starts_with("version https://git-lfs")) {
    return "a Git LFS pointer, not the file itself: git lfs pull fetches it";
  }
  // A safetensors header's length is below 2^40, so that zeros are among the first bytes.
  const bool readable =
      text.size() >= 8 && std::all_of(text.begin(), text.end(), [](char c) {
        return static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\r' || c == '\t';
      });
  if (!readable) return "";
  std::string line(text.substr(0, kShown));
  line = line.substr(0, line.find_first_of("\r\n"));
  return "text that begins with \"" + line +
         "\": a web page or an error message was saved in place of the file; download it again";
}

// Not std::filesystem: its iterators terminate the process if memory runs out.
std::vector<std::string> names_in_folder(const std::string& path) {
  std::vector<std::string> names;
  errno = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (folder == nullptr && errno != ENOENT && errno != ENOTDIR) fail_errno("list", path, errno);
  while (folder != nullptr) {
    errno = 0;
    const dirent* entry = ::readdir(folder.get());
    if (entry == nullptr && errno != 0) fail_errno("list", path, errno);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string read_text_file(const std::string& path, uint64_t max_bytes) {
  const InputFile file(path);
  if (file.size() > max_bytes) {
    fail(MOE_ERR_FORMAT, "%s: %llu bytes, at most %llu are accepted", path.c_str(),
         static_cast<unsigned long long>(file.size()), static_cast<unsigned long long>(max_bytes));
  }
  std::string text(file.size(), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

}  // namespace moe
