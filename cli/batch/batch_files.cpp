// SPDX-License-Identifier: MIT
// Reads lines of any length, and appends results to a file so that a run that was ended can be
// resumed.
#include "cli/batch/batch_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <utility>
#include <vector>

#include "cli/batch/batch_request.h"
#include "cli/common.h"
#include "cli/io/output_file.h"
#include "cli/io/units.h"

namespace moe_cli {
namespace {

constexpr uint64_t kEndlessLine = 16 * kMostLineBytes;  // /dev/zero has no end
constexpr size_t kHeadBytes = 40;                       // start of a result, which identifies it

int open_results(const std::string& path) {
  if (path == "-") return dup(STDOUT_FILENO);
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode)) return open_special(path);
  return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
}

}  // namespace

bool LineReader::ready() {
  while (!arrived_ && in_.ready()) read_byte();
  return arrived_;
}

bool LineReader::next(std::string* line, bool* whole) {
  while (!arrived_) read_byte();
  const bool any = at_ > start_;
  *line = std::exchange(line_, {});
  *whole = std::exchange(whole_, true);
  arrived_ = false;
  start_ = at_;
  return any;
}

void LineReader::read_byte() {
  char c = 0;
  if (!in_.get(&c)) {
    arrived_ = true;
    return;
  }
  ++at_;
  if (c == '\n') {
    arrived_ = true;
  } else if (at_ - start_ > kEndlessLine) {
    throw CallError(MOE_ERR_ARGUMENT, in_.name() + ": a line does not end within " +
                                          std::to_string(kEndlessLine) + " bytes");
  } else if (line_.size() < kMostLineBytes) {
    line_ += c;
  } else {
    whole_ = false;
  }
}

ResultFile::ResultFile(const std::string& path)
    : path_(path == "-" ? "stdout" : path), fd_(open_results(path)) {
  if (fd_ < 0) fail();
  struct stat info;
  if (path == "-" || fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) return;
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const bool busy = errno == EWOULDBLOCK;
    const std::string why = busy ? "another process is writing it" : std::strerror(errno);
    close(fd_);
    throw CallError(MOE_ERR_IO, path_ + ": " + why);
  }
}

ResultFile::~ResultFile() { close(fd_); }

size_t ResultFile::count() {
  struct stat info;
  if (fstat(fd_, &info) != 0) fail();
  if (!S_ISREG(info.st_mode)) return 0;  // a device may be endless, a pipe has no beginning
  size_t n_lines = 0;
  off_t at = 0;
  std::string head;  // the beginning of a line
  std::vector<char> part(size_t{1} << 16);
  for (;;) {
    const ssize_t n = pread(fd_, part.data(), part.size(), at);
    if (n < 0) fail();
    if (n == 0) break;
    for (ssize_t i = 0; i < n; ++i) {
      const char c = part[static_cast<size_t>(i)];
      if (c != '\n') {
        if (head.size() < kHeadBytes) head += c;
        continue;
      }
      check_result(head, n_lines + 1);
      head.clear();
      ++n_lines;
      end_ = at + i + 1;
    }
    at += n;
  }
  if (at == end_) return n_lines;
  check_result(head, n_lines + 1);
  unended_ = is_whole(at);
  if (unended_) end_ = at;
  return n_lines + (unended_ ? 1 : 0);
}

// Whether what follows the last line, up to `end`, is a result that lacks only the newline.
bool ResultFile::is_whole(off_t end) const {
  std::string tail(static_cast<size_t>(end - end_), '\0');
  size_t done = 0;
  while (done < tail.size()) {
    const ssize_t n =
        pread(fd_, tail.data() + done, tail.size() - done, end_ + static_cast<off_t>(done));
    if (n < 0) fail();
    if (n == 0) return false;
    done += static_cast<size_t>(n);
  }
  return Json::accept(tail);
}

void ResultFile::resume() {
  struct stat info;
  if (fstat(fd_, &info) != 0) fail();
  if (!S_ISREG(info.st_mode)) return;
  if (ftruncate(fd_, end_) != 0 || lseek(fd_, end_, SEEK_SET) < 0) fail();
  if (unended_) add("\n");
  unended_ = false;
}

void ResultFile::add(const std::string& line) {
  if (!write_all(fd_, line.data(), line.size())) fail();
}

// `head`: start of line n.
void ResultFile::check_result(const std::string& head, size_t n) const {
  if (head.starts_with("{\"line\":" + std::to_string(n) + ",")) return;
  throw CallError(MOE_ERR_ARGUMENT, path_ + ": line " + std::to_string(n) +
                                        " is not a result of moe batch; the file is unchanged");
}

void ResultFile::fail() const { throw CallError(MOE_ERR_IO, path_ + ": " + std::strerror(errno)); }

BatchFiles::BatchFiles(const std::string& from, const std::string& to)
    : in_path(from), out_path(to), in(from), out(to), n_written(to == "-" ? 0 : out.count()) {}

int BatchFiles::lines_left(int most) const {
  if (in_path == "-") return most;  // stdin, whatever file has that name
  struct stat info;
  if (stat(in_path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return most;
  LineReader lines(in_path);
  std::string line;
  bool whole = true;
  for (size_t i = 0; i < n_written; ++i) {
    if (!lines.next(&line, &whole)) return 0;
  }
  int n = 0;
  while (n < most && lines.next(&line, &whole)) ++n;
  return n;
}

void BatchFiles::skip_answered(const moe_model* model) {
  if (n_written > 0) check_answered(model);
  if (out_path != "-") out.resume();
  if (n_written == 0) return;
  std::cerr << "moe: continuing after line " << n_written << "; to begin again, remove " << out_path
            << "\n";
}

void BatchFiles::check_answered(const moe_model* model) {
  LineReader results(out_path);
  const std::string source = in_path == "-" ? "stdin" : in_path;
  std::string line, result;
  bool whole = true, whole_result = true;
  for (size_t i = 0; i < n_written; ++i) {
    if (!in.next(&line, &whole)) {
      throw CallError(MOE_ERR_ARGUMENT, out_path + " has " + counted(n_written, "line") +
                                            ", more than " + source + " with " + std::to_string(i) +
                                            ": results of another file?");
    }
    if (results.next(&result, &whole_result) && whole_result &&
        !may_answer(result, line, whole, model)) {
      const std::string number = std::to_string(i + 1);
      throw CallError(MOE_ERR_ARGUMENT, out_path + ": line " + number +
                                            " is not the result of line " + number + " of " +
                                            source + ": results of another file?");
    }
  }
}

}  // namespace moe_cli
