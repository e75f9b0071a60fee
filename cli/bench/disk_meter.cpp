// SPDX-License-Identifier: MIT
// Lists where the file's experts lie and reads them in parts with several threads, computing
// nothing.
#include "cli/bench/disk_meter.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string_view>
#include <thread>

#include "cli/common.h"
#include "cli/io/interrupt.h"

namespace moe_cli {
namespace {

constexpr int kReadThreads = 4;                 // as in the library
constexpr size_t kPage = 4096;                  // alignment of segments and direct reads
constexpr size_t kReadBytes = size_t{1} << 20;  // per read, as in the library
constexpr double kReadSeconds = 1.0 / 3;

struct Free {
  void operator()(uint8_t* p) const { std::free(p); }
};

size_t round_up(uint64_t n) { return static_cast<size_t>((n + kPage - 1) / kPage * kPage); }

// Offsets of segments, and which are experts.
std::map<uint64_t, bool> segments_of(const moe_model* model) {
  std::map<uint64_t, bool> segments;
  for (size_t i = 0; i < moe_model_tensor_count(model); ++i) {
    moe_tensor_info t{};
    t.struct_size = sizeof t;
    moe_error error;
    check(moe_model_get_tensor_info(model, i, &t, &error), error);
    segments[t.file_offset] = std::string_view(t.part) == "experts";
  }
  return segments;
}

// Reads everything to the same buffer, unused. False at the end of the file, and after an error.
// After a short read continues at a page boundary, as direct reads require.
bool read_through(int fd, uint8_t* room, size_t bytes, uint64_t offset) {
  for (size_t done = 0; done < bytes;) {
    const size_t part = std::min(kReadBytes, bytes - done);
    const ssize_t n = pread(fd, room, part, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    const size_t got = n < 0 ? 0 : static_cast<size_t>(n);
    const size_t pages = got == part ? got : got / kPage * kPage;
    if (pages == 0) return false;
    done += pages;
  }
  return true;
}

}  // namespace

DiskMeter::DiskMeter(const std::string& path, bool direct, const moe_model* model) : path_(path) {
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
  struct stat info {};
  if (fd_ < 0 || fstat(fd_, &info) != 0) {
    throw CallError(MOE_ERR_IO, "cannot read " + path + ": " + std::strerror(errno));
  }
  const auto segments = segments_of(model);
  for (auto at = segments.begin(); at != segments.end(); ++at) {
    const auto after = std::next(at);
    if (!at->second || after == segments.end()) continue;  // the last segment's end is unknown
    experts_.push_back({at->first, round_up(after->first - at->first)});
  }
}

DiskMeter::~DiskMeter() {
  if (fd_ >= 0) close(fd_);
}

double DiskMeter::measure() {
  if (experts_.empty()) return 0;
  std::vector<std::thread> readers;
  std::atomic<uint64_t> bytes{0};
  std::atomic<bool> failed{false};
  const double start = now_seconds();
  for (int i = 0; i < kReadThreads; ++i) {
    readers.emplace_back([&, seed = seed_++] {
      const uint64_t n = read_until(start + kReadSeconds, seed * 2654435761u);
      if (n == 0) failed = true;
      bytes += n;
    });
  }
  for (std::thread& t : readers) t.join();
  const double seconds = now_seconds() - start;
  stop_if_interrupted();
  if (failed) throw CallError(MOE_ERR_IO, path_ + ": its experts cannot be read");
  return static_cast<double>(bytes) / seconds;
}

// 0 after an error.
uint64_t DiskMeter::read_until(double end, uint32_t seed) const {
  const std::unique_ptr<uint8_t, Free> room(
      static_cast<uint8_t*>(std::aligned_alloc(kPage, kReadBytes)));
  uint64_t bytes = 0;
  if (room == nullptr) return 0;
  do {  // at least once: a busy machine may start the thread late
    seed = seed * 1664525u + 1013904223u;
    const Segment& s = experts_[(seed >> 8) % experts_.size()];
    if (!read_through(fd_, room.get(), s.bytes, s.offset)) return 0;
    bytes += s.bytes;
  } while (now_seconds() < end);
  return bytes;
}

}  // namespace moe_cli
