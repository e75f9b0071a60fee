// SPDX-License-Identifier: MIT
// Finds codes and scales of each FP4 matrix, checks their shapes, and presents them as one tensor.
#include "src/convert/packed/fp4_checkpoint.h"

#include <cmath>

#include "formats/import/failure.h"
#include "formats/import/gguf_blocks.h"
#include "src/convert/packed/unused_scales.h"

namespace moe {
namespace {

constexpr int64_t kMaxSide = int64_t{1} << 31;
constexpr const char* kScale = ".weight_scale";
constexpr int64_t kNvGroup = 16;
constexpr int64_t kMxGroup = 32;

class Fp4Matrix final : public PackedRows {
 public:
  SourceTensor codes_at;
  SourceTensor scales;
  float global = 1;
  bool divides = false;
  int64_t cols = 0;
  int64_t group = 0;

  void read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const override {
    std::vector<uint8_t> bytes(static_cast<size_t>(n * cols / 2));
    checkpoint.read_bytes(codes_at, static_cast<uint64_t>(first * cols / 2), bytes.size(),
                          bytes.data());
    const std::vector<float> factors = read_factors(checkpoint, first, n);
    const auto per_factor = static_cast<size_t>(group / 2);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const float factor = factors[i / per_factor];
      *out++ = kFp4Values[bytes[i] & 15] * factor;
      *out++ = kFp4Values[bytes[i] >> 4] * factor;
    }
  }

  // 32 inputs of NVFP4 have two scales: no format of four bits holds them, those of eight nearly.
  PackedCodes codes(const Checkpoint&) const override {
    return group == kMxGroup ? PackedCodes::kFp4 : PackedCodes::kOther8;
  }

  // The format's table has whole numbers, twice those of E2M1.
  void read_scales(const Checkpoint& checkpoint, int64_t first, int64_t n, float* to_scales,
                   float*) const override {
    for (const float factor : read_factors(checkpoint, first, n)) *to_scales++ = factor / 2;
  }

 private:
  std::vector<float> read_factors(const Checkpoint& checkpoint, int64_t first, int64_t n) const {
    const int64_t across = cols / group;
    std::vector<float> out(static_cast<size_t>(n * across));
    checkpoint.read(scales, static_cast<uint64_t>(first * across), out.size(), out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      const float scale = out[i];
      out[i] = divides ? scale / global : scale * global;
      if (std::isfinite(6 * out[i])) continue;
      const int64_t at = first * across + static_cast<int64_t>(i);
      fail(MOE_ERR_NON_FINITE, "tensor %.200s: row %lld, group %lld: %s", scales.name.c_str(),
           static_cast<long long>(at / across), static_cast<long long>(at % across),
           std::isnan(scale) ? "the scale is NaN" : "its scale makes weights infinite");
    }
    return out;
  }
};

class Unpacking {
 public:
  Unpacking(Checkpoint* checkpoint, const Fp4Scheme& scheme, const std::string& says)
      : c_(checkpoint), s_(scheme), says_(says) {}

  void run() {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : c_->tensors()) {
      if (tensor.type != SourceType::kU8 || !name.ends_with(s_.codes)) continue;
      names.push_back(name.substr(0, name.size() - std::string_view(s_.codes).size()));
    }
    if (names.empty()) {
      fail(MOE_ERR_FORMAT, "%s, but no tensor NAME%s of U8 is there", says_.c_str(), s_.codes);
    }
    for (const std::string& name : scales_alone(*c_, kScale, s_.codes)) part(name + s_.codes);
    for (const std::string& name : names) add(name);
  }

 private:
  void add(const std::string& name) {
    parts_ = unused_scales(name);
    auto matrix = std::make_unique<Fp4Matrix>();
    matrix->codes_at = part(name + s_.codes);
    const int64_t rows = read_sizes(matrix.get());
    take_scales(name, rows, matrix.get());
    SourceTensor whole;
    whole.name = name + ".weight";
    whole.type = SourceType::kCodes4;
    whole.shape = {rows, matrix->cols};
    c_->put_packed(std::move(whole), std::move(matrix), parts_);
  }

  static int64_t read_sizes(Fp4Matrix* m) {
    const std::vector<int64_t>& shape = m->codes_at.shape;
    if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 || shape[0] > kMaxSide ||
        shape[1] > kMaxSide) {
      fail(MOE_ERR_SHAPE, "tensor %.200s: expected a matrix, file has %s", m->codes_at.name.c_str(),
           shape_text(shape).c_str());
    }
    m->cols = 2 * shape[1];
    return shape[0];
  }

  // Exponents may be stored as plain bytes.
  void take_scales(const std::string& name, int64_t rows, Fp4Matrix* m) {
    m->scales = part(name + kScale);
    if (m->scales.type == SourceType::kU8) m->scales.type = SourceType::kF8E8M0;
    const bool mx = m->scales.type == SourceType::kF8E8M0;
    if (!mx && (s_.global == nullptr || m->scales.type != SourceType::kF8E4M3)) {
      fail(MOE_ERR_FORMAT, "tensor %.200s: expected %sF8_E8M0 or U8, file has %s",
           m->scales.name.c_str(), s_.global == nullptr ? "" : "F8_E4M3, ",
           source_type_info(m->scales.type).name);
    }
    m->group = mx ? kMxGroup : kNvGroup;
    check_groups(rows, *m);
    if (mx) return;
    m->global = read_global(part(name + s_.global));
    m->divides = s_.divides;
  }

  static void check_groups(int64_t rows, const Fp4Matrix& m) {
    const std::vector<int64_t> expected = {rows, m.cols / m.group};
    if (m.cols % m.group == 0 && m.scales.shape == expected) return;
    fail(MOE_ERR_SHAPE,
         "tensor %.200s: expected %s, a scale for each %lld inputs of the %s weights; file has %s",
         m.scales.name.c_str(), shape_text(expected).c_str(), static_cast<long long>(m.group),
         shape_text({rows, m.cols}).c_str(), shape_text(m.scales.shape).c_str());
  }

  float read_global(const SourceTensor& tensor) const {
    if (tensor.type != SourceType::kF32 || tensor.n_elements != 1) {
      fail(tensor.type != SourceType::kF32 ? MOE_ERR_FORMAT : MOE_ERR_SHAPE,
           "tensor %.200s: expected one number of F32, file has %s of %s", tensor.name.c_str(),
           shape_text(tensor.shape).c_str(), source_type_info(tensor.type).name);
    }
    float global = 0;
    c_->read(tensor, 0, 1, &global);
    if (std::isfinite(global) && global > 0) return global;
    fail(std::isfinite(global) ? MOE_ERR_RANGE : MOE_ERR_NON_FINITE,
         "tensor %.200s: expected a finite number above 0, found %g", tensor.name.c_str(),
         double{global});
  }

  const SourceTensor& part(const std::string& name) {
    const SourceTensor* tensor = c_->find(name);
    if (tensor == nullptr) {
      fail(MOE_ERR_NOT_FOUND, "tensor %.200s is missing; %s", name.c_str(), says_.c_str());
    }
    parts_.push_back(name);
    return *tensor;
  }

  Checkpoint* c_;
  const Fp4Scheme& s_;
  const std::string& says_;
  std::vector<std::string> parts_;
};

}  // namespace

void unpack_fp4(Checkpoint* checkpoint, const Fp4Scheme& scheme, const std::string& says) {
  Unpacking(checkpoint, scheme, says).run();
}

}  // namespace moe
