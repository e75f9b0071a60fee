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

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: a named pipe in a model's folder must not block.
  do {
    fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd_ < 0 && errno == EINTR);
  if (fd_ < 0) fail_errno("open", path_, errno);
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
  fail(MOE_ERR_FORMAT, "%s is a Git LFS pointer, not the file itself: git lfs pull fetches it",
       path_.c_str());
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

bool path_exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

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
