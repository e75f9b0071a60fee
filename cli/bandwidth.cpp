#include "cli/bandwidth.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <cstring>
#include <new>
#include <thread>

#include "cli/common.h"

namespace moe_cli {
namespace {

constexpr int kPasses = 7;
constexpr size_t kLine = 64;
constexpr size_t kStreams = 4;
constexpr size_t kAheadWords = 256;
constexpr size_t kLeastBuffer = size_t{16} << 20;

typedef uint64_t Pair __attribute__((vector_size(16), aligned(8), may_alias));

// The sum of n words, n a multiple of 8 * kStreams. Several streams, fetched some lines ahead, read
// up to twice as fast as one: the prefetchers of the hardware end at a page.
uint64_t read_all(const uint64_t* p, size_t n) {
  Pair a{};
  Pair b{};
  Pair c{};
  Pair d{};
  const size_t stream = n / kStreams;
  for (size_t i = 0; i < stream; i += 8) {
    for (size_t s = 0; s < kStreams; ++s) {
      const uint64_t* line = p + s * stream + i;
      __builtin_prefetch(line + kAheadWords);
      a += *reinterpret_cast<const Pair*>(line);
      b += *reinterpret_cast<const Pair*>(line + 2);
      c += *reinterpret_cast<const Pair*>(line + 4);
      d += *reinterpret_cast<const Pair*>(line + 6);
    }
  }
  a += b + c + d;
  return a[0] + a[1];
}

// Free pages leave out what the page cache would give back: a small number is not the truth.
size_t buffer_bytes() {
  const long pages = sysconf(_SC_AVPHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  const size_t quarter =
      pages > 0 && page > 0 ? static_cast<size_t>(pages) / 4 * static_cast<size_t>(page) : 0;
  return std::clamp(quarter, size_t{64} << 20, size_t{512} << 20);
}

double measure(int threads, size_t buffer) {
  const auto n_threads = static_cast<size_t>(threads);
  const size_t unit = kLine * kStreams;
  const size_t words = buffer / unit / n_threads * (unit / 8);  // of one thread
  std::vector<double> rates;
  double start = 0;
  std::vector<uint64_t> sums(n_threads * 8);
  std::barrier meet(threads, [&]() noexcept {
    const double now = now_seconds();
    const double bytes = static_cast<double>(words * n_threads) * 8;
    if (start > 0) rates.push_back(bytes / (now - start));
    start = now;
  });
  // Allocated here, where running out of memory is caught, and longer by what is fetched ahead.
  const std::vector<uint64_t> data(words * n_threads + kAheadWords, 1);
  const auto run = [&](size_t thread) {
    meet.arrive_and_wait();
    for (int pass = 0; pass < kPasses; ++pass) {
      sums[thread * 8] += read_all(data.data() + thread * words, words);
      meet.arrive_and_wait();
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < n_threads; ++i) others.emplace_back(run, i);
  run(0);
  for (std::thread& t : others) t.join();
  uint64_t total = 0;
  for (uint64_t sum : sums) total += sum;
  std::sort(rates.begin(), rates.end());
  return total > 0 ? rates[rates.size() / 2] : 0;  // the sum is used, so it is computed
}

// Where a limit allows less than what seems free, a smaller buffer has to do.
double measure_what_fits(int threads) {
  for (size_t buffer = buffer_bytes(); buffer >= kLeastBuffer; buffer /= 2) {
    try {
      return measure(threads, buffer);
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

// Answers until nobody asks any more.
[[noreturn]] void serve(int threads, int socket) {
  for (double rate = 0; hear(socket, &rate);) {
    rate = 0;
    try {
      rate = measure_what_fits(threads);
    } catch (const std::exception&) {  // no threads: the parent says so
    }
    if (!tell(socket, rate)) break;
  }
  _exit(0);
}

}  // namespace

BandwidthMeter::BandwidthMeter(int threads) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw CallError(MOE_ERR_IO, std::string("socketpair: ") + std::strerror(errno));
  }
  child_ = fork();
  if (child_ == 0) {
    close(ends[0]);
    serve(threads, ends[1]);
  }
  close(ends[1]);
  socket_ = ends[0];
}

BandwidthMeter::~BandwidthMeter() {
  close(socket_);
  while (child_ > 0 && waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

double BandwidthMeter::measure() {
  double rate = 0;
  const bool answered = child_ > 0 && tell(socket_, 0) && hear(socket_, &rate);
  stop_if_interrupted();
  if (!answered || rate <= 0) {
    throw CallError(MOE_ERR_MEMORY,
                    "the read bandwidth of this machine cannot be measured: no memory "
                    "or no process for it");
  }
  return rate;
}

}  // namespace moe_cli
