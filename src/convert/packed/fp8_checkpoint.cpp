#include "src/convert/packed/fp8_checkpoint.h"

#include "formats/import/failure.h"
#include "src/convert/arch/config_keys.h"
#include "src/convert/packed/unused_scales.h"

namespace moe {
namespace {

constexpr int64_t kMaxBlock = 1 << 20;
constexpr int64_t kMaxSide = int64_t{1} << 31;

/// Outputs and inputs per scale; 0: all.
struct Block {
  int64_t rows = 0;
  int64_t cols = 0;
};

int64_t count(int64_t n, int64_t block) { return (n + block - 1) / block; }

class Fp8Matrix final : public PackedRows {
 public:
  Fp8Matrix(SourceTensor codes, SourceTensor scales, const Block& block)
      : codes_(std::move(codes)),
        scales_(std::move(scales)),
        block_(block),
        cols_(codes_.shape[1]),
        across_(count(cols_, block.cols)) {}

  void read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const override {
    checkpoint.read(codes_, static_cast<uint64_t>(first * cols_), static_cast<size_t>(n * cols_),
                    out);
    const int64_t first_block = first / block_.rows;
    const int64_t n_blocks = count(first + n, block_.rows) - first_block;
    std::vector<float> scales(static_cast<size_t>(n_blocks * across_));
    checkpoint.read(scales_, static_cast<uint64_t>(first_block * across_), scales.size(),
                    scales.data());
    for (int64_t r = first; r < first + n; ++r, out += cols_) {
      scale_row(r, scales.data() + (r / block_.rows - first_block) * across_, out);
    }
  }
  PackedCodes codes(const Checkpoint&) const override { return PackedCodes::kOther; }
  void read_scales(const Checkpoint&, int64_t, int64_t, float*, float*) const override {}

 private:
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
  Block block_;
  int64_t cols_;
  int64_t across_;  // blocks per row
};

/// The configuration of all matrices.
struct Scheme {
  const char* method;
  std::vector<const char*> scales;  // suffixes of names, alternatives
  Block block;
};

Block read_block(const JsonNode& sides) {
  const std::vector<JsonNode> list = sides.elements();
  if (list.size() != 2) sides.fail_expected("numbers of outputs and of inputs");
  return {list[0].integer(1, kMaxBlock), list[1].integer(1, kMaxBlock)};
}

Scheme read_fp8(const JsonNode& config) {
  if (config.has("fmt")) (void)config.at("fmt").choice({"e4m3", "float8_e4m3fn"});
  Scheme s{"fp8", {".weight_scale_inv", ".weight_scale"}, {}};
  if (config.has("weight_block_size")) s.block = read_block(config.at("weight_block_size"));
  return s;
}

Block read_strategy(const JsonNode& weights) {
  switch (weights.at("strategy").choice({"tensor", "channel", "block"})) {
    case 0:
      return {};
    case 1:
      return {1, 0};
    default:
      return read_block(weights.at("block_structure"));
  }
}

Scheme read_compressed(const JsonNode& config) {
  const JsonNode groups = config.at("config_groups");
  if (!groups.value().is_object() || groups.value().items().size() != 1) {
    groups.fail_expected("an object with one group");
  }
  Scheme s{"compressed-tensors", {".weight_scale"}, {}};
  for (const auto& [name, value] : groups.value().items()) {
    const JsonNode weights = groups.at(name.c_str()).at("weights");
    if (weights.at("num_bits").integer(1, 32) != 8) fail_value(weights.at("num_bits"), "8 is");
    (void)weights.at("type").choice({"float"});
    s.block = read_strategy(weights);
  }
  return s;
}

class Unpacking {
 public:
  Unpacking(Checkpoint* checkpoint, const Scheme& scheme) : c_(checkpoint), s_(scheme) {}

  void run() {
    constexpr std::string_view kEnd = ".weight";
    std::vector<std::string> names;
    for (const auto& [name, tensor] : c_->tensors()) {
      if (tensor.type != SourceType::kF8E4M3 || !name.ends_with(kEnd)) continue;
      names.push_back(name.substr(0, name.size() - kEnd.size()));
    }
    if (names.empty()) {
      fail(
          MOE_ERR_FORMAT,
          "config.json: quantization_config says %s, but no tensor NAME.weight of F8_E4M3 is there",
          s_.method);
    }
    for (const std::string& name : names) add(name);
  }

 private:
  void add(const std::string& name) {
    const SourceTensor codes = *c_->find(name + ".weight");
    const std::vector<int64_t>& shape = codes.shape;
    if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 || shape[0] > kMaxSide ||
        shape[1] > kMaxSide) {
      fail(MOE_ERR_SHAPE, "tensor %.200s: expected a matrix, file has %s", codes.name.c_str(),
           shape_text(shape).c_str());
    }
    const Block block = {s_.block.rows == 0 ? shape[0] : s_.block.rows,
                         s_.block.cols == 0 ? shape[1] : s_.block.cols};
    const SourceTensor scales = find_scales(name);
    check_scales(scales, codes, block);
    std::vector<std::string> parts = unused_scales(name);
    parts.insert(parts.end(), {codes.name, scales.name});
    SourceTensor whole = codes;
    whole.type = SourceType::kCodes8;
    c_->put_packed(std::move(whole), std::make_unique<Fp8Matrix>(codes, scales, block), parts);
  }

  SourceTensor find_scales(const std::string& name) const {
    for (const char* end : s_.scales) {
      if (const SourceTensor* found = c_->find(name + end)) return *found;
    }
    fail(MOE_ERR_NOT_FOUND, "tensor %.200s%s is missing; quantization_config says %s", name.c_str(),
         s_.scales[0], s_.method);
  }

  // One scale in total, or per output, may have fewer axes.
  void check_scales(const SourceTensor& scales, const SourceTensor& codes,
                    const Block& block) const {
    const SourceType type = scales.type;
    if (type != SourceType::kF32 && type != SourceType::kBf16 && type != SourceType::kF16) {
      fail(MOE_ERR_FORMAT, "tensor %.200s: expected F16, BF16 or F32, file has %s",
           scales.name.c_str(), source_type_info(type).name);
    }
    const std::vector<int64_t> expected = {count(codes.shape[0], block.rows),
                                           count(codes.shape[1], block.cols)};
    std::vector<int64_t> found = scales.shape;
    while (found.size() < 2) found.push_back(1);
    if (found == expected) return;
    fail(MOE_ERR_SHAPE,
         "tensor %.200s: expected %s, a scale for each %lld by %lld of the %s weights; file has %s",
         scales.name.c_str(), shape_text(expected).c_str(), static_cast<long long>(block.rows),
         static_cast<long long>(block.cols), shape_text(codes.shape).c_str(),
         shape_text(scales.shape).c_str());
  }

  Checkpoint* c_;
  const Scheme& s_;
};

}  // namespace

bool is_fp8(const JsonNode& quantization) {
  const Json& method = quantization.at("quant_method").value();
  if (method == "fp8") return true;
  return method == "compressed-tensors" && quantization.has("format") &&
         quantization.at("format").value() == "float-quantized";
}

void unpack_fp8(Checkpoint* checkpoint, const JsonNode& quantization) {
  const bool named = quantization.at("quant_method").value() == "fp8";
  Unpacking(checkpoint, named ? read_fp8(quantization) : read_compressed(quantization)).run();
}

}  // namespace moe
