// SPDX-License-Identifier: MIT
// Compares each segment's matrices with tensors.h, and names the first that is missing, doubled,
// superfluous or of another shape.
#include "src/model/check.h"

#include "quant/formats.h"
#include "src/base/format.h"
#include "src/model/tensors.h"

namespace moe {
namespace {

constexpr int32_t kMaxDe = 65536;  // of cosine routers

// Compares the tensors of one part with a file's layout.
class PartCheck {
 public:
  PartCheck(const MoeFile& file, const ModelConfig& config, const Allocator& allocator)
      : file_(file), config_(config), specs_(allocator), seen_(allocator) {}

  Status begin(Part part, int32_t layer) {
    part_ = part;
    layer_ = layer;
    good_layout_ = -1;
    return part_tensors(config_, part, layer, &specs_);
  }
  Status check(int32_t expert);
  size_t n_found() const { return n_found_; }

 private:
  Status check_layout(const BlobLayout& layout);
  Status check_tensor(const BlobMatrix& m, const TensorSpec& spec);
  Status check_rotated(const BlobMatrix& m, const TensorSpec& spec);
  Status check_pairs(const BlobLayout& layout);
  const TensorSpec* find(const BlobMatrix& m) const;
  Status missing(const TensorSpec& spec) const;
  Status error(moe_status code, const BlobMatrix& m, const char* text) const {
    char name[kTensorNameBytes];
    return Status::error(code, "tensor %s: %s", tensor_name(part_, layer_, expert_, m, name), text);
  }

  const MoeFile& file_;
  const ModelConfig& config_;
  Part part_ = Part::kEmbedding;
  int32_t layer_ = -1;
  int32_t expert_ = -1;
  int64_t good_layout_ = -1;  // the last one that matched: experts share theirs
  int32_t d_e_ = 0;
  size_t n_found_ = 0;
  Array<TensorSpec> specs_;
  Array<uint8_t> seen_;  // by index of specs_
};

Status PartCheck::check(int32_t expert) {
  expert_ = expert;
  const FileSegment* segment = file_.find(part_, layer_, expert);
  if (segment == nullptr) {
    return missing(specs_[0]);  // every part has a required tensor
  }
  ++n_found_;
  if (good_layout_ == static_cast<int64_t>(segment->layout)) return {};
  MOE_TRY(check_layout(file_.layout(*segment)));
  good_layout_ = segment->layout;
  return {};
}

Status PartCheck::check_layout(const BlobLayout& layout) {
  seen_.clear();
  MOE_TRY(seen_.resize(specs_.size()));
  d_e_ = 0;
  for (const BlobMatrix& m : layout.matrices) {
    const TensorSpec* spec = find(m);
    if (spec == nullptr) return error(MOE_ERR_FORMAT, m, "the model has no such tensor");
    uint8_t& seen = seen_[static_cast<size_t>(spec - specs_.begin())];
    if (seen != 0) return error(MOE_ERR_FORMAT, m, "the file has it twice");
    seen = 1;
    MOE_TRY(check_tensor(m, *spec));
  }
  MOE_TRY(check_pairs(layout));
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].required() && seen_[i] == 0) return missing(specs_[i]);
  }
  return {};
}

const TensorSpec* PartCheck::find(const BlobMatrix& m) const {
  for (const TensorSpec& spec : specs_) {
    if (spec.role == m.role && spec.sublayer == m.sublayer) return &spec;
  }
  return nullptr;
}

