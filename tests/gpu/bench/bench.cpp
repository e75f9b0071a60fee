// SPDX-License-Identifier: MIT
#include "tests/gpu/bench/bench.h"

#include <cstdio>

namespace moe::cuda {

Bench::Bench(const cudaDeviceProp& gpu, int driver, const char* file, bool small)
    : file_(file),
      small_(small),
      rotation_(small ? 1 : 2 * static_cast<size_t>(gpu.l2CacheSize) + (size_t{16} << 20)) {
  out_["gpu"] = gpu.name;
  out_["driver"] = driver;
  out_["l2_bytes"] = gpu.l2CacheSize;
  if (small) out_["small"] = true;
}

void Bench::attempt(const std::string& name, const std::function<void(const char*)>& measure_case) {
  try {
    measure_case(name.c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%-52s failed: %s\n", name.c_str(), e.what());
    out_["failures"].push_back({{"name", name}, {"error", e.what()}});
    (void)cudaGetLastError();
  }
  if (file_ != nullptr) write();
}

void Bench::write() const {
  if (file_ == nullptr) {
    std::printf("%s\n", out_.dump(2).c_str());
    return;
  }
  const std::string partial = std::string(file_) + ".partial";
  std::FILE* to = std::fopen(partial.c_str(), "w");
  const bool good = to != nullptr && std::fprintf(to, "%s\n", out_.dump(2).c_str()) > 0;
  const bool closed = to != nullptr && std::fclose(to) == 0;
  if (!good || !closed || std::rename(partial.c_str(), file_) != 0) {
    throw std::runtime_error(std::string("cannot write ") + file_);
  }
}

void Bench::copy() {
  const size_t bytes = size_t{1} << (small_ ? 20 : 30);
  const Buffer from(bytes, false);
  const Buffer to(bytes);
  const Times t = time(2, [&](cudaStream_t s, int) {
    return cudaMemcpyAsync(to.as<void>(), from.as<void>(), bytes, cudaMemcpyDeviceToDevice, s);
  });
  copy_bytes_per_s_ = 2.0 * static_cast<double>(bytes) / t.median_us * 1e6;
  out_["copy_bytes_per_s"] = copy_bytes_per_s_;
}

void Bench::report(const char* name, const Times& t, double bytes, double operations) {
  const double rate = bytes / t.median_us * 1e6;
  add("kernels", {{"name", name},
                  {"us", t.median_us},
                  {"us_quartiles", {t.low_us, t.high_us}},
                  {"bytes_per_s", rate},
                  {"share_of_copy", rate / copy_bytes_per_s_},
                  {"operations_per_s", operations / t.median_us * 1e6}});
  std::fprintf(stderr, "%-52s %9.2f us  %6.1f %% of copy  %7.1f TOP/s\n", name, t.median_us,
               100 * rate / copy_bytes_per_s_, operations / t.median_us * 1e-6);
}

void Bench::report_cached(const char* name, const Times& t) {
  add("kernels", {{"name", name}, {"us", t.median_us}, {"us_quartiles", {t.low_us, t.high_us}}});
  std::fprintf(stderr, "%-52s %9.2f us  in cache\n", name, t.median_us);
}

}  // namespace moe::cuda
