#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "formats/moe/writer.h"
#include "src/base/allocator.h"

namespace moe {
namespace {

Status io_error(const char* what, const std::string& path) {
  return Status::error(MOE_ERR_IO, "%s: cannot %s: %s", path.c_str(), what, std::strerror(errno));
}

class FileSink final : public ModelSink {
 public:
  FileSink(std::string path, int fd)
      : path_(std::move(path)), partial_(path_ + ".partial"), fd_(fd) {}
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;
  ~FileSink() override {  // closing unlocks, so it comes last
    if (!committed_) ::unlink(partial_.c_str());
    ::close(fd_);
  }

  Status write(uint64_t offset, const void* bytes, size_t n) override {
    const auto* p = static_cast<const uint8_t*>(bytes);
    while (n > 0) {
      const ssize_t done = pwrite(fd_, p, n, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return io_error("write", partial_);
      if (done == 0) return Status::error(MOE_ERR_IO, "%s: takes no more bytes", partial_.c_str());
      p += done;
      offset += static_cast<uint64_t>(done);
      n -= static_cast<size_t>(done);
    }
    return {};
  }

  Status read(uint64_t offset, void* bytes, size_t n) override {
    auto* p = static_cast<uint8_t*>(bytes);
    while (n > 0) {
      const ssize_t done = pread(fd_, p, n, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return io_error("read back", partial_);
      if (done == 0) return Status::error(MOE_ERR_IO, "%s: was cut off", partial_.c_str());
      p += done;
      offset += static_cast<uint64_t>(done);
      n -= static_cast<size_t>(done);
    }
    return {};
  }

  Status truncate(uint64_t size) override {
    return ftruncate(fd_, static_cast<off_t>(size)) == 0 ? Status() : io_error("cut", partial_);
  }

  Status commit() override {
    if (fsync(fd_) != 0) return io_error("sync", partial_);
    if (std::rename(partial_.c_str(), path_.c_str()) != 0) return io_error("rename", partial_);
    committed_ = true;
    sync_folder();
    return {};
  }

 private:
  // The rename itself should survive a power cut; a file system that cannot do it is no error.
  void sync_folder() const {
    const size_t slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    ::close(fd);
  }

  std::string path_;
  std::string partial_;
  int fd_;
  bool committed_ = false;
};

// Two writers of one partial file would spoil it, also for the one that has renamed it already.
Status lock(int fd, const std::string& partial) {
  struct stat ours;
  struct stat named;
  const bool taken = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (fstat(fd, &ours) != 0) return io_error("look at", partial);
  if (taken || stat(partial.c_str(), &named) != 0 || named.st_ino != ours.st_ino ||
      named.st_dev != ours.st_dev) {
    return Status::error(MOE_ERR_IO, "%s: another program is writing it", partial.c_str());
  }
  if (ours.st_size != 0 && ftruncate(fd, 0) != 0) return io_error("empty", partial);
  return {};
}

}  // namespace

Result<std::unique_ptr<ModelSink>> open_file_sink(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return Status::error(MOE_ERR_IO, "%s: not a regular file", path.c_str());
  }
  const std::string partial = path + ".partial";
  int fd = -1;
  do {
    fd = ::open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return io_error("create", partial);
  const Status locked = lock(fd, partial);
  if (!locked.ok()) {
    ::close(fd);
    return locked;
  }
  return std::unique_ptr<ModelSink>(std::make_unique<FileSink>(path, fd));
}

MemorySink::~MemorySink() { std::free(data_); }

uint8_t* MemorySink::release() {
  size_ = 0;
  capacity_ = 0;
  return std::exchange(data_, nullptr);
}

Status MemorySink::grow(size_t size) {
  if (size > capacity_) {
    const size_t capacity = std::max({size, capacity_ + capacity_ / 2, expected_});
    void* fresh = nullptr;
    if (posix_memalign(&fresh, kMatrixAlign, capacity) != 0)
      return out_of_memory("model", capacity);
    prefer_large_pages(fresh, capacity);
    if (size_ != 0) std::memcpy(fresh, data_, size_);
    std::free(data_);
    data_ = static_cast<uint8_t*>(fresh);
    capacity_ = capacity;
  }
  if (size > size_) std::memset(data_ + size_, 0, size - size_);
  size_ = size;
  return {};
}

Status MemorySink::write(uint64_t offset, const void* bytes, size_t n) {
  size_t end = 0;
  if (!checked_add(static_cast<size_t>(offset), n, &end)) return out_of_memory("model", ~0ULL);
  if (end > size_) MOE_TRY(grow(end));
  std::memcpy(data_ + offset, bytes, n);
  return {};
}

Status MemorySink::read(uint64_t offset, void* bytes, size_t n) {
  if (offset > size_ || n > size_ - offset) {
    return Status::error(MOE_ERR_IO, "model in memory: %zu bytes at %" PRIu64 " are not there", n,
                         offset);
  }
  std::memcpy(bytes, data_ + offset, n);
  return {};
}

Status MemorySink::truncate(uint64_t size) { return grow(static_cast<size_t>(size)); }

}  // namespace moe
