// SPDX-License-Identifier: MIT
// Finds codes and scales of each FP8 matrix, checks their shapes, and decodes rows.
#include "src/convert/packed/fp8_checkpoint.h"

#include <algorithm>

#include "formats/import/failure.h"
#include "src/convert/arch/config_keys.h"
#include "src/convert/packed/unused_scales.h"

namespace moe {
namespace {

constexpr int64_t kMaxBlock = 1 << 20;
constexpr int64_t kMaxSide = int64_t{1} << 31;
constexpr std::string_view kWeight = ".weight";

int64_t count(int64_t n, int64_t block) { return (n + block - 1) / block; }

// The rows of all experts of a tensor lie one after another, and their scales too.
class Fp8Matrix final : public PackedRows {
 public:
  Fp8Matrix(SourceTensor codes, SourceTensor scales, const Fp8Block& block)
      : codes_(std::move(codes)),
        scales_(std::move(scales)),
        block_(block),
        rows_(codes_.shape.end()[-2]),
        cols_(codes_.shape.end()[-1]),
        down_(count(rows_, block.rows)),
        across_(count(cols_, block.cols)) {}

  void read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const override {
    checkpoint.read(codes_, static_cast<uint64_t>(first * cols_), static_cast<size_t>(n * cols_),
                    out);
    const int64_t first_block = block_row(first);
    const int64_t n_blocks = block_row(first + n - 1) - first_block + 1;
    std::vector<float> scales(static_cast<size_t>(n_blocks * across_));
    checkpoint.read(scales_, static_cast<uint64_t>(first_block * across_), scales.size(),
                    scales.data());
    for (int64_t r = first; r < first + n; ++r, out += cols_) {
      scale_row(r, scales.data() + (block_row(r) - first_block) * across_, out);
    }
  }
  PackedCodes codes(const Checkpoint&) const override { return PackedCodes::kOther; }
  void read_scales(const Checkpoint&, int64_t, int64_t, float*, float*) const override {}

 private:
  int64_t block_row(int64_t row) const { return row / rows_ * down_ + row % rows_ / block_.rows; }

  void scale_row(int64_t row, const float* scales, float* out) const {
    for (int64_t c = 0; c < cols_; ++c) {
      const float code = out[c];
      out[c] *= scales[c / block_.cols];
      if (out[c] - out[c] == 0) continue;
      const bool number = code - code == 0;
      fail(MOE_ERR_NON_FINITE, "tensor %.200s: row %lld, column %lld: %s",
           number ? scales_.name.c_str() : codes_.name.c_str(), static_cast<long long>(row),
           static_cast<long long>(c),
           number ? "its scale makes this weight infinite or NaN" : "the code is NaN");
    }
  }

  SourceTensor codes_;
  SourceTensor scales_;
  Fp8Block block_;
  int64_t rows_, cols_;    // of one expert
  int64_t down_, across_;  // blocks of one expert
};

class Unpacking {
 public:
  Unpacking(Checkpoint* checkpoint, const Fp8Scheme& scheme) : c_(checkpoint), s_(scheme) {
    for (const Fp8Block& block : s_.blocks) {
      const auto same = [&](const Fp8Block& b) {
        return b.rows == block.rows && b.cols == block.cols;
      };
      if (std::none_of(blocks_.begin(), blocks_.end(), same)) blocks_.push_back(block);
    }
  }

  void run() {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : c_->tensors()) {
      if (tensor.type != SourceType::kF8E4M3) continue;
      if (name.ends_with(kWeight) || tensor.shape.size() == 3) names.push_back(name);
    }
    if (names.empty()) {
      fail(MOE_ERR_FORMAT, "%s, but no tensor NAME.weight of F8_E4M3 is there", s_.says.c_str());
    }
    for (const std::string& name : names) add(name);
  }

 private:
  void add(const std::string& name) {
    const SourceTensor* found = c_->find(name);
    if (found == nullptr) return;  // removed as an unused scale of another matrix
    const SourceTensor codes = *found;
    check_codes(codes);
    const SourceTensor scales = find_scales(name);
    const Fp8Block block = find_block(scales, codes);
    const bool plain = name.ends_with(kWeight);
    std::vector<std::string> parts =
        unused_scales(plain ? name.substr(0, name.size() - kWeight.size()) : name);
    parts.insert(parts.end(), {codes.name, scales.name});
    SourceTensor whole = codes;
    whole.type = SourceType::kCodes8;
    c_->put_packed(std::move(whole), std::make_unique<Fp8Matrix>(codes, scales, block), parts);
  }

  static void check_codes(const SourceTensor& codes) {
    const std::vector<int64_t>& shape = codes.shape;
    const bool matrices = shape.size() == 2 || shape.size() == 3;
    const auto sane = [](int64_t n) { return n >= 1 && n <= kMaxSide; };
    if (matrices && std::all_of(shape.begin(), shape.end(), sane)) return;
    fail(MOE_ERR_SHAPE, "tensor %.200s: expected a matrix, or one for each expert; file has %s",
         codes.name.c_str(), shape_text(shape).c_str());
  }

  // Exponents may be stored as plain bytes.
  SourceTensor find_scales(const std::string& name) const {
    for (const char* end : s_.scales) {
      const SourceTensor* found = c_->find(name + end);
      if (found == nullptr) continue;
      SourceTensor scales = *found;
      if (scales.type == SourceType::kU8) scales.type = SourceType::kF8E8M0;
      check_type(scales);
      return scales;
    }
    fail(MOE_ERR_NOT_FOUND, "tensor %.200s%s is missing; %s", name.c_str(), s_.scales[0],
         s_.says.c_str());
  }

