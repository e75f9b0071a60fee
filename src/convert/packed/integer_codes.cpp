// SPDX-License-Identifier: MIT
// Reads bits, groups and order of each method's configuration and collects the tensors of each
// matrix.
#include "src/convert/packed/integer_codes.h"

#include <algorithm>

#include "formats/import/failure.h"
#include "src/base/number.h"
#include "src/convert/arch/config_keys.h"
#include "src/convert/packed/packed_matrix.h"
#include "src/convert/packed/unused_scales.h"

namespace moe {
namespace {

constexpr int64_t kMaxGroup = 1 << 20;

/// The configuration of some matrices.
struct Kind {
  int bits = 0;
  int64_t group = 0;       // 0: one scale per output; -1: any
  bool zeros = true;       // zero points are required
  bool index = false;      // groups may be permuted: an index is required
  bool one_scale = false;  // for all outputs
};

/// The configuration of all matrices.
struct Scheme {
  std::string where;  // the configuration's path
  const char* method;
  CodeLayout layout;
  const char* codes;  // suffixes of names
  const char* scales;
  const char* zeros;
  const char* index;
  int bits = 0;       // 0: from the tensor's shape
  int64_t group = 0;  // 0: one scale per output; -1: from the scales' shape
  int zero_offset = 0;
  std::vector<Kind> kinds = {};  // each matrix matches one
};

int read_bits(const JsonNode& config, const char* key) {
  const int64_t bits = config.at(key).integer(1, 32);
  if (bits != 4 && bits != 8) fail_value(config.at(key), "4 and 8 are");
  return static_cast<int>(bits);
}

int64_t read_group(const JsonNode& config, const char* key) {
  const int64_t group = config.at(key).integer(-1, kMaxGroup);
  if (group == 0) config.at(key).fail_expected("-1 or a number of inputs");
  return group == -1 ? 0 : group;
}

// The layout's name in lower case; empty if no key says. Of several keys the last counts, as in
// `transformers`. `accepted` lists `names` for an error.
std::string read_format(const JsonNode& config, std::initializer_list<const char*> keys,
                        std::initializer_list<std::string_view> names, const char* accepted) {
  std::string name;
  for (const char* key : keys) {
    if (!config.has(key)) continue;
    name = config.at(key).string();
    for (char& c : name) c = ascii_lower(c);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      fail_value(config.at(key), accepted);
    }
  }
  return name;
}

Scheme read_gptq(const JsonNode& config) {
  Scheme s{config.path(), "gptq", CodeLayout::kGptq, ".qweight", ".scales", ".qzeros", ".g_idx"};
  s.bits = read_bits(config, "bits");
  s.group = read_group(config, "group_size");
  const std::string format = read_format(config, {"format", "checkpoint_format"},
                                         {"gptq", "gptq_v2"}, "gptq and gptq_v2 are");
  s.zero_offset = format == "gptq_v2" ? 0 : 1;  // the first stores zero points minus one
  s.kinds = {{s.bits, s.group, true, config.boolean("desc_act", false)}};
  if (config.boolean("is_marlin_format", false)) {
    fail_value(config.at("is_marlin_format"), "take the checkpoint that Marlin's was made of");
  }
  if (config.has("rotation")) {
    fail_value(config.at("rotation"), "only weights whose inputs are not rotated are");
  }
  return s;
}

Scheme read_awq(const JsonNode& config) {
  Scheme s{config.path(), "awq", CodeLayout::kAwq, ".qweight", ".scales", ".qzeros", ""};
  s.bits = read_bits(config, "bits");
  if (s.bits != 4) fail_value(config.at("bits"), "4 is");
  s.group = read_group(config, "group_size");
  s.kinds = {{s.bits, s.group, config.boolean("zero_point", true), false}};
  (void)read_format(config, {"format", "checkpoint_format", "version"}, {"gemm"}, "gemm is");
  if (config.string("backend", "") == "llm-awq")
    fail_value(config.at("backend"), "gemm's layout is");
  return s;
}

Kind read_kind(const JsonNode& weights) {
  Kind kind;
  kind.bits = read_bits(weights, "num_bits");
  const std::string strategy = weights.string("strategy", "");
  const bool grouped = strategy == "group" || (strategy.empty() && weights.has("group_size"));
  kind.one_scale = strategy == "tensor";
  const bool whole = strategy == "channel" || kind.one_scale;
  kind.group = grouped ? read_group(weights, "group_size") : whole ? 0 : -1;
  kind.zeros = !weights.boolean("symmetric", true);
  if (weights.has("actorder")) {
    const Json& order = weights.at("actorder").value();
    kind.index = order == "group" || order == "dynamic" || order == Json(true);
  }
  return kind;
}

Scheme compressed_scheme(bool bytes) {
  Scheme s{"config.json: quantization_config",
           "compressed-tensors",
           bytes ? CodeLayout::kBytes : CodeLayout::kWords,
           bytes ? ".weight" : ".weight_packed",
           ".weight_scale",
           ".weight_zero_point",
           ".weight_g_idx"};
  s.group = -1;
  s.bits = bytes ? 8 : 0;
  return s;
}

// Groups differ in the modules they target; bits and group sizes follow from each matrix's shapes,
// which must match one of the listed kinds.
Scheme read_compressed(std::span<const JsonNode> weights, bool bytes) {
  Scheme s = compressed_scheme(bytes);
  for (const JsonNode& group : weights) {
    s.kinds.push_back(read_kind(group));
    if (bytes && s.kinds.back().bits != 8) fail_value(group.at("num_bits"), "8 is in this format");
  }
  return s;
}

class Unpacking {
 public:
  Unpacking(Checkpoint* checkpoint, const Scheme& scheme) : c_(checkpoint), s_(scheme) {}

