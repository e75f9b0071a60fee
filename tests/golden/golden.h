// SPDX-License-Identifier: MIT
#pragma once
// Golden cases: the inputs and expected outputs are JSON; the library's own functions compute the
// outputs.

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "kernels/cpu/device_cpu.h"
#include "kernels/cpu/table.h"

namespace moe::golden {

using Json = nlohmann::json;

/// A number that may be written "nan", "inf" or "-inf".
double number(const Json& j);

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<double> data;

  int64_t dim(size_t i) const { return shape.at(i); }
  int32_t rows() const { return static_cast<int32_t>(dim(0)); }
  int32_t cols() const { return static_cast<int32_t>(dim(1)); }
  /// The length of the last axis, and the number of rows of that length.
  int32_t width() const { return static_cast<int32_t>(shape.back()); }
  int32_t height() const { return static_cast<int32_t>(data.size()) / width(); }
  std::vector<float> floats() const { return {data.begin(), data.end()}; }
  std::vector<int8_t> codes() const;
};

Tensor tensor(const Json& j);
template <class T>
Json to_json(const std::vector<T>& data, std::vector<int64_t> shape) {
  return {{"shape", std::move(shape)}, {"data", data}};
}

/// The result of a case: an error, or outputs by name.
struct Outcome {
  Status status;
  std::map<std::string, Json> out;
  std::string problem;  // a failure of the test: instruction sets disagree, a parameter is unknown
};

struct Case {
  const Json& in;
  const Json& par;

  Tensor in_tensor(const char* name) const { return tensor(in.at(name)); }
  std::vector<float> in_floats(const char* name) const { return in_tensor(name).floats(); }
  bool has(const char* name) const { return in.contains(name) && !in.at(name).is_null(); }
  /// A parameter, or the default if it is missing or null.
  double real(const char* name, double otherwise) const;
  int32_t integer(const char* name, int32_t otherwise) const;
  bool flag(const char* name, bool otherwise) const;
  std::string text(const char* name, const char* otherwise) const;
  bool is_null(const char* name) const {
    asked.insert(name);
    return !par.contains(name) || par.at(name).is_null();
  }
  /// The first parameter that is given and that nobody has asked for, or "". Such a case would pass
  /// without testing what it says.
  std::string ignored() const;

  mutable std::set<std::string> asked = {};
};

/// A CPU device, with two threads, for every instruction set that this CPU supports.
class Devices {
 public:
  Devices();
  ~Devices();
  const std::vector<Device*>& all() const { return devices_; }
  const std::vector<const CpuKernels*>& kernels() const { return kernels_; }

 private:
  ThreadPool pool_{system_allocator()};
  std::vector<const CpuKernels*> kernels_;
  std::vector<Device*> devices_;
};

/// Calls f(device or kernels), which returns a vector, for each of `all`; the results must have the
/// same bits.
template <class List, class F>
auto same_on_all(const List& all, Outcome& outcome, F&& f) {
  auto first = f(*all[0]);
  for (size_t i = 1; i < all.size(); ++i) {
    const auto other = f(*all[i]);
    if (other.size() != first.size() ||
        std::memcmp(other.data(), first.data(), first.size() * sizeof(first[0])) != 0) {
      outcome.problem = "instruction sets disagree";
    }
  }
  return first;
}

using Runner = std::function<void(const Case&, Devices&, Outcome&)>;
using Runners = std::map<std::string, Runner>;

void add_pointwise(Runners& runners);
void add_quant(Runners& runners);
void add_routers(Runners& runners);
void add_layers(Runners& runners);
void add_encoders(Runners& runners);
void add_translation(Runners& runners);
void add_mixers(Runners& runners);

}  // namespace moe::golden
