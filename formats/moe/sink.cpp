// SPDX-License-Identifier: MIT
// Where a model file is written: a file that gets its name at the end, a file without a name, or
// memory.
#include <algorithm>
#include <cinttypes>
#include <cstdlib>
#include <cstring>

#include "formats/moe/writer.h"
#include "src/base/allocator.h"
#include "src/base/os/file.h"
#include "src/base/os/memory.h"
#include "src/base/replacement.h"
#include "src/base/system_error.h"

namespace moe {
namespace {

// Positions of a descriptor; `path` names it in errors.
class DescriptorSink : public ModelSink {
 public:
  Status write(uint64_t offset, const void* bytes, size_t n) override {
    const auto* p = static_cast<const uint8_t*>(bytes);
    while (n > 0) {
      size_t done = 0;
      MOE_TRY(check("write", write_at(fd_, offset, p, n, &done)));
      if (done == 0) return Status::error(MOE_ERR_IO, "%s: takes no more bytes", path_.c_str());
      p += done;
      offset += done;
      n -= done;
    }
    return {};
  }

  Status read(uint64_t offset, void* bytes, size_t n) override {
    auto* p = static_cast<uint8_t*>(bytes);
    while (n > 0) {
      size_t done = 0;
      MOE_TRY(check("read back", read_at(fd_, offset, p, n, &done)));
      if (done == 0) return Status::error(MOE_ERR_IO, "%s: was cut off", path_.c_str());
      p += done;
      offset += done;
      n -= done;
    }
    return {};
  }

  Status truncate(uint64_t size) override { return check("cut", resize_file(fd_, size)); }

  std::string written() const override { return path_; }

 protected:
  Status check(const char* what, int error) const {
    return error == 0 ? Status() : system_error(MOE_ERR_IO, what, path_.c_str(), error);
  }

  std::string path_;
  int fd_ = -1;
};

class FileSink final : public DescriptorSink {
 public:
  Status open(const std::string& path) {
    MOE_TRY(file_.open(path.c_str()));
    MOE_TRY(file_.begin(&fd_));
    path_ = file_.written();
    return {};
  }
  Status commit() override {
    MOE_TRY(file_.commit());
    file_.close();  // others may write it now
    return {};
  }

 private:
  Replacement file_;
};

class UnnamedSink final : public DescriptorSink {
 public:
  UnnamedSink() = default;
  UnnamedSink(const UnnamedSink&) = delete;
  UnnamedSink& operator=(const UnnamedSink&) = delete;
  ~UnnamedSink() override {
    if (fd_ >= 0) close_file(fd_);
  }
  Status open(const std::string& folder) {
    String name;
    MOE_ASSIGN(fd_, create_beside(folder.c_str(), ".moe-", Readers::kOwner, &name));
    (void)remove_file(name.c_str());
    path_ = folder + "(temporary file)";
    return {};
  }
  Status commit() override { return {}; }
};

}  // namespace

Result<std::unique_ptr<ModelSink>> open_file_sink(const std::string& path) {
  auto sink = std::make_unique<FileSink>();
  MOE_TRY(sink->open(path));
  return std::unique_ptr<ModelSink>(std::move(sink));
}

Result<std::unique_ptr<ModelSink>> open_unnamed_sink(const std::string& neighbour) {
  auto sink = std::make_unique<UnnamedSink>();
  const size_t slash = neighbour.rfind('/');
  MOE_TRY(sink->open(slash == neighbour.npos ? "./" : neighbour.substr(0, slash + 1)));
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