  static void check_type(const SourceTensor& scales) {
    switch (scales.type) {
      case SourceType::kF32:
      case SourceType::kBf16:
      case SourceType::kF16:
      case SourceType::kF8E8M0:
        return;
      default:
        fail(MOE_ERR_FORMAT, "tensor %.200s: expected F16, BF16, F32 or F8_E8M0, file has %s",
             scales.name.c_str(), source_type_info(scales.type).name);
    }
  }

  Fp8Block find_block(const SourceTensor& scales, const SourceTensor& codes) const {
    const std::vector<int64_t> found = axes(scales.shape, codes.shape.size());
    std::vector<Fp8Block> fits;
    for (const Fp8Block& declared : blocks_) {
      const Fp8Block block = whole_block(declared, codes, found);
      if (scales_shape(block, codes) == found) fits.push_back(block);
    }
    if (!fits.empty()) {
      check_blocks(fits, scales, codes);
      return fits[0];
    }
    const Fp8Block block = whole_block(blocks_[0], codes, found);
    fail(MOE_ERR_SHAPE,
         "tensor %.200s: expected %s, a scale for each %lld by %lld of the %s weights; file has %s",
         scales.name.c_str(), shape_text(scales_shape(block, codes)).c_str(),
         static_cast<long long>(block.rows), static_cast<long long>(block.cols),
         shape_text(codes.shape).c_str(), shape_text(scales.shape).c_str());
  }

  // The scales of each group of a configuration may fit a matrix, and those of two halves too.
  static void check_blocks(const std::vector<Fp8Block>& fits, const SourceTensor& scales,
                           const SourceTensor& codes) {
    const int64_t rows = codes.shape.end()[-2], cols = codes.shape.end()[-1];
    for (const Fp8Block& other : fits) {
      if (std::min(other.rows, rows) == std::min(fits[0].rows, rows) &&
          std::min(other.cols, cols) == std::min(fits[0].cols, cols)) {
        continue;
      }
      fail(
          MOE_ERR_SHAPE,
          "tensor %.200s: ambiguous: blocks of %lld by %lld and of %lld by %lld fit the %s weights",
          scales.name.c_str(), static_cast<long long>(fits[0].rows),
          static_cast<long long>(fits[0].cols), static_cast<long long>(other.rows),
          static_cast<long long>(other.cols), shape_text(codes.shape).c_str());
    }
    const bool fused = codes.name.find("gate_up") != std::string::npos;
    if (!fused || fits[0].rows >= rows || (rows / 2) % fits[0].rows == 0) return;
    fail(MOE_ERR_UNSUPPORTED,
         "tensor %.200s: a block of %lld rows would contain rows of the gate and of up; expected "
         "halves of %s weights to be whole blocks",
         scales.name.c_str(), static_cast<long long>(fits[0].rows),
         shape_text(codes.shape).c_str());
  }

  // One scale in total, or per output, may have fewer axes; ModelOpt gives each block two.
  static std::vector<int64_t> axes(std::vector<int64_t> shape, size_t n) {
    if (n == 2 && shape.size() == 4 && shape[1] == 1 && shape[3] == 1) return {shape[0], shape[2]};
    while (shape.size() < n) shape.push_back(1);
    return shape;
  }

  // A gate and its up in one tensor have a scale each where a block would contain both.
  static Fp8Block whole_block(Fp8Block block, const SourceTensor& codes,
                              const std::vector<int64_t>& scales) {
    const int64_t rows = codes.shape.end()[-2], cols = codes.shape.end()[-1];
    if (block.rows == 0) block.rows = rows;
    if (block.cols == 0) block.cols = cols;
    const bool halves = codes.shape.size() == 3 && scales.size() == 3 && scales[1] == 2;
    if (halves && rows % 2 == 0 && block.rows >= rows) block.rows = rows / 2;
    return block;
  }

  static std::vector<int64_t> scales_shape(const Fp8Block& block, const SourceTensor& codes) {
    std::vector<int64_t> shape = codes.shape;
    shape.end()[-2] = count(shape.end()[-2], block.rows);
    shape.end()[-1] = count(shape.end()[-1], block.cols);
    return shape;
  }

  Checkpoint* c_;
  const Fp8Scheme& s_;
  std::vector<Fp8Block> blocks_;  // each once
};

}  // namespace

Fp8Block read_fp8_block(const JsonNode& sides) {
  const std::vector<JsonNode> list = sides.elements();
  if (list.size() != 2) sides.fail_expected("numbers of outputs and of inputs");
  return {list[0].integer(1, kMaxBlock), list[1].integer(1, kMaxBlock)};
}

void unpack_fp8(Checkpoint* checkpoint, const Fp8Scheme& scheme) {
  Unpacking(checkpoint, scheme).run();
}

void unpack_fp8_method(Checkpoint* checkpoint, const JsonNode& quantization) {
  if (quantization.has("fmt")) (void)quantization.at("fmt").choice({"e4m3", "float8_e4m3fn"});
  (void)quantization.choice("scale_fmt", 0, {"float", "ue8m0"});
  (void)quantization.choice("expert_dtype", 0, {"fp8"});
  Fp8Scheme scheme{says_method(quantization, "fp8"), {"_scale_inv", "_scale"}, {Fp8Block{}}};
  if (quantization.has("weight_block_size")) {
    scheme.blocks = {read_fp8_block(quantization.at("weight_block_size"))};
  }
  unpack_fp8(checkpoint, scheme);
}

}  // namespace moe
