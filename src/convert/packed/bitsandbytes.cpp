// SPDX-License-Identifier: MIT
// Finds the parts of each four-bit matrix, checks their sizes, and looks its codes up in its table.
#include "src/convert/packed/bitsandbytes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "formats/import/failure.h"
#include "quant/formats.h"
#include "quant/four_bit_layout.h"
#include "src/convert/arch/config_keys.h"
#include "src/convert/packed/llm_int8.h"

namespace moe {
namespace {

constexpr std::string_view kState = ".quant_state.bitsandbytes__";
constexpr int64_t kMaxSide = int64_t{1} << 31;
constexpr int64_t kMaxBlock = 1 << 20;
constexpr uint64_t kMaxStateBytes = 4096;
constexpr const char* kTypes[] = {"nf4", "fp4"};

using Table = std::array<float, 16>;

int64_t count(int64_t n, int64_t block) { return (n + block - 1) / block; }

/// Factors stored as codes of a table of 256 values, with a factor per block.
struct Nested {
  SourceTensor factors;
  std::vector<float> table;
  int64_t block = 0;
  float offset = 0;
};

class BlockRows final : public PackedRows {
 public:
  SourceTensor codes_at;
  SourceTensor factors;
  std::optional<Nested> nested;
  Table table = {};
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t block = 0;

  void read(const Checkpoint& checkpoint, int64_t first, int64_t n, float* out) const override {
    const int64_t begin = first * cols, end = begin + n * cols;
    std::vector<uint8_t> bytes(static_cast<size_t>(count(end, 2) - begin / 2));
    checkpoint.read_bytes(codes_at, static_cast<uint64_t>(begin / 2), bytes.size(), bytes.data());
    const std::vector<float> factor = read_factors(checkpoint, begin, end);
    for (int64_t i = begin; i < end;) {
      const float f = factor[static_cast<size_t>(i / block - begin / block)];
      for (const int64_t stop = std::min(end, (i / block + 1) * block); i < stop; ++i) {
        const uint8_t byte = bytes[static_cast<size_t>(i / 2 - begin / 2)];
        *out++ = table[i % 2 == 0 ? byte >> 4 : byte & 15] * f;
      }
    }
  }

  // Groups of 32 inputs lie within a block, even if it spans rows. Their format's table has
  // integers, to which the file's must round.
  PackedCodes codes(const Checkpoint&) const override {
    if (block % kTileGroup != 0 || cols % kTileGroup != 0) return PackedCodes::kOther;
    for (uint8_t code = 0; code < 16; ++code) {
      const float value = format_info(FormatId::kNf4).random_code(code);
      if (!(std::fabs(table[code] * kNf4Scale - value) <= 0.5f)) return PackedCodes::kOther;
    }
    return PackedCodes::kNf4;
  }

  void read_scales(const Checkpoint& checkpoint, int64_t first, int64_t n, float* scales,
                   float*) const override {
    const int64_t begin = first * cols, end = begin + n * cols;
    const std::vector<float> factor = read_factors(checkpoint, begin, end);
    for (int64_t i = begin; i < end; i += kTileGroup) {
      *scales++ = factor[static_cast<size_t>(i / block - begin / block)] / kNf4Scale;
    }
  }

 private:
  // Factors of the blocks that contain codes [begin, end).
  std::vector<float> read_factors(const Checkpoint& checkpoint, int64_t begin, int64_t end) const {
    const int64_t first = begin / block;
    std::vector<float> out(static_cast<size_t>(count(end, block) - first));
    checkpoint.read(factors, static_cast<uint64_t>(first), out.size(), out.data());
    if (nested) decode(checkpoint, first, &out);
    for (size_t i = 0; i < out.size(); ++i) {
      if (std::isfinite(out[i])) continue;
      fail(MOE_ERR_NON_FINITE, "tensor %.200s: block %lld: expected a finite factor, found %g",
           nested ? nested->factors.name.c_str() : factors.name.c_str(),
           static_cast<long long>(first) + static_cast<long long>(i), double{out[i]});
    }
    return out;
  }

