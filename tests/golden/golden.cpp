// SPDX-License-Identifier: MIT
#include "tests/golden/golden.h"

#include <cmath>
#include <limits>

#include "tests/support/every_isa.h"

namespace moe::golden {

double number(const Json& j) {
  if (!j.is_string()) return j.is_boolean() ? static_cast<double>(j.get<bool>()) : j.get<double>();
  const std::string s = j.get<std::string>();
  if (s == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (s == "inf") return std::numeric_limits<double>::infinity();
  if (s == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::runtime_error("not a number: " + s);
}

std::vector<int8_t> Tensor::codes() const {
  std::vector<int8_t> v(data.size());
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<int8_t>(data[i]);
  return v;
}

Tensor tensor(const Json& j) {
  Tensor t;
  t.shape = j.at("shape").get<std::vector<int64_t>>();
  for (const Json& v : j.at("data")) t.data.push_back(number(v));
  return t;
}

std::string Case::ignored() const {
  for (const auto& [name, value] : par.items()) {
    if (!value.is_null() && asked.count(name) == 0) return name;
  }
  return {};
}

double Case::real(const char* name, double otherwise) const {
  return is_null(name) ? otherwise : number(par.at(name));
}
int32_t Case::integer(const char* name, int32_t otherwise) const {
  return is_null(name) ? otherwise : par.at(name).get<int32_t>();
}
bool Case::flag(const char* name, bool otherwise) const {
  return is_null(name) ? otherwise : number(par.at(name)) != 0;
}
std::string Case::text(const char* name, const char* otherwise) const {
  return is_null(name) ? otherwise : par.at(name).get<std::string>();
}

Devices::Devices() {
  if (!pool_.start(2).ok()) throw std::runtime_error("cannot start threads");
  for (const CpuKernels* k : every_isa()) {
    kernels_.push_back(k);
    Result<Device*> device = open_cpu_device(k->name, pool_, system_allocator(), 1);
    if (!device.ok()) throw std::runtime_error(device.status().text());
    devices_.push_back(device.value());
  }
}
Devices::~Devices() {
  for (Device* d : devices_) close_cpu_device(d);
}

}  // namespace moe::golden
