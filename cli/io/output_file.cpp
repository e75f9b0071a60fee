// SPDX-License-Identifier: MIT
// Writes to a temporary file that takes the final name when it is complete; pipes and devices are
// written directly.
#include "cli/io/output_file.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iostream>

#include "cli/io/interrupt.h"

namespace moe_cli {
namespace {

constexpr size_t kPart = size_t{1} << 16;
constexpr int kLookAgain = 50;  // milliseconds

bool is_special(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

bool is_pipe(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode);
}

}  // namespace

int open_special(const std::string& path) {
  signal(SIGPIPE, SIG_IGN);  // writing reports a reader that has gone
  for (bool told = false;; told = true) {
    const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file >= 0) return file;
    const int reason = errno;
    if (reason != EINTR && !(reason == ENXIO && is_pipe(path))) {
      errno = reason;
      throw write_error(path);
    }
    if (!told) std::cerr << "moe: " << path << ": waiting for a reader of this pipe\n";
    if (!pause_for(kLookAgain)) stop_if_interrupted();
  }
}

bool write_all(int file, const char* bytes, size_t n) {
  struct stat info;
  const bool regular = fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  while (n > 0) {
    if (!regular && !wait_for_output(file)) stop_if_interrupted();
    // A pipe that takes something takes as much as this, so that write() never waits.
    const ssize_t done = write(file, bytes, regular ? n : std::min<size_t>(n, PIPE_BUF));
    if (done < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (done < 0) return false;
    bytes += done;
    n -= static_cast<size_t>(done);
  }
  return true;
}

DescriptorBuffer::DescriptorBuffer() : part_(kPart) {}

void DescriptorBuffer::use(int file) {
  file_ = file;
  error_ = 0;
  setp(part_.data(), part_.data() + part_.size());
}

void DescriptorBuffer::fail(const std::string& path) const {
  stop_if_interrupted();  // a stream only says that it is bad
  errno = error_;
  throw write_error(path);
}

int DescriptorBuffer::sync() {
  const bool good = write_all(file_, pbase(), static_cast<size_t>(pptr() - pbase()));
  if (!good) error_ = errno;
  setp(part_.data(), part_.data() + part_.size());
  return good ? 0 : -1;
}

DescriptorBuffer::int_type DescriptorBuffer::overflow(int_type c) {
  if (file_ < 0 || sync() != 0) return traits_type::eof();
  return traits_type::eq_int_type(c, traits_type::eof()) ? traits_type::not_eof(c)
                                                         : sputc(traits_type::to_char_type(c));
}

ReplacedFile::ReplacedFile(const std::string& path) : path_(path) {
  moe_replacement* file = nullptr;
  moe_error error;
  check(moe_replacement_open(path.c_str(), &file, &error), error);
  file_.reset(file);
}

std::ostream& ReplacedFile::begin() {
  int file = -1;
  moe_error error;
  check(moe_replacement_begin(file_.get(), &file, &error), error);
  buffer_.use(file);
  stream_.clear();
  return stream_;
}

void ReplacedFile::commit() {
  if (!stream_.flush()) buffer_.fail(path_);
  moe_error error;
  check(moe_replacement_commit(file_.get(), &error), error);
}

OutputFile::OutputFile(const std::string& path) : path_(path) {
  if (path.empty()) return;
  if (is_special(path)) {
    special_ = open_special(path);
  } else {
    file_ = std::make_unique<ReplacedFile>(path);
  }
}

OutputFile::~OutputFile() {
  if (special_ >= 0) close(special_);
}

std::ostream& OutputFile::begin() {
  if (file_ != nullptr) return file_->begin();
  buffer_.use(special_);
  return stream_;
}

void OutputFile::finish() {
  if (file_ != nullptr) return file_->commit();
  if (!stream_.flush()) buffer_.fail(path_);
}

void keep_input(const std::string& written, const std::string& input, const std::string& what) {
  std::error_code ignored;  // there is no such file
  if (!std::filesystem::equivalent(input == "-" ? "/dev/stdin" : input, written, ignored)) return;
  throw UsageError(written + ": this is " + what + "; expected another file");
}

}  // namespace moe_cli