  void decode(const Checkpoint& checkpoint, int64_t first, std::vector<float>* codes) const {
    const int64_t n = std::ssize(*codes), begin = first / nested->block;
    std::vector<float> outer(static_cast<size_t>(count(first + n, nested->block) - begin));
    checkpoint.read(nested->factors, static_cast<uint64_t>(begin), outer.size(), outer.data());
    for (int64_t i = 0; i < n; ++i) {
      float& code = (*codes)[static_cast<size_t>(i)];
      const float factor = outer[static_cast<size_t>((first + i) / nested->block - begin)];
      code = nested->table[static_cast<size_t>(code)] * factor + nested->offset;
    }
  }
};

class Unpacking {
 public:
  Unpacking(Checkpoint* checkpoint, const JsonNode& quantization) : c_(checkpoint) {
    if (!quantization.has("bnb_4bit_quant_type")) return;
    const JsonNode type = quantization.at("bnb_4bit_quant_type");
    said_ = kTypes[type.choice(kTypes)];
  }

  void run() {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : c_->tensors()) {
      if (name.find(kState) != std::string::npos) names.push_back(name);
    }
    if (names.empty()) {
      fail(MOE_ERR_FORMAT,
           "config.json: quantization_config says bitsandbytes, but no tensor NAME%s%s is there",
           std::string(kState).c_str(), said_.empty() ? kTypes[0] : said_.c_str());
    }
    std::set<std::string> kinds;
    for (const std::string& name : names) {
      kinds.insert(name.substr(name.find(kState)));
      add(name);
    }
    expect_no_more(kinds);
  }

 private:
  // Factors are left of matrices without a state, which may be of any kind that the file has.
  void expect_no_more(const std::set<std::string>& kinds) const {
    constexpr std::string_view kFactors = ".absmax";
    for (const auto& [name, tensor] : c_->tensors()) {
      if (!name.ends_with(kFactors)) continue;
      const std::string matrix = name.substr(0, name.size() - kFactors.size());
      if (c_->find(matrix) == nullptr) continue;
      std::string missing;
      for (const std::string& kind : kinds) {
        missing += (missing.empty() ? "" : " or ") + matrix.substr(0, 200) + kind;
      }
      fail(MOE_ERR_NOT_FOUND, "tensor %s is missing; quantization_config says bitsandbytes",
           missing.c_str());
    }
  }

  void add(const std::string& state_name) {
    const SourceTensor& state = *c_->find(state_name);
    const Json document = read_state(state);
    const JsonNode says(document, "tensor " + state_name);
    const size_t kind = state_name.find(kState);
    const std::string name = state_name.substr(0, kind);
    check_type(says, state_name.substr(kind + kState.size()));
    parts_ = {state_name};
    auto matrix = std::make_unique<BlockRows>();
    read_sizes(says, matrix.get());
    take_codes(name, state_name, matrix.get());
    take_factors(name, says, matrix.get());
    SourceTensor whole;
    whole.name = name;
    whole.type = SourceType::kCodes4;
    whole.shape = {matrix->rows, matrix->cols};
    c_->put_packed(std::move(whole), std::move(matrix), parts_);
  }

  Json read_state(const SourceTensor& state) const {
    if (state.type != SourceType::kU8 || state.n_elements > kMaxStateBytes) {
      fail(MOE_ERR_FORMAT,
           "tensor %.200s: expected JSON of at most %llu bytes in U8, file has %s of %s",
           state.name.c_str(), static_cast<unsigned long long>(kMaxStateBytes),
           shape_text(state.shape).c_str(), source_type_info(state.type).name);
    }
    std::string text(state.n_elements, '\0');
    c_->read_bytes(state, 0, text.size(), reinterpret_cast<uint8_t*>(text.data()));
    return parse_json(text, "tensor " + state.name);
  }

  void check_type(const JsonNode& says, const std::string& ending) const {
    const std::string type = kTypes[says.at("quant_type").choice(kTypes)];
    if (type != ending) says.at("quant_type").fail_expected("\"" + ending + "\", as in its name");
    if (said_.empty() || type == said_) return;
    says.at("quant_type").fail_expected("\"" + said_ + "\", as bnb_4bit_quant_type of config.json");
  }

  static void read_sizes(const JsonNode& says, BlockRows* m) {
    const std::vector<JsonNode> shape = says.at("shape").elements();
    if (shape.size() != 2) says.at("shape").fail_expected("numbers of outputs and of inputs");
    m->rows = shape[0].integer(1, kMaxSide);
    m->cols = shape[1].integer(1, kMaxSide);
    m->block = says.at("blocksize").integer(1, kMaxBlock);
  }

