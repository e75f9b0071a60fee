// SPDX-License-Identifier: MIT
// Replacement on Windows: a lock file that only one process can open, and MoveFileEx().
#include "src/base/replacement.h"

#include <fcntl.h>
#include <io.h>
#include <windows.h>

#include <cerrno>
#include <string_view>

#include "src/base/os/file.h"
#include "src/base/os/machine.h"
#include "src/base/os/windows/wide.h"
#include "src/base/random_suffix.h"
#include "src/base/system_error.h"

namespace moe {
namespace {

Status io_error(const char* what, const char* path) {
  return system_error(MOE_ERR_IO, what, path, error_number(GetLastError()));
}

int to_descriptor(HANDLE handle, int flags) {
  const int file = _open_osfhandle(reinterpret_cast<intptr_t>(handle), flags | _O_BINARY);
  if (file < 0) CloseHandle(handle);
  return file;
}

std::string_view folder_of(std::string_view path) {
  const size_t slash = path.find_last_of("/\\");
  return slash == path.npos ? std::string_view("./") : slice(path, 0, slash + 1);
}

std::string_view name_of(std::string_view path) {
  const size_t slash = path.find_last_of("/\\");
  return slash == path.npos ? path : slice(path, slash + 1);
}

}  // namespace

// A new file has the rights of its folder: Windows knows no mask of the process.
Result<int> create_beside(const char* folder, const char* prefix, Readers, String* name) {
  for (int i = 0; i < 100; ++i) {
    char random[kSuffixLength + 1];
    put_suffix(random_bits() + static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u, random);
    name->clear();
    for (const char* part : {folder, prefix, static_cast<const char*>(random)}) {
      MOE_TRY(name->append(part));
    }
    const WidePath wide(name->c_str());
    if (!wide.ok()) break;
    const HANDLE file = CreateFileW(wide.get(), GENERIC_READ | GENERIC_WRITE | DELETE,
                                    FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                                    CREATE_NEW, FILE_ATTRIBUTE_NORMAL, nullptr);
    if (file != INVALID_HANDLE_VALUE) {
      const int descriptor = to_descriptor(file, _O_RDWR);
      if (descriptor >= 0) return descriptor;
      break;
    }
    if (GetLastError() != ERROR_FILE_EXISTS) break;
  }
  const Status failed = io_error("create", name->c_str());
  name->clear();
  return failed;
}

Status Replacement::resolve(const char* path) { return target_.assign(path); }

Status Replacement::check_place() const {
  FileInfo info;
  const char* path = target_.c_str();
  if (path_info(folder_.c_str(), &info) != 0 || info.kind != FileKind::kFolder) {
    return Status::error(MOE_ERR_IO, "%s: there is no folder %s", path, folder_.c_str());
  }
  if (path_info(path, &info) != 0 || info.kind == FileKind::kRegular) return {};
  return Status::error(MOE_ERR_IO, "%s: expected the name of a file to write, found %s", path,
                       info.kind == FileKind::kFolder ? "a folder" : "no regular file");
}

Status Replacement::open(const char* path) {
  close();
  if (*path == '\0') {
    return Status::error(MOE_ERR_ARGUMENT, "the file to write: expected a name, found none");
  }
  MOE_TRY(resolve(path));
  MOE_TRY(folder_.assign(folder_of(target_.view())));
  MOE_TRY(check_place());
  MOE_TRY(prefix_.assign("."));
  MOE_TRY(prefix_.append(name_of(target_.view())));
  MOE_TRY(prefix_.append(".moe-"));
  MOE_TRY(lock_name_.assign(folder_.view()));
  MOE_TRY(lock_name_.append(prefix_.view()));
  MOE_TRY(lock_name_.append("lock"));
  process_ = process_id();
  MOE_TRY(lock());
  remove_leftovers();
  return {};
}

Status Replacement::lock() {
  bool again = false;
  return lock_once(&again);
}

// Nobody else can open it, and it disappears with the last handle, also of a killed process.
Status Replacement::lock_once(bool*) {
  const WidePath wide(lock_name_.c_str());
  if (!wide.ok()) return Status::error(MOE_ERR_IO, "%s: not a name of UTF-8", target_.c_str());
  const HANDLE file = CreateFileW(wide.get(), GENERIC_WRITE, 0, nullptr, OPEN_ALWAYS,
                                  FILE_ATTRIBUTE_HIDDEN | FILE_FLAG_DELETE_ON_CLOSE, nullptr);
  if (file == INVALID_HANDLE_VALUE && GetLastError() == ERROR_SHARING_VIOLATION) {
    return Status::error(MOE_ERR_IO, "%s: another program is writing it", target_.c_str());
  }
  if (file == INVALID_HANDLE_VALUE) return io_error("create a file beside", target_.c_str());
  lock_ = to_descriptor(file, _O_WRONLY);
  return lock_ >= 0 ? Status() : io_error("lock", lock_name_.c_str());
}

// Removes the files of a killed process. Nobody else writes here while the lock is held.
void Replacement::remove_leftovers() const {
  const auto remove = [](void* self, const char* found) {
    const auto& file = *static_cast<const Replacement*>(self);
    if (!has_suffix(found, file.prefix_.view())) return true;
    String path;
    if (!path.append(file.folder_.view()).ok() || !path.append(found).ok()) return false;
    (void)remove_file(path.c_str());
    return true;
  };
  (void)list_folder(folder_.c_str(), remove, const_cast<Replacement*>(this));
}

Status Replacement::begin(int* file) {
  if (lock_ < 0) return Status::error(MOE_ERR_STATE, "replacement: no file is open");
  if (file_ < 0) {
    MOE_ASSIGN(file_, create_beside(folder_.c_str(), prefix_.c_str(), Readers::kAsUsual, &new_));
  } else if (resize_file(file_, 0) != 0 || _lseeki64(file_, 0, SEEK_SET) != 0) {
    return io_error("empty", new_.c_str());
  }
  *file = file_;
  return {};
}

// Windows has no owner to keep: the rights come from the folder.
Status Replacement::keep_owner() { return {}; }

Status Replacement::commit() {
  if (file_ < 0) return Status::error(MOE_ERR_STATE, "replacement: nothing was begun");
  MOE_TRY(check_place());
  MOE_TRY(keep_owner());
  if (FlushFileBuffers(handle_of(file_)) == 0) return io_error("sync", new_.c_str());
  const WidePath from(new_.c_str());
  const WidePath to(target_.c_str());
  if (!from.ok() || !to.ok()) return io_error("rename", new_.c_str());
  if (MoveFileExW(from.get(), to.get(), MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH) == 0) {
    return io_error("rename", new_.c_str());
  }
  _close(file_);
  file_ = -1;
  new_.clear();
  return {};
}

void Replacement::sync_folder() const {}  // MOVEFILE_WRITE_THROUGH did

void Replacement::close() {
  if (file_ >= 0) {
    _close(file_);
    (void)remove_file(new_.c_str());
  }
  if (lock_ >= 0) _close(lock_);  // which removes it
  file_ = lock_ = -1;
  new_.clear();
}

}  // namespace moe
