// SPDX-License-Identifier: MIT
// Appends receipts to a file, a line each.
#include "cli/serve/receipt_log.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "cli/io/terminal.h"

namespace moe_cli {

ReceiptLog::ReceiptLog(const std::string& path) : path_(path) {
  if (path.empty()) return;
  file_ = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (file_ < 0) throw write_error(path);
}

ReceiptLog::~ReceiptLog() {
  if (file_ >= 0) close(file_);
}

ReceiptTaker ReceiptLog::taker() {
  if (file_ < 0) return {};
  return {take, this};
}

void ReceiptLog::take(void* user, const char* json, size_t n_bytes) {
  static_cast<ReceiptLog*>(user)->add(json, n_bytes);
}

// In one call, so that a line of this process does not end up inside another's. A line that was
// not written whole is ended, and verify says that it is none.
void ReceiptLog::add(const char* json, size_t n_bytes) {
  char end = '\n';
  const iovec parts[] = {{const_cast<char*>(json), n_bytes}, {&end, 1}};
  const std::lock_guard lock(mutex_);
  const ssize_t written = writev(file_, parts, 2);
  const int reason = errno;  // before visible() asks whether there is a terminal
  if (written == static_cast<ssize_t>(n_bytes) + 1) return;
  if (written > 0 && write(file_, &end, 1) != 1) failed_ = false;  // the next one fails too
  if (std::exchange(failed_, true)) return;
  std::fprintf(stderr, "moe: warning: --log-receipts %s: receipts are lost: %s\n",
               visible(path_).c_str(), written < 0 ? std::strerror(reason) : "the disk is full");
}

}  // namespace moe_cli