  void run() {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : c_->tensors()) {
      if (name.ends_with(s_.codes) && is_codes(tensor)) {
        names.push_back(name.substr(0, name.size() - std::string_view(s_.codes).size()));
      }
    }
    if (names.empty()) {
      fail(MOE_ERR_FORMAT, "%s says %s, but no tensor NAME%s with a NAME%s is there",
           s_.where.c_str(), s_.method, s_.codes, s_.scales);
    }
    if (s_.layout != CodeLayout::kBytes) refuse_scales_alone();  // bytes are a NAME.weight
    for (const std::string& name : names) add(name);
  }

 private:
  void refuse_scales_alone() {
    for (const std::string& name : scales_alone(*c_, s_.scales, s_.codes)) part(name + s_.codes);
  }

  // Other codes may have the same names: FP8 those of bytes, FP4 those of words.
  bool is_codes(const SourceTensor& tensor) const {
    if (s_.layout == CodeLayout::kBytes) return tensor.type == SourceType::kI8;
    return s_.layout != CodeLayout::kWords || tensor.type != SourceType::kU8;
  }

  const SourceTensor* find(const std::string& name) {
    const SourceTensor* tensor = c_->find(name);
    if (tensor != nullptr) parts_.push_back(name);
    return tensor;
  }

  const SourceTensor& part(const std::string& name) {
    const SourceTensor* tensor = find(name);
    if (tensor == nullptr) {
      fail(MOE_ERR_NOT_FOUND, "tensor %.200s is missing; %s says %s", name.c_str(),
           s_.where.c_str(), s_.method);
    }
    return *tensor;
  }

  void expect(const SourceTensor& tensor, std::vector<int64_t> shape, bool integers) const {
    const SourceTypeInfo& info = source_type_info(tensor.type);
    const SourceType wanted = s_.layout == CodeLayout::kBytes ? SourceType::kI8 : SourceType::kI32;
    const bool of_floats = tensor.type == SourceType::kF16 || tensor.type == SourceType::kBf16 ||
                           tensor.type == SourceType::kF32;
    if (integers ? tensor.type != wanted : !of_floats) {
      fail(MOE_ERR_FORMAT, "tensor %.200s: expected %s, file has %s", tensor.name.c_str(),
           integers ? source_type_info(wanted).name : "F16, BF16 or F32", info.name);
    }
    // One scale per output, or in total, may lack its second axis.
    std::vector<int64_t> found = tensor.shape;
    while (shape.back() == 1 && found.size() < shape.size()) found.push_back(1);
    if (found == shape) return;
    fail(MOE_ERR_SHAPE,
         "tensor %.200s: expected %s for %d bits and groups of %lld inputs, as %s and %s say; "
         "file has %s",
         tensor.name.c_str(), shape_text(shape).c_str(), m_->bits,
         static_cast<long long>(m_->group), s_.where.c_str(), m_->words.name.c_str(),
         shape_text(tensor.shape).c_str());
  }

