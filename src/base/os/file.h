// SPDX-License-Identifier: MIT
#pragma once
// Files and folders of the system. A file is a descriptor of the C library. Calls return 0 or the
// system's number of the reason why they failed, as errno has it; they are repeated when a signal
// interrupts them.

#include <cstddef>
#include <cstdint>

namespace moe {

enum class FileKind : uint8_t { kRegular, kFolder, kPipe, kOther };

struct FileInfo {
  FileKind kind = FileKind::kRegular;
  uint64_t size = 0;
  int64_t written_ns = 0;  // the last modification
  uint64_t disk = 0;       // disk and number are equal for two names of one file
  uint64_t number = 0;

  bool is_same_file(const FileInfo& other) const {
    return disk == other.disk && number == other.number;
  }
};

enum class ReadMode { kBuffered, kDirect };  // kDirect bypasses the page cache

/// Opens what is there for reading, without waiting for the writer of a named pipe.
/// EINVAL: its file system or this system cannot read directly.
int open_to_read(const char* path, ReadMode mode, int* file);
void close_file(int file);

int file_info(int file, FileInfo* out);
/// Follows symbolic links.
int path_info(const char* path, FileInfo* out);
/// Whether nothing has this name; errors of another kind are no answer.
bool is_missing(int error);

/// Reads or writes at least one byte, and at most n, at a position; *done = 0 at the end of a file.
int read_at(int file, uint64_t offset, void* bytes, size_t n, size_t* done);
int write_at(int file, uint64_t offset, const void* bytes, size_t n, size_t* done);
int resize_file(int file, uint64_t size);
int remove_file(const char* path);

/// Maps the first n bytes read-only.
int map_file(int file, size_t n, const uint8_t** memory);
void unmap_file(const uint8_t* memory, size_t n);

/// The target of a symbolic link as it is written in the link, cut off to fit. False: no link.
bool link_target(const char* path, char* target, size_t n);

/// Calls f with every name in a folder but "." and "..". f returns false to end it.
int list_folder(const char* path, bool (*f)(void* user, const char* name), void* user);

/// The reason in words, for an error of one of these calls.
constexpr size_t kReasonBytes = 128;
const char* error_reason(int error, char (&text)[kReasonBytes]);

}  // namespace moe