Status PartCheck::check_tensor(const BlobMatrix& m, const TensorSpec& spec) {
  // The first tensor with d_e determines it.
  int32_t rows = spec.rows;
  int32_t cols = spec.cols;
  for (int32_t* n : {&rows, &cols}) {
    if (*n != 0) continue;
    if (d_e_ == 0) d_e_ = n == &rows ? m.rows : m.cols;
    *n = d_e_;
  }
  char text[160];
  if (d_e_ > kMaxDe) {
    format(text, sizeof text, "expected a width of at most %d, file has %d", kMaxDe, d_e_);
    return error(MOE_ERR_RANGE, m, text);
  }
  if (m.rows != rows || m.cols != cols) {
    format(text, sizeof text, "expected (%d, %d), file has (%d, %d)", rows, cols, m.rows, m.cols);
    return error(MOE_ERR_SHAPE, m, text);
  }
  const FormatId plain = spec.kind == TensorKind::kIds ? FormatId::kI32 : FormatId::kF32;
  const bool vector = !is_matrix(spec.kind);
  if (vector ? m.format != plain : m.format == FormatId::kI32) {
    format(text, sizeof text, "expected weight format %s, file has %s",
           vector ? format_info(plain).name : "of a matrix", format_info(m.format).name);
    return error(MOE_ERR_UNSUPPORTED, m, text);
  }
  if (m.rotated) MOE_TRY(check_rotated(m, spec));
  if (spec.kind == TensorKind::kF32Input && m.act != ActPrecision::kF32) {
    format(text, sizeof text, "expected f32 activations, file has %s",
           name_in(kActPrecisions, m.act));
    return error(MOE_ERR_UNSUPPORTED, m, text);
  }
  return {};
}

// Devices rotate what LinearOp and dense networks read, and look up rotated embeddings.
Status PartCheck::check_rotated(const BlobMatrix& m, const TensorSpec& spec) {
  bool known = false;
  switch (part_) {
    case Part::kEmbedding:
    case Part::kMixer:
    case Part::kFfn:
      known = true;
      break;
    case Part::kAttention:
      known = config_.layers[static_cast<size_t>(layer_)].attention.latent == 0;
      break;
    case Part::kHead:
      known = m.role == Role::kWeight && !config_.head.dense;
      break;
    default:
      break;
  }
  char text[160];
  if (!known || spec.kind != TensorKind::kMatrix) {
    return error(MOE_ERR_UNSUPPORTED, m, "rotated inputs are not supported here");
  }
  if (config_.rotation.takes(m.cols)) return {};
  format(text, sizeof text, "the file does not say how %d inputs are rotated", m.cols);
  return error(MOE_ERR_FORMAT, m, text);
}

// Matrices that share an input share its rotation.
Status PartCheck::check_pairs(const BlobLayout& layout) {
  const BlobMatrix* first = nullptr;
  for (const BlobMatrix& m : layout.matrices) {
    const bool shares = m.role == Role::kQ || m.role == Role::kK || m.role == Role::kV ||
                        m.role == Role::kGate || m.role == Role::kUp;
    if (!shares || (part_ != Part::kAttention && part_ != Part::kFfn)) continue;
    if (first == nullptr) first = &m;
    if (m.rotated == first->rotated) continue;
    return error(MOE_ERR_UNSUPPORTED, m,
                 "it reads the input of another matrix, but only one of them is rotated");
  }
  return {};
}

Status PartCheck::missing(const TensorSpec& spec) const {
  BlobMatrix m;
  m.role = spec.role;
  m.sublayer = spec.sublayer;
  return error(MOE_ERR_NOT_FOUND, m, "the file does not have it");
}

bool belongs(const ModelConfig& config, const FileSegment& s) {
  if (!has_part(config, s.part, s.layer)) return false;
  return s.part != Part::kExperts ||
         s.expert < config.layers[static_cast<size_t>(s.layer)].ffn.moe.n_experts;
}

}  // namespace

Status check_tensors(const MoeFile& file, const ModelConfig& config) {
  PartCheck check(file, config, config.layers.allocator());
  for (const Named<Part>& part : kParts) {
    const int32_t n = part_has_layer(part.value) ? config.n_layers() : 1;
    for (int32_t i = 0; i < n; ++i) {
      const int32_t layer = part_has_layer(part.value) ? i : -1;
      if (!has_part(config, part.value, layer)) continue;
      MOE_TRY(check.begin(part.value, layer));
      if (part.value != Part::kExperts) {
        MOE_TRY(check.check(-1));
        continue;
      }
      const int32_t n_experts = config.layers[static_cast<size_t>(layer)].ffn.moe.n_experts;
      for (int32_t e = 0; e < n_experts; ++e) MOE_TRY(check.check(e));
    }
  }
  if (check.n_found() == file.segments().size()) return {};
  for (const FileSegment& s : file.segments()) {
    if (belongs(config, s)) continue;
    char name[kTensorNameBytes];
    return Status::error(MOE_ERR_FORMAT, "segment %s: the model has no such part",
                         segment_name(s.part, s.layer, s.expert, name));
  }
  return {};
}

}  // namespace moe