  // The requirements common to all possible kinds of the matrix.
  Kind kind() const {
    Kind all{0, m_->group, true, m_->groups() > 1};
    for (const Kind& k : s_.kinds) {
      if (k.bits != m_->bits) continue;
      if (k.group != -1 && (k.group == 0 ? m_->cols : k.group) != m_->group) continue;
      if (k.one_scale != m_->one_scale && m_->rows > 1) continue;
      all.bits = k.bits;
      all.zeros = all.zeros && k.zeros;
      all.index = all.index && k.index;
    }
    if (all.bits != 0) return all;
    fail(MOE_ERR_SHAPE,
         "tensor %.200s: codes of %d bits with a scale for each %lld inputs; %s has no such group",
         m_->words.name.c_str(), m_->bits, static_cast<long long>(m_->group), s_.where.c_str());
  }

  bool has_one_scale() const {
    const auto says_so = [](const Kind& k) { return k.one_scale; };
    const bool any = std::any_of(s_.kinds.begin(), s_.kinds.end(), says_so);
    const bool all = std::all_of(s_.kinds.begin(), s_.kinds.end(), says_so);
    return any && (all || m_->scales.n_elements == 1);
  }

  void add(const std::string& name) {
    auto matrix = std::make_unique<PackedMatrix>();
    m_ = matrix.get();
    parts_ = unused_scales(name);
    m_->layout = s_.layout;
    m_->zero_offset = s_.zero_offset;
    m_->words = part(name + s_.codes);
    m_->scales = part(name + s_.scales);
    read_sizes(name);
    m_->one_scale = has_one_scale();
    const Kind needs = kind();
    const int64_t p = 32 / m_->bits, r = m_->rows, c = m_->cols, g = m_->groups();
    const int64_t words = (r + p - 1) / p, scaled = m_->one_scale ? 1 : r;
    const bool down = s_.layout == CodeLayout::kGptq || s_.layout == CodeLayout::kAwq;
    expect(m_->words,
           s_.layout == CodeLayout::kGptq    ? std::vector{c / p, r}
           : s_.layout == CodeLayout::kAwq   ? std::vector{c, r / p}
           : s_.layout == CodeLayout::kWords ? std::vector{r, c / p}
                                             : std::vector{r, c},
           true);
    expect(m_->scales, down ? std::vector{g, r} : std::vector{scaled, g}, false);
    const std::string zeros_name = name + s_.zeros, index_name = name + s_.index;
    if (const SourceTensor* zeros = needs.zeros ? &part(zeros_name) : find(zeros_name)) {
      m_->zeros = *zeros;
      const bool bytes = s_.layout == CodeLayout::kBytes;
      expect(*zeros, down ? std::vector{g, words} : std::vector{bytes ? scaled : words, g}, true);
    }
    const SourceTensor* index = nullptr;
    if (s_.index[0] != '\0') index = needs.index ? &part(index_name) : find(index_name);
    if (index != nullptr) {
      m_->index = *index;
      if (index->type != SourceType::kI32 || index->shape != std::vector{c}) {
        fail(MOE_ERR_SHAPE, "tensor %.200s: expected %s of I32, file has %s of %s",
             index->name.c_str(), shape_text({c}).c_str(), shape_text(index->shape).c_str(),
             source_type_info(index->type).name);
      }
    }
    SourceTensor whole;
    whole.name = name + ".weight";
    whole.type = m_->bits == 4 ? SourceType::kCodes4 : SourceType::kCodes8;
    whole.shape = {r, c};
    whole.across = down;
    c_->put_packed(std::move(whole), std::move(matrix), parts_);
  }

