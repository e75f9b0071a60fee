// SPDX-License-Identifier: MIT
// Opens a file or pipe without waiting for its writer, and reads it in parts.
#include "cli/io/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/common.h"
#include "cli/io/interrupt.h"

namespace moe_cli {
namespace {

constexpr size_t kPartBytes = size_t{1} << 16;

// Does not wait for the writer of a pipe: fill() does, and a signal ends that.
int open_input(const std::string& path) {
  return path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

}  // namespace

InputFile::InputFile(const std::string& path)
    : name_(path == "-" ? "stdin" : path), part_(kPartBytes), fd_(open_input(path)) {
  if (fd_ < 0) fail();
}

InputFile::~InputFile() {
  if (fd_ != STDIN_FILENO) close(fd_);
}

uint64_t InputFile::size() const {
  struct stat info;
  const bool regular = fstat(fd_, &info) == 0 && S_ISREG(info.st_mode);
  return regular ? static_cast<uint64_t>(info.st_size) : 0;
}

bool InputFile::ready() const { return used_ < filled_ || ended_ || input_arrived(fd_); }

std::string_view InputFile::next() {
  if (used_ == filled_ && !fill()) return {};
  const std::string_view bytes(part_.data() + used_, filled_ - used_);
  used_ = filled_;
  return bytes;
}

bool InputFile::fill() {
  while (!ended_) {
    if (!wait_for_input(fd_)) stop_if_interrupted();
    const ssize_t n = read(fd_, part_.data(), part_.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) fail();
    used_ = 0;
    filled_ = static_cast<size_t>(n);
    ended_ = n == 0;
    return !ended_;
  }
  return false;
}

void InputFile::fail() const { throw CallError(MOE_ERR_IO, name_ + ": " + std::strerror(errno)); }

}  // namespace moe_cli
