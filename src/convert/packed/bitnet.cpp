// SPDX-License-Identifier: MIT
// Finds ternary matrices by their packed tensors, works out their shapes, and presents each as one
// tensor of floats.
#include "src/convert/packed/bitnet.h"

#include <algorithm>
#include <cmath>

#include "formats/import/failure.h"
#include "src/convert/arch/config_keys.h"
#include "src/convert/importer.h"
#include "src/convert/packed/ternary_rows.h"

namespace moe {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kScale = "_scale";
constexpr int64_t kPerByte = 4;
constexpr uint64_t kMaxExperts = uint64_t{1} << 20;  // more than any model has

std::string head(const std::string& name, std::string_view end) {
  return name.substr(0, name.size() - end.size());
}

// The number of experts in a fused tensor; 0 where config.json does not say, or
// says what cannot be.
int64_t count_experts(const Checkpoint& checkpoint) {
  const Json config = checkpoint.document("config.json");
  for (const char* key :
       {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}) {
    const Json* n = config.find(key);
    if (n == nullptr || !n->is_number_unsigned()) continue;
    const auto count = n->get<uint64_t>();
    return count <= kMaxExperts ? static_cast<int64_t>(count) : 0;
  }
  return 0;
}

class Offline {
 public:
  Offline(Checkpoint* checkpoint, const JsonNode& quantization)
      : c_(checkpoint),
        says_(says_method(quantization, "bitnet")),
        automatic_(quantization.choice("linear_class", 0, {"bitlinear", "autobitlinear"}) == 1),
        n_experts_(count_experts(*checkpoint)) {}

  void run() {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : c_->tensors()) {
      const bool scaled = c_->find(name + std::string(kScale)) != nullptr;
      const bool packed = tensor.type == SourceType::kU8;
      const bool floats = automatic_ && source_type_info(tensor.type).floating;
      if (packed ? scaled || name.ends_with(kWeight) : floats && scaled) names.push_back(name);
    }
    if (names.empty()) {
      fail(MOE_ERR_FORMAT, "%s, but no tensor NAME.weight with a NAME.weight_scale is there",
           says_.c_str());
    }
    for (const std::string& name : names) add(name);
  }

 private:
  void add(const std::string& name) {
    const SourceTensor stored = *c_->find(name);
    if (automatic_) scale_bias(name);
    const std::vector<std::string> parts = {name, name + std::string(kScale)};
    if (stored.type != SourceType::kU8) {
      return put_scaled(stored, read_scales(parts[1], stored, {})[0], parts);
    }
    SourceTensor whole = stored;
    auto rows = std::make_unique<TernaryBytes>();
    whole.bit_linear = BitLinear::kTernary;
    whole.shape = unpack_shape(stored, rows.get());
    whole.type = SourceType::kCodes2;
    rows->scales = read_scales(parts[1], stored, whole.shape);
    c_->put_packed(std::move(whole), std::move(rows), parts);
  }

  // autobitlinear adds the bias before it multiplies by the scale.
  void scale_bias(const std::string& name) {
    if (!name.ends_with(kWeight)) return;
    const std::string bias = head(name, kWeight) + ".bias";
    const SourceTensor* found = c_->find(bias);
    if (found == nullptr || !source_type_info(found->type).floating) return;
    put_scaled(*found, read_scales(name + std::string(kScale), *c_->find(name), {})[0], {bias});
  }

  void put_scaled(const SourceTensor& floats, float scale, const std::vector<std::string>& parts) {
    auto rows = std::make_unique<ScaledRows>();
    rows->floats = floats;
    rows->scale = scale;
    SourceTensor whole = floats;
    whole.type = SourceType::kF32;
    whole.bit_linear = BitLinear::kTernary;
    c_->put_packed(std::move(whole), std::move(rows), parts);
  }