  // Rows, columns, bits and group size, from the configuration and the shape of the codes.
  void read_sizes(const std::string& name) {
    const std::vector<int64_t>& shape = m_->words.shape;
    m_->bits = s_.bits;
    m_->group = 1;
    constexpr int64_t kMost = int64_t{1} << 31;
    if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 || shape[0] > kMost || shape[1] > kMost) {
      fail(MOE_ERR_SHAPE, "tensor %.200s: expected a matrix, file has %s", m_->words.name.c_str(),
           shape_text(shape).c_str());
    }
    switch (s_.layout) {
      case CodeLayout::kGptq:
        m_->cols = shape[0] * (32 / s_.bits);
        m_->rows = shape[1];
        break;
      case CodeLayout::kAwq:
        m_->cols = shape[0];
        m_->rows = shape[1] * (32 / s_.bits);
        break;
      case CodeLayout::kWords:
        m_->rows = shape[0];
        m_->cols = read_width(name);
        break;
      case CodeLayout::kBytes:
        m_->rows = shape[0];
        m_->cols = shape[1];
        break;
    }
    m_->group = s_.group;
    if (s_.group == 0) m_->group = m_->cols;
    if (s_.group == -1) {
      const std::vector<int64_t>& scales = m_->scales.shape;
      const int64_t groups = scales.size() == 2 ? scales[1] : 1;
      if (groups < 1 || m_->cols % groups != 0) fail_group(groups, "groups");
      m_->group = m_->cols / groups;
    }
    if (m_->cols % m_->group != 0) fail_group(m_->group, "inputs in a group");
  }

  [[noreturn]] void fail_group(int64_t n, const char* what) const {
    fail(MOE_ERR_SHAPE, "tensor %.200s: %lld %s do not divide its %lld inputs",
         m_->words.name.c_str(), static_cast<long long>(n), what, static_cast<long long>(m_->cols));
  }

  // The shape of the weights is in a separate tensor; codes of 4 or 8 bits.
  int64_t read_width(const std::string& name) {
    const SourceTensor& tensor = part(name + ".weight_shape");
    int64_t shape[2] = {};
    if (tensor.n_elements != 2 ||
        (tensor.type != SourceType::kI64 && tensor.type != SourceType::kI32)) {
      fail(MOE_ERR_SHAPE, "tensor %.200s: expected two numbers of I64, file has %s of %s",
           tensor.name.c_str(), shape_text(tensor.shape).c_str(),
           source_type_info(tensor.type).name);
    }
    c_->read(tensor, 0, 2, shape);
    const int64_t words = m_->words.shape[1];
    m_->bits = shape[1] == words * 8 ? 4 : 8;
    if (shape[0] != m_->rows || shape[1] != words * (32 / m_->bits)) {
      fail(MOE_ERR_SHAPE, "tensor %.200s: %s holds no codes of 4 or 8 bits of %s, as %s says",
           m_->words.name.c_str(), shape_text(m_->words.shape).c_str(),
           shape_text({shape[0], shape[1]}).c_str(), tensor.name.c_str());
    }
    return shape[1];
  }

  Checkpoint* c_;
  const Scheme& s_;
  PackedMatrix* m_ = nullptr;
  std::vector<std::string> parts_;
};

}  // namespace

void unpack_gptq(Checkpoint* checkpoint, const JsonNode& quantization) {
  Unpacking(checkpoint, read_gptq(quantization)).run();
}

void unpack_awq(Checkpoint* checkpoint, const JsonNode& quantization) {
  Unpacking(checkpoint, read_awq(quantization)).run();
}

void unpack_words(Checkpoint* checkpoint, std::span<const JsonNode> weights) {
  Unpacking(checkpoint, read_compressed(weights, false)).run();
}

void unpack_bytes(Checkpoint* checkpoint, std::span<const JsonNode> weights) {
  Unpacking(checkpoint, read_compressed(weights, true)).run();
}

}  // namespace moe
