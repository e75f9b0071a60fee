// SPDX-License-Identifier: MIT
// Reads a large buffer with all threads in a child process, with the widest loads of this CPU.
#include "cli/bench/bandwidth.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "cli/common.h"
#include "cli/io/interrupt.h"

namespace moe_cli {
namespace {

constexpr int kPasses = 6;  // with each way of reading
constexpr int kWays = 3;
constexpr size_t kUnit = 64 * 8;
constexpr size_t kLeastBuffer = size_t{16} << 20;

struct Unmap {
  size_t bytes;
  void operator()(uint8_t* p) const { munmap(p, bytes); }
};

// Free pages exclude reclaimable page cache, so a small number is misleading.
size_t buffer_bytes() {
  const long pages = sysconf(_SC_AVPHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  const size_t quarter =
      pages > 0 && page > 0 ? static_cast<size_t>(pages) / 4 * static_cast<size_t>(page) : 0;
  return std::clamp(quarter, size_t{64} << 20, size_t{512} << 20);
}

// One thread's share of the passes. Which way is fastest depends on the CPU's own prefetching.
uint64_t read_share(const uint8_t* share, size_t bytes, const std::function<void()>& meet) {
  const Read ways[kWays] = {widest_read<2, false>(), widest_read<4, true>(),
                            widest_read<8, true>()};
  uint64_t sum = 0;
  meet();
  for (int pass = 0; pass < kWays * kPasses; ++pass) {
    sum += ways[pass % kWays](share, bytes);
    meet();
  }
  return sum;
}

double measure(int threads, Pages pages, size_t buffer) {
  const auto n_threads = static_cast<size_t>(threads);
  // An odd number of units: streams that are a large power of two apart would compete for the same
  // places in the caches.
  const size_t share = ((buffer / n_threads / kUnit - 2) | 1) * kUnit;
  const size_t all = share * n_threads;
  const std::unique_ptr<uint8_t, Unmap> data(map_pages(all + kReadAhead, pages),
                                             Unmap{all + kReadAhead});
  if (data == nullptr) throw std::bad_alloc();
  std::memset(data.get(), 1, all + kReadAhead);
  std::vector<double> rates[kWays];
  for (std::vector<double>& of_way : rates) of_way.reserve(kPasses);  // no throw between barriers
  double start = 0;
  int met = 0;
  std::barrier barrier(threads, [&]() noexcept {
    const double now = now_seconds();
    if (met > 0) rates[(met - 1) % kWays].push_back(static_cast<double>(all) / (now - start));
    start = now;
    ++met;
  });
  std::vector<uint64_t> sums(n_threads);
  const auto run = [&](size_t i) {
    sums[i] = read_share(data.get() + i * share, share, [&] { barrier.arrive_and_wait(); });
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < n_threads; ++i) others.emplace_back(run, i);
  run(0);
  for (std::thread& t : others) t.join();
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  if (total == 0) return 0;  // uses the sum, so that it is computed
  double best = 0;
  for (const std::vector<double>& of_way : rates) best = std::max(best, median(of_way));
  return best;
}

// If a limit is below the apparent free memory, uses a smaller buffer.
double measure_what_fits(int threads, Pages pages, uint64_t most) {
  const auto first = static_cast<size_t>(std::min<uint64_t>(buffer_bytes(), most));
  for (size_t buffer = std::max(first, kLeastBuffer); buffer >= kLeastBuffer; buffer /= 2) {
    try {
      return measure(threads, pages, buffer);
    } catch (const std::bad_alloc&) {
    }
  }
  return 0;
}

bool tell(int socket, double value) {
  ssize_t n = 0;
  while ((n = send(socket, &value, sizeof value, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  return n == static_cast<ssize_t>(sizeof value);
}

bool hear(int socket, double* value) {
  ssize_t n = 0;
  while ((n = recv(socket, value, sizeof *value, MSG_WAITALL)) < 0 && errno == EINTR) {
  }
  return n == static_cast<ssize_t>(sizeof *value);
}

// Answers requests until the socket is closed.
[[noreturn]] void serve(int threads, Pages pages, uint64_t most, int socket) {
  for (double rate = 0; hear(socket, &rate);) {
    rate = 0;
    try {
      rate = measure_what_fits(threads, pages, most);
    } catch (const std::exception&) {  // no threads: the parent reports it
    }
    if (!tell(socket, rate)) break;
  }
  _exit(0);
}

}  // namespace

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.size() % 2 == 1 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

BandwidthMeter::BandwidthMeter(int threads, Pages pages, uint64_t most) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw CallError(MOE_ERR_IO, std::string("socketpair: ") + std::strerror(errno));
  }
  child_ = fork();
  if (child_ == 0) {
    close(ends[0]);
    serve(threads, pages, most, ends[1]);
  }
  close(ends[1]);
  socket_ = ends[0];
}

BandwidthMeter::~BandwidthMeter() { end(); }

void BandwidthMeter::end() {
  if (socket_ >= 0) close(socket_);
  while (child_ > 0 && waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
  socket_ = -1;
  child_ = -1;
}

void BandwidthMeter::keep_last() { end(); }

double BandwidthMeter::measure() {
  if (socket_ < 0) return last_;
  double rate = 0;
  const bool answered = child_ > 0 && tell(socket_, 0) && hear(socket_, &rate);
  stop_if_interrupted();
  if (!answered || rate <= 0) {
    throw CallError(MOE_ERR_MEMORY,
                    "the read bandwidth of this machine cannot be measured: no memory "
                    "or no process for it");
  }
  return last_ = rate;
}

}  // namespace moe_cli
