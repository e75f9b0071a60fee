// SPDX-License-Identifier: MIT
// Replacement on POSIX: flock() on a file beside it, and rename().
#include "src/base/replacement.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "src/base/format.h"
#include "src/base/os/file.h"
#include "src/base/os/machine.h"
#include "src/base/random_suffix.h"
#include "src/base/system_error.h"

namespace moe {
namespace {

constexpr size_t kLongName = 200;  // of NAME: the names beside it must fit a folder's 255 bytes
constexpr int kMostLinks = 40;     // as many as Linux follows
constexpr mode_t kPermissions = 0777;

Status io_error(const char* what, const char* path) {
  return system_error(MOE_ERR_IO, what, path, errno);
}

int open_again(const char* path, int flags, mode_t mode = 0) {
  int fd = -1;
  do {
    fd = ::open(path, flags | O_CLOEXEC | O_NOFOLLOW, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

std::string_view folder_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? std::string_view("./") : slice(path, 0, slash + 1);
}

std::string_view name_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? path : slice(path, slash + 1);
}

// The beginning of a name, cut between characters of UTF-8.
std::string_view short_name(std::string_view name) {
  size_t n = std::min(name.size(), kLongName);
  while (n > 0 && n < name.size() && (static_cast<uint8_t>(name[n]) & 0xC0) == 0x80) --n;
  return slice(name, 0, n);
}

// FNV-1a, in hexadecimal digits: tells long names of one beginning apart.
void put_hash(std::string_view name, char (&text)[18]) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  format(text, sizeof text, "-%016llx", static_cast<unsigned long long>(hash));
}

// Whether a file system says that it has no locks. There other writers cannot be found.
bool has_no_locks(int reason) {
  return reason == ENOLCK || reason == EOPNOTSUPP || reason == ENOSYS || reason == EINVAL;
}

// NFS locks for writing only what is open for writing; the file may be another user's.
int open_lock(const char* name) {
  const int fd = open_again(name, O_RDWR | O_NONBLOCK);
  return fd < 0 && errno == EACCES ? open_again(name, O_RDONLY | O_NONBLOCK) : fd;
}

Status check_kind(const char* path) {
  struct stat info;
  if (stat(path, &info) != 0 || S_ISREG(info.st_mode)) return {};
  const char* found = S_ISDIR(info.st_mode)    ? "a folder"
                      : S_ISFIFO(info.st_mode) ? "a named pipe"
                                               : "no regular file";
  return Status::error(MOE_ERR_IO, "%s: expected the name of a file to write, found %s", path,
                       found);
}

Status no_lock(const char* name) {
  return Status::error(MOE_ERR_IO, "%s: expected an empty file, which is a lock; remove it", name);
}

}  // namespace

// O_EXCL alone makes the names safe; random ones are hard to take in advance.
Result<int> create_beside(const char* folder, const char* prefix, Readers readers, String* name) {
  const mode_t mode = readers == Readers::kOwner ? 0600 : 0666;
  for (int i = 0; i < 100; ++i) {
    char random[kSuffixLength + 1];
    put_suffix(random_bits(), random);
    name->clear();
    for (const char* part : {folder, prefix, static_cast<const char*>(random)}) {
      MOE_TRY(name->append(part));
    }
    const int fd = open_again(name->c_str(), O_RDWR | O_CREAT | O_EXCL, mode);
    if (fd >= 0) return fd;
    if (errno != EEXIST) break;
  }
  const Status failed = io_error("create", name->c_str());
  name->clear();
  return failed;
}

// Follows symbolic links at the end of the path, of which the last may lead to no file yet.
Status Replacement::resolve(const char* path) {
  MOE_TRY(target_.assign(path));
  for (int i = 0; i <= kMostLinks; ++i) {
    char to[PATH_MAX];
    const ssize_t n = readlink(target_.c_str(), to, sizeof to);
    if (n < 0) return {};  // no link
    if (static_cast<size_t>(n) == sizeof to) break;
    String next;
    if (to[0] != '/') MOE_TRY(next.assign(folder_of(target_.view())));
    MOE_TRY(next.append({to, static_cast<size_t>(n)}));
    MOE_TRY(target_.assign(next.view()));
  }
  return system_error(MOE_ERR_IO, "write", path, ELOOP);
}

Status Replacement::check_place() const {
  struct stat info;
  const char* path = target_.c_str();
  if (stat(folder_.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return Status::error(MOE_ERR_IO, "%s: there is no folder %s", path, folder_.c_str());
  }
  MOE_TRY(check_kind(path));
  if (stat(path, &info) != 0) return {};
  return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0 ? Status() : io_error("write", path);
}

Status Replacement::open(const char* path) {
  close();
  if (*path == '\0') {
    return Status::error(MOE_ERR_ARGUMENT, "the file to write: expected a name, found none");
  }
  MOE_TRY(check_kind(path));  // before resolve(): /dev/stdout is a link to no name
  MOE_TRY(resolve(path));
  MOE_TRY(folder_.assign(folder_of(target_.view())));
  MOE_TRY(check_place());
  MOE_TRY(prefix_.assign("."));
  const std::string_view name = name_of(target_.view());
  MOE_TRY(prefix_.append(short_name(name)));
  if (name.size() > kLongName) {
    char hash[18];
    put_hash(name, hash);
    MOE_TRY(prefix_.append(static_cast<const char*>(hash)));
  }
  MOE_TRY(prefix_.append(".moe-"));
  MOE_TRY(lock_name_.assign(folder_.view()));
  MOE_TRY(lock_name_.append(prefix_.view()));
  MOE_TRY(lock_name_.append("lock"));
  process_ = process_id();
  const Status locked = lock();
  if (!locked.ok()) {
    close();
    return locked;
  }
  remove_leftovers();
  return {};
}

Status Replacement::lock() {
  for (int i = 0; i < 1000; ++i) {
    bool again = false;
    MOE_TRY(lock_once(&again));
    if (!again) return {};
  }
  return Status::error(MOE_ERR_IO, "%s: other programs are writing it", target_.c_str());
}

// Tries to own the file that has the lock's name. `again`: its last owner removed it meanwhile.
Status Replacement::lock_once(bool* again) {
  const char* name = lock_name_.c_str();
  int fd = open_lock(name);
  const bool created = fd < 0 && errno == ENOENT;
  if (created) fd = open_again(name, O_RDWR | O_CREAT | O_EXCL, 0644);
  if (fd < 0) {
    *again = errno == EEXIST;
    if (*again) return {};
    return errno == ELOOP || errno == EISDIR ? no_lock(name)
                                             : io_error("create a file beside", target_.c_str());
  }
  struct stat here;
  struct stat named;
  Status status;
  if (fstat(fd, &here) != 0) {
    status = io_error("look at", name);
    if (created) ::unlink(name);
  } else if (!S_ISREG(here.st_mode) || here.st_size != 0) {
    status = no_lock(name);
  } else if (flock(fd, LOCK_EX | LOCK_NB) != 0 && !has_no_locks(errno)) {
    status = errno == EWOULDBLOCK
                 ? Status::error(MOE_ERR_IO, "%s: another program is writing it", target_.c_str())
                 : io_error("lock", name);
  } else {
    *again = stat(name, &named) != 0 || !same_file(here, named);
    if (!*again) {
      lock_ = fd;
      return {};
    }
  }
  ::close(fd);
  return status;
}

// Removes the files of a killed process. Nobody else writes here while the lock is held.
void Replacement::remove_leftovers() const {
  const auto remove = [](void* self, const char* found) {
    const auto& file = *static_cast<const Replacement*>(self);
    if (!has_suffix(found, file.prefix_.view())) return true;
    String path;
    if (!path.append(file.folder_.view()).ok() || !path.append(found).ok()) return false;
    struct stat info;
    if (lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) ::unlink(path.c_str());
    return true;
  };
  (void)list_folder(folder_.c_str(), remove, const_cast<Replacement*>(this));
}

Status Replacement::begin(int* file) {
  if (lock_ < 0) return Status::error(MOE_ERR_STATE, "replacement: no file is open");
  if (file_ < 0) {
    // Nobody may read a new file whose old one was private.
    struct stat old;
    const bool exists = stat(target_.c_str(), &old) == 0;
    MOE_ASSIGN(file_, create_beside(folder_.c_str(), prefix_.c_str(),
                                    exists ? Readers::kOwner : Readers::kAsUsual, &new_));
  } else if (ftruncate(file_, 0) != 0 || lseek(file_, 0, SEEK_SET) != 0) {
    return io_error("empty", new_.c_str());
  }
  *file = file_;
  return {};
}

// An owner that this process may not set is replaced by its own, as other programs do; a group then
// gets no more than everybody.
Status Replacement::keep_owner() {
  struct stat old;
  struct stat now;
  if (fstat(file_, &now) != 0) return io_error("look at", new_.c_str());
  if (stat(target_.c_str(), &old) != 0) return {};
  mode_t mode = old.st_mode & kPermissions;
  const auto give = [this](uid_t owner, gid_t group) { return fchown(file_, owner, group) == 0; };
  if (old.st_uid != now.st_uid) (void)give(old.st_uid, static_cast<gid_t>(-1));
  if (old.st_gid != now.st_gid && !give(static_cast<uid_t>(-1), old.st_gid)) {
    mode = (mode & ~mode_t{070}) | (mode & 07) << 3;
  }
  if ((now.st_mode & kPermissions) == mode || fchmod(file_, mode) == 0) return {};
  return io_error("set the mode of", new_.c_str());
}

Status Replacement::commit() {
  if (file_ < 0) return Status::error(MOE_ERR_STATE, "replacement: nothing was begun");
  MOE_TRY(check_place());
  MOE_TRY(keep_owner());
  if (fsync(file_) != 0) return io_error("sync", new_.c_str());
  if (std::rename(new_.c_str(), target_.c_str()) != 0) return io_error("rename", new_.c_str());
  ::close(file_);
  file_ = -1;
  new_.clear();
  sync_folder();
  return {};
}

// Makes the rename survive a power failure; file systems that cannot do it are no error.
void Replacement::sync_folder() const {
  const int fd = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)fsync(fd);
  ::close(fd);
}

void Replacement::close() {
  const bool ours = process_ == process_id();
  if (file_ >= 0) {
    if (ours) ::unlink(new_.c_str());
    ::close(file_);
  }
  if (lock_ >= 0) {
    if (ours) {
      ::unlink(lock_name_.c_str());  // before it is unlocked: the next owner makes a new one
      (void)flock(lock_, LOCK_UN);   // also for a forked child that still has the descriptor
    }
    ::close(lock_);
  }
  file_ = lock_ = -1;
  new_.clear();
}

}  // namespace moe
