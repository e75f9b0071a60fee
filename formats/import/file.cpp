// SPDX-License-Identifier: MIT
// Reads files and folders; names what stands in place of a model: a dangling link, a Git LFS
// pointer, a web page.
#include "formats/import/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include "formats/import/failure.h"
#include "src/base/os/file.h"

namespace moe {
namespace {

[[noreturn]] void fail_error(const char* what, const std::string& path, int error) {
  char text[kReasonBytes];
  const moe_status code = is_missing(error) ? MOE_ERR_NOT_FOUND
                          : error == ENOMEM ? MOE_ERR_MEMORY
                                            : MOE_ERR_IO;
  fail(code, "cannot %s %s: %s", what, path.c_str(), error_reason(error, text));
}

// Where a symbolic link leads that exists while its target does not; empty for any other path.
std::string dangling_target(const std::string& path) {
  char target[512];
  FileInfo info;
  if (!link_target(path.c_str(), target, sizeof target)) return "";
  return is_missing(path_info(path.c_str(), &info)) ? target : "";
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
  int error = open_to_read(path_.c_str(), ReadMode::kBuffered, &fd_);
  if (error != 0) {
    refuse_dangling(path_);
    fail_error("open", path_, error);
  }
  try {  // no destructor will run
    FileInfo info;
    error = file_info(fd_, &info);
    if (error != 0) fail_error("examine", path_, error);
    if (info.kind != FileKind::kRegular) {
      fail(MOE_ERR_FORMAT, "%s is not a regular file", path_.c_str());
    }
    size_ = info.size;
    refuse_pointer();
  } catch (...) {
    close_file(std::exchange(fd_, -1));
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
  if (fd_ >= 0) close_file(fd_);
}

void InputFile::read(uint64_t offset, void* buffer, size_t bytes) const {
  auto* out = static_cast<unsigned char*>(buffer);
  while (bytes != 0) {
    size_t n = 0;
    const int error = read_at(fd_, offset, out, bytes, &n);
    if (error != 0) fail_error("read", path_, error);
    if (n == 0) {
      fail(MOE_ERR_IO, "%s ended at byte %llu while it was read", path_.c_str(),
           static_cast<unsigned long long>(offset));
    }
    out += n;
    offset += n;
    bytes -= n;
  }
}

bool path_exists(const std::string& path) {
  FileInfo info;
  const int error = path_info(path.c_str(), &info);
  if (error == 0) return true;
  if (error == ELOOP) fail_error("open", path, error);
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

std::string archive_kind(const InputFile& file) {
  constexpr std::pair<std::string_view, const char*> kKinds[] = {{"\x1F\x8B\x08", "gzip"},
                                                                 {"PK\x03\x04", "a zip archive"},
                                                                 {"\x28\xB5\x2F\xFD", "zstd"},
                                                                 {"\xFD"
                                                                  "7zXZ",
                                                                  "xz"},
                                                                 {"BZh", "bzip2"},
                                                                 {"7z\xBC\xAF", "a 7z archive"}};
  char start[8];
  const size_t n = std::min<uint64_t>(sizeof start, file.size());
  file.read(0, start, n);
  for (const auto& [bytes, name] : kKinds) {
    if (!std::string_view(start, n).starts_with(bytes)) continue;
    return std::string(name) + (name[0] == 'a' ? "" : "-compressed") + ": unpack it first";
  }
  return "";
}

// Not std::filesystem: its iterators terminate the process if memory runs out. Nothing is thrown
// through list_folder(), which knows no exceptions.
std::vector<std::string> names_in_folder(const std::string& path) {
  struct Found {
    std::vector<std::string> names;
    std::exception_ptr failure;
  } found;
  const auto add = [](void* user, const char* name) {
    auto* to = static_cast<Found*>(user);
    try {
      to->names.emplace_back(name);
    } catch (...) {
      to->failure = std::current_exception();
    }
    return to->failure == nullptr;
  };
  const int error = list_folder(path.c_str(), add, &found);
  if (found.failure != nullptr) std::rethrow_exception(found.failure);
  if (error != 0 && !is_missing(error)) fail_error("list", path, error);
  std::sort(found.names.begin(), found.names.end());
  return found.names;
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
