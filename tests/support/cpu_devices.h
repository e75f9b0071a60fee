// SPDX-License-Identifier: MIT
#pragma once
// A CPU device for every supported instruction set and several numbers of threads.

#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/device_cpu.h"
#include "tests/support/every_isa.h"

namespace moe {

struct OpenedDevice {
  std::string name;
  std::unique_ptr<ThreadPool> pool;
  Device* device = nullptr;

  OpenedDevice(const char* isa, int threads, const Allocator& allocator = system_allocator())
      : pool(std::make_unique<ThreadPool>(system_allocator())) {
    if (!pool->start(threads).ok()) return;
    // Test shapes are small: without this nearly all would run on one thread.
    Result<Device*> opened = open_cpu_device(isa, *pool, allocator, 1);
    if (!opened.ok()) return;
    device = opened.value();
    name = std::string(device->name()) + " on " + std::to_string(threads) + " threads";
  }
  OpenedDevice(OpenedDevice&& other) noexcept
      : name(std::move(other.name)), pool(std::move(other.pool)), device(other.device) {
    other.device = nullptr;
  }
  ~OpenedDevice() { close_cpu_device(device); }
};

inline std::vector<OpenedDevice> all_devices() {
  std::vector<OpenedDevice> all;
  for (const CpuKernels* k : every_isa()) {
    for (int threads : {1, 3}) all.emplace_back(k->name, threads);
  }
  return all;
}

}  // namespace moe