  // Two per byte; the tensor may have another type (bnb_4bit_quant_storage).
  void take_codes(const std::string& name, const std::string& state_name, BlockRows* m) {
    m->codes_at = part(name);
    const uint64_t found = source_bytes(m->codes_at.type, m->codes_at.n_elements);
    const auto expected = static_cast<uint64_t>(count(m->rows * m->cols, 2));
    if (found == expected) return;
    fail(MOE_ERR_SHAPE,
         "tensor %.200s: expected %llu bytes of codes of %s, as %.200s says; file has %llu",
         name.c_str(), static_cast<unsigned long long>(expected),
         shape_text({m->rows, m->cols}).c_str(), state_name.c_str(),
         static_cast<unsigned long long>(found));
  }

  void take_factors(const std::string& name, const JsonNode& says, BlockRows* m) {
    const std::vector<float> table = values(name + ".quant_map", m->table.size());
    std::copy(table.begin(), table.end(), m->table.begin());
    const int64_t n_blocks = count(m->rows * m->cols, m->block);
    const bool codes = says.has("nested_blocksize");
    m->factors = part(name + ".absmax");
    expect(m->factors, n_blocks, codes);
    if (!codes) return;
    Nested& nested = m->nested.emplace();
    nested.block = says.at("nested_blocksize").integer(1, kMaxBlock);
    (void)says.at("nested_offset");
    nested.offset = says.number("nested_offset", 0.0f);
    nested.table = values(name + ".nested_quant_map", 256);
    nested.factors = part(name + ".nested_absmax");
    expect(nested.factors, count(n_blocks, nested.block), false);
  }

  std::vector<float> values(const std::string& name, size_t n) {
    const SourceTensor& tensor = part(name);
    expect(tensor, static_cast<int64_t>(n), false);
    std::vector<float> out(n);
    c_->read(tensor, 0, n, out.data());
    for (size_t i = 0; i < n; ++i) {
      if (std::isfinite(out[i])) continue;
      fail(MOE_ERR_NON_FINITE, "tensor %.200s: element %zu: expected a finite number, found %g",
           name.c_str(), i, double{out[i]});
    }
    return out;
  }

  const SourceTensor& part(const std::string& name) {
    const SourceTensor* tensor = c_->find(name);
    if (tensor == nullptr) {
      fail(MOE_ERR_NOT_FOUND, "tensor %.200s is missing; quantization_config says bitsandbytes",
           name.c_str());
    }
    parts_.push_back(name);
    return *tensor;
  }

  // n numbers: 8-bit codes, or floats.
  static void expect(const SourceTensor& tensor, int64_t n, bool codes) {
    const SourceType type = tensor.type;
    const bool floats =
        type == SourceType::kF32 || type == SourceType::kF16 || type == SourceType::kBf16;
    const bool fits = codes ? type == SourceType::kU8 : floats;
    if (fits && tensor.n_elements == static_cast<uint64_t>(n)) return;
    fail(fits ? MOE_ERR_SHAPE : MOE_ERR_FORMAT,
         "tensor %.200s: expected %s of %s, file has %s of %s", tensor.name.c_str(),
         shape_text({n}).c_str(), codes ? "U8" : "F32", shape_text(tensor.shape).c_str(),
         source_type_info(type).name);
  }

  Checkpoint* c_;
  std::string said_;  // as declared by config.json for all matrices
  std::vector<std::string> parts_;
};

}  // namespace

bool is_bitsandbytes(const JsonNode& quantization) {
  if (quantization.has("quant_method")) {
    return quantization.at("quant_method").value() == "bitsandbytes";
  }
  return quantization.has("load_in_4bit") || quantization.has("load_in_8bit");
}

void unpack_bitsandbytes(Checkpoint* checkpoint, const JsonNode& quantization) {
  const bool four = quantization.boolean("load_in_4bit", false);
  const bool eight = quantization.boolean("load_in_8bit", false);
  if (four == eight) {
    fail(MOE_ERR_FORMAT,
         "config.json: quantization_config: expected load_in_4bit or load_in_8bit of bitsandbytes, "
         "found %s",
         four ? "both" : "neither");
  }
  if (eight) return unpack_llm_int8(checkpoint);
  Unpacking(checkpoint, quantization).run();
}

}  // namespace moe
