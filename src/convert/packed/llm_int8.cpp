// SPDX-License-Identifier: MIT
// Finds the pairs of codes and magnitudes and multiplies each row out.
#include "src/convert/packed/llm_int8.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "formats/import/failure.h"
#include "src/convert/packed/unused_scales.h"

namespace moe {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kLargest = ".SCB";
constexpr std::string_view kOrder = ".weight_format";  // 0: rows; older releases had others
constexpr int64_t kMaxSide = int64_t{1} << 31;

class ScaledRows final : public PackedRows {
 public:
  ScaledRows(SourceTensor codes, SourceTensor largest)
      : codes_(std::move(codes)), largest_(std::move(largest)), cols_(codes_.shape[1]) {}

  void read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const override {
    checkpoint.read(codes_, static_cast<uint64_t>(first * cols_), static_cast<size_t>(n * cols_),
                    out);
    for (const float scale : scales(checkpoint, first, n)) {
      std::for_each(out, out + cols_, [scale](float& weight) { weight *= scale; });
      out += cols_;
    }
  }
  PackedCodes codes(const Checkpoint&) const override { return PackedCodes::kRows8; }
  void read_scales(const Checkpoint& checkpoint, int64_t first, int64_t n, float* to_scales,
                   float*) const override {
    const std::vector<float> found = scales(checkpoint, first, n);
    std::copy(found.begin(), found.end(), to_scales);
  }

 private:
  std::vector<float> scales(const Checkpoint& checkpoint, int64_t first, int64_t n) const {
    std::vector<float> out(static_cast<size_t>(n));
    checkpoint.read(largest_, static_cast<uint64_t>(first), out.size(), out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      if (!std::isfinite(out[i]) || out[i] < 0) {
        fail(std::isfinite(out[i]) ? MOE_ERR_RANGE : MOE_ERR_NON_FINITE,
             "tensor %.200s: element %lld: expected a finite number from 0 on, found %g",
             largest_.name.c_str(), static_cast<long long>(first) + static_cast<long long>(i),
             double{out[i]});
      }
      out[i] /= 127.0f;
    }
    return out;
  }

  SourceTensor codes_;
  SourceTensor largest_;  // of each row
  int64_t cols_;
};

class Unpacking {
 public:
  explicit Unpacking(Checkpoint* checkpoint) : c_(checkpoint) {}

  void run() {
    std::set<std::string> names;
    for (const auto& [name, tensor] : c_->tensors()) {
      const bool codes = name.ends_with(kWeight) && tensor.type == SourceType::kI8;
      if (codes) names.insert(name.substr(0, name.size() - kWeight.size()));
      if (name.ends_with(kLargest)) names.insert(name.substr(0, name.size() - kLargest.size()));
    }
    if (names.empty()) {
      fail(MOE_ERR_FORMAT,
           "config.json: quantization_config says load_in_8bit, but no tensor NAME.SCB is there");
    }
    for (const std::string& name : names) add(name);
  }

 private:
  void add(const std::string& name) {
    parts_ = unused_scales(name);
    const SourceTensor codes = part(name, kWeight);
    check_codes(codes);
    const SourceTensor largest = part(name, kLargest);
    check_largest(largest, codes);
    check_order(name);
    SourceTensor whole = codes;
    whole.type = SourceType::kCodes8;
    c_->put_packed(std::move(whole), std::make_unique<ScaledRows>(codes, largest), parts_);
  }

  const SourceTensor& part(const std::string& name, std::string_view end) {
    const SourceTensor* tensor = c_->find(name + std::string(end));
    if (tensor == nullptr) {
      fail(MOE_ERR_NOT_FOUND, "tensor %.200s%s is missing; quantization_config says load_in_8bit",
           name.c_str(), std::string(end).c_str());
    }
    parts_.push_back(tensor->name);
    return *tensor;
  }

  static void check_codes(const SourceTensor& codes) {
    const std::vector<int64_t>& shape = codes.shape;
    const bool matrix = shape.size() == 2 && std::all_of(shape.begin(), shape.end(), [](int64_t n) {
                          return n >= 1 && n <= kMaxSide;
                        });
    if (matrix && codes.type == SourceType::kI8) return;
    fail(matrix ? MOE_ERR_FORMAT : MOE_ERR_SHAPE,
         "tensor %.200s: expected a matrix of I8, file has %s of %s", codes.name.c_str(),
         shape_text(shape).c_str(), source_type_info(codes.type).name);
  }

  static void check_largest(const SourceTensor& largest, const SourceTensor& codes) {
    const std::vector<int64_t> expected = {codes.shape[0]};
    const bool floats = largest.type == SourceType::kF32 || largest.type == SourceType::kF16 ||
                        largest.type == SourceType::kBf16;
    if (floats && largest.shape == expected) return;
    fail(floats ? MOE_ERR_SHAPE : MOE_ERR_FORMAT,
         "tensor %.200s: expected %s of F32, one for each row of %.200s; file has %s of %s",
         largest.name.c_str(), shape_text(expected).c_str(), codes.name.c_str(),
         shape_text(largest.shape).c_str(), source_type_info(largest.type).name);
  }

  void check_order(const std::string& name) {
    const SourceTensor* order = c_->find(name + std::string(kOrder));
    if (order == nullptr) return;
    parts_.push_back(order->name);
    if (order->n_elements != 1 || order->type != SourceType::kU8) {
      fail(MOE_ERR_FORMAT, "tensor %.200s: expected a number of U8, file has %s of %s",
           order->name.c_str(), shape_text(order->shape).c_str(),
           source_type_info(order->type).name);
    }
    int64_t found = 0;
    c_->read(*order, 0, 1, &found);
    if (found == 0) return;
    fail(MOE_ERR_UNSUPPORTED, "tensor %.200s: expected 0, codes in the order of rows, found %lld",
         order->name.c_str(), static_cast<long long>(found));
  }

  Checkpoint* c_;
  std::vector<std::string> parts_;
};

}  // namespace

void unpack_llm_int8(Checkpoint* checkpoint) { Unpacking(checkpoint).run(); }

}  // namespace moe