  // Rows of a matrix, or of each expert's, are packed; or experts where there are a quarter.
  std::vector<int64_t> unpack_shape(const SourceTensor& bytes, TernaryBytes* rows) const {
    std::vector<int64_t> shape = bytes.shape;
    const bool experts = shape.size() == 3;
    constexpr int64_t kMost = int64_t{1} << 31;
    const auto sane = [](int64_t n) { return n >= 1 && n <= kMost; };
    if ((shape.size() != 2 && !experts) || !std::all_of(shape.begin(), shape.end(), sane)) {
      fail(MOE_ERR_SHAPE, "tensor %.200s: expected a matrix, or one for each expert; file has %s",
           bytes.name.c_str(), shape_text(shape).c_str());
    }
    const bool across =
        experts && shape[0] != n_experts_ && shape[0] == (n_experts_ + kPerByte - 1) / kPerByte;
    const size_t axis = experts && !across ? 1 : 0;
    rows->bytes = bytes;
    rows->packed = shape[axis];
    rows->inner = across ? shape[1] : 1;
    shape[axis] = across ? n_experts_ : kPerByte * shape[axis];
    rows->unpacked = shape[axis];
    rows->n_rows = experts ? shape[0] * shape[1] : shape[0];
    return shape;
  }

  // One scale, or one for each expert.
  std::vector<float> read_scales(const std::string& name, const SourceTensor& of,
                                 const std::vector<int64_t>& shape) const {
    const SourceTensor* found = c_->find(name);
    if (found == nullptr) {
      fail(MOE_ERR_NOT_FOUND, "tensor %.200s is missing, the scales of %.200s", name.c_str(),
           of.name.c_str());
    }
    const uint64_t n_experts = shape.size() == 3 ? static_cast<uint64_t>(shape[0]) : 1;
    if (found->n_elements != 1 && found->n_elements != n_experts) {
      fail(MOE_ERR_SHAPE, "tensor %.200s: expected (1)%s, file has %s", name.c_str(),
           n_experts == 1 ? "" : (" or " + shape_text({shape[0]})).c_str(),
           shape_text(found->shape).c_str());
    }
    if (!source_type_info(found->type).floating) {
      fail(MOE_ERR_FORMAT, "tensor %.200s: expected F32, BF16 or F16, file has %s", name.c_str(),
           source_type_info(found->type).name);
    }
    std::vector<float> scales(static_cast<size_t>(found->n_elements));
    c_->read(*found, 0, scales.size(), scales.data());
    for (float& scale : scales) {
      if (!std::isfinite(scale) || scale <= 0) {
        fail(MOE_ERR_NON_FINITE, "tensor %.200s: expected a finite number above 0, found %g",
             name.c_str(), static_cast<double>(scale));
      }
      if (!automatic_) scale = 1 / scale;
    }
    return scales;
  }

  Checkpoint* c_;
  const std::string says_;
  const bool automatic_;  // autobitlinear multiplies by its scale, bitlinear divides
  const int64_t n_experts_;
};

// A name of modules_to_not_convert is the start of a module's name up to a dot, a regular
// expression of one, or its end. Of regular expressions only ".*" is read.
class Kept {
 public:
  explicit Kept(const JsonNode& quantization) {
    if (!quantization.has("modules_to_not_convert")) return;
    for (const JsonNode& node : quantization.at("modules_to_not_convert").elements()) {
      const std::string name = node.string();
      std::string pattern;
      for (size_t i = 0; i < name.size(); ++i) {
        const bool any = name.compare(i, 2, ".*") == 0;
        if (name.compare(i, 2, "\\.") == 0 || any) ++i;
        pattern += any ? '*' : name[i];
      }
      if (pattern.find_first_of("\\[](){}|+?^$") != std::string::npos) {
        fail_value(node, "names and .* are");
      }
      names_.push_back({name, pattern});
    }
  }

