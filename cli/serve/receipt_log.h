// SPDX-License-Identifier: MIT
#pragma once
// A file that gets the receipt of every answer.

#include <mutex>
#include <string>

#include "cli/serve/open_service.h"

namespace moe_cli {

class ReceiptLog {
 public:
  /// Opens the file, which is made for this user alone if it does not exist; lines are added to one
  /// that does. Empty: no file. Throws CallError.
  explicit ReceiptLog(const std::string& path);
  ReceiptLog(const ReceiptLog&) = delete;
  ReceiptLog& operator=(const ReceiptLog&) = delete;
  ~ReceiptLog();
  /// For services, which the log must outlive.
  ReceiptTaker taker();

 private:
  static void take(void* user, const char* json, size_t n_bytes);
  void add(const char* json, size_t n_bytes);

  const std::string path_;
  std::mutex mutex_;
  int file_ = -1;
  bool failed_ = false;  // which was said
};

}  // namespace moe_cli
