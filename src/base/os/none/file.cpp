// SPDX-License-Identifier: MIT
// No files: every call fails.
#include "src/base/os/file.h"

namespace moe {
namespace {

constexpr int kNoFiles = 1;

}  // namespace

int open_to_read(const char*, ReadMode, int* file) {
  *file = -1;
  return kNoFiles;
}
void close_file(int) {}

int file_info(int, FileInfo*) { return kNoFiles; }
int path_info(const char*, FileInfo*) { return kNoFiles; }
bool is_missing(int) { return false; }

int read_at(int, uint64_t, void*, size_t, size_t* done) {
  *done = 0;
  return kNoFiles;
}
int write_at(int, uint64_t, const void*, size_t, size_t* done) {
  *done = 0;
  return kNoFiles;
}
int resize_file(int, uint64_t) { return kNoFiles; }
int remove_file(const char*) { return kNoFiles; }

int map_file(int, size_t, const uint8_t**) { return kNoFiles; }
void unmap_file(const uint8_t*, size_t) {}

bool link_target(const char*, char*, size_t) { return false; }
int list_folder(const char*, bool (*)(void*, const char*), void*) { return kNoFiles; }

const char* error_reason(int, char (&)[kReasonBytes]) {
  return "this build has no files (MOE_OS=none): open the model from memory or with a reader";
}

}  // namespace moe