  bool contains(const std::string& module) const {
    return std::any_of(names_.begin(), names_.end(), [&](const auto& kept) {
      if (module.ends_with(kept.first)) return true;
      for (size_t end = 0; end <= module.size(); ++end) {
        const bool boundary =
            end == module.size() || module[end] == '.' || (end > 0 && module[end - 1] == '.');
        if (boundary && matches(kept.second, module.substr(0, end))) return true;
      }
      return false;
    });
  }

 private:
  std::vector<std::pair<std::string, std::string>> names_;
};

// The plan rounds only those that are linear layers.
void mark_online(Checkpoint* checkpoint, const JsonNode& quantization) {
  const Kept kept(quantization);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    const bool matrix = tensor.shape.size() == 2 && source_type_info(tensor.type).floating;
    if (!matrix || !name.ends_with(kWeight) || tensor.bit_linear != BitLinear::kNo) continue;
    if (!kept.contains(head(name, kWeight))) names.push_back(name);
  }
  for (const std::string& name : names) checkpoint->set_rounded(name);
}

// The norms in front of matrices have the model's eps.
void check_eps(const Checkpoint& checkpoint, const JsonNode& quantization) {
  const Json document = checkpoint.document("config.json");
  const JsonNode config(document, "config.json");
  const double eps = quantization.has("rms_norm_eps") ? quantization.at("rms_norm_eps").number()
                                                      : 1e-6;  // the default of transformers
  if (!config.has("rms_norm_eps")) return;                     // the importer asks for it
  const double own = config.at("rms_norm_eps").number();
  if (static_cast<float>(own) == static_cast<float>(eps)) return;
  fail(MOE_ERR_UNSUPPORTED,
       "%s: use_rms_norm: the norms before matrices have an eps of %g (rms_norm_eps), but only the "
       "model's rms_norm_eps, %g, is supported there",
       quantization.path().c_str(), eps, own);
}

}  // namespace

void round_normed(Checkpoint* checkpoint) {
  constexpr std::string_view kNorm = "_proj.norm.weight";
  std::vector<std::string> names;
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    if (!name.ends_with(kNorm)) continue;
    const std::string matrix = head(name, ".norm.weight") + std::string(kWeight);
    const SourceTensor* const found = checkpoint->find(matrix);
    if (found == nullptr || found->shape.size() != 2) continue;
    if (found->bit_linear == BitLinear::kNo) names.push_back(matrix);
  }
  for (const std::string& name : names) checkpoint->set_rounded(name);
}

void unpack_bitnet(Checkpoint* checkpoint, const JsonNode& quantization) {
  if (quantization.boolean("use_rms_norm", false)) check_eps(*checkpoint, quantization);
  const bool online = quantization.choice("quantization_mode", 0, {"offline", "online"}) == 1;
  if (online) return mark_online(checkpoint, quantization);
  Offline(checkpoint, quantization).run();
}

void unpack_i2_s(Checkpoint* checkpoint, bool arm) {
  const int64_t block = arm ? 64 : 128;
  std::vector<SourceTensor> found;
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    if (tensor.type == SourceType::kI2S) found.push_back(tensor);
  }
  for (const SourceTensor& tensor : found) {
    const int64_t cols = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (cols % block != 0) {
      fail(MOE_ERR_SHAPE,
           "tensor %.100s: rows of %lld are not a multiple of I2_S's blocks of %lld%s",
           tensor.name.c_str(), static_cast<long long>(cols), static_cast<long long>(block),
           arm ? "" : "; those of bitnet.cpp on ARM have 64 (--i2s-arm)");
    }
    auto rows = std::make_unique<I2sRows>();
    rows->tensor = tensor;
    rows->block = block;
    SourceTensor whole = tensor;
    whole.type = SourceType::kCodes2;
    whole.bit_linear = BitLinear::kTernary;
    checkpoint->put_packed(std::move(whole), std::move(rows), std::span(&tensor.name, 1));
  }
}

}  // namespace moe
