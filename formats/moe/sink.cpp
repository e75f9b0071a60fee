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
  explicit FileSink(const std::string& path)
      : path_(path), partial_(path + ".partial"), folder_(folder_of(path)) {}
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;
  ~FileSink() override {  // closing unlocks, so it is last
    if (ours_) ::unlink(partial_.c_str());
    if (fd_ >= 0) ::close(fd_);
  }

  // Allocates nothing afterwards, so that a created file can always be removed.
  Status open() {
    MOE_TRY(check_place());
    do {
      fd_ = ::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    } while (fd_ < 0 && errno == EINTR);
    if (fd_ < 0) return io_error("create", partial_);
    return lock();
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
    ours_ = false;
    sync_folder();
    return {};
  }

 private:
  static std::string folder_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash + 1);
  }

  Status check_place() const {
    struct stat info;
    if (path_.empty()) {
      return Status::error(MOE_ERR_ARGUMENT, "the file to write: expected a name, found none");
    }
    if (stat(folder_.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
      return Status::error(MOE_ERR_IO, "%s: there is no folder %s", path_.c_str(), folder_.c_str());
    }
    if (stat(path_.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return {};
    return Status::error(MOE_ERR_IO, "%s: expected the name of a file to write, found %s",
                         path_.c_str(), S_ISDIR(info.st_mode) ? "a folder" : "no regular file");
  }

  // Two writers would corrupt the partial file, even after one has renamed it.
  Status lock() {
    struct stat here;
    struct stat named;
    const bool taken = flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ours_ = !taken;
    if (fstat(fd_, &here) != 0) return io_error("look at", partial_);
    if (taken || stat(partial_.c_str(), &named) != 0 || named.st_ino != here.st_ino ||
        named.st_dev != here.st_dev) {
      ours_ = false;
      return Status::error(MOE_ERR_IO, "%s: another program is writing it", partial_.c_str());
    }
    if (here.st_size != 0 && ftruncate(fd_, 0) != 0) return io_error("empty", partial_);
    return {};
  }

  // Makes the rename survive a power failure; file systems that cannot do it are no error.
  void sync_folder() const {
    const int fd = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    ::close(fd);
  }

  std::string path_;
  std::string partial_;
  std::string folder_;
  int fd_ = -1;
  bool ours_ = false;  // the partial file must be removed
};

}  // namespace

Result<std::unique_ptr<ModelSink>> open_file_sink(const std::string& path) {
  auto sink = std::make_unique<FileSink>(path);
  MOE_TRY(sink->open());
  return std::unique_ptr<ModelSink>(std::move(sink));
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
