// SPDX-License-Identifier: MIT
// Matches slots with tensors, checks shapes and types, chooses formats, and reports tensors that
// nobody wants.
#include "src/convert/plan.h"

#include <algorithm>
#include <set>

#include "formats/import/failure.h"
#include "src/convert/rotation.h"
#include "src/convert/weights/row_reader.h"
#include "src/convert/weights/unpack.h"

namespace moe {
namespace {

void check_type(const Slot& slot, const Source& source, const SourceTensor& tensor) {
  const SourceTypeInfo& info = source_type_info(tensor.type);
  if (source.packing != Packing::kNone) {
    if (tensor.type == SourceType::kU8) return;
    fail(MOE_ERR_FORMAT, "tensor %.200s: expected U8, file has %s", tensor.name.c_str(), info.name);
  }
  const bool table = slot.kind == SlotKind::kTable;
  const bool integer = tensor.type == SourceType::kI32 || tensor.type == SourceType::kI64;
  if (table ? integer : info.floating) return;
  fail(MOE_ERR_FORMAT, "tensor %.200s: expected %s, file has %s", tensor.name.c_str(),
       table ? "I32 or I64" : "F32, BF16 or F16", info.name);
}

uint64_t n_weights(const Slot& slot) {
  return static_cast<uint64_t>(slot.rows) * static_cast<uint64_t>(slot.cols);
}

// Quantised checkpoints may have a zero bias that the architecture does not know.
bool no_bias(const Checkpoint& checkpoint, const SourceTensor& tensor) {
  constexpr std::string_view kEnd = ".bias";
  if (!tensor.name.ends_with(kEnd) || !source_type_info(tensor.type).floating) return false;
  const std::string name = tensor.name.substr(0, tensor.name.size() - kEnd.size());
  const SourceTensor* weight = checkpoint.find(name + ".weight");
  if (weight == nullptr || checkpoint.packed(*weight) == nullptr) return false;
  if (tensor.shape.size() != 1 || tensor.shape[0] != weight->shape[0]) return false;
  std::vector<float> values(static_cast<size_t>(tensor.n_elements));
  checkpoint.read(tensor, 0, values.size(), values.data());
  return std::all_of(values.begin(), values.end(), [](float v) { return v == 0.0f; });
}

// Tensors of the checkpoint that were not used.
void check_extra(const Imported& imported, const Checkpoint& checkpoint,
                 const std::set<const SourceTensor*>& used) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (used.contains(&tensor)) continue;
    bool ignored = no_bias(checkpoint, tensor);
    for (const std::string& pattern : imported.ignored) ignored |= matches(pattern, name);
    if (!ignored) {
      fail(MOE_ERR_FORMAT, "tensor %.200s: config.json describes no such tensor", name.c_str());
    }
  }
}

}  // namespace

uint64_t PlannedMatrix::source_bytes(uint64_t n_weights) const {
  return moe::source_bytes(tensor->type, n_weights / weights_per_element(source.packing));
}

uint64_t PlannedMatrix::file_bytes() const {
  const uint64_t n = n_weights(slot);
  if (tensor->part_bytes == 0) {
    const uint64_t scales = source.packing == Packing::kMxfp4 ? n / 32 : 0;
    return source_bytes(n) + scales;
  }
  const double share = static_cast<double>(n) / static_cast<double>(tensor->n_elements);
  return static_cast<uint64_t>(static_cast<double>(tensor->part_bytes) * share);
}

Plan make_plan(const Imported& imported, const Checkpoint& checkpoint, PrecisionPolicy* policy) {
  Plan plan;
  std::set<const SourceTensor*> used;
  for (SlotGroup& group : list_slots(imported.config, imported.cosine_widths)) {
    PlannedSegment segment{group.part, group.layer, group.expert, {}};
    for (Slot& slot : group.slots) {
      PlannedMatrix matrix;
      matrix.source = imported.locate(group, slot);
      if (matrix.source.tensor.empty()) continue;
      matrix.tensor = checkpoint.find(matrix.source.tensor);
      if (matrix.tensor == nullptr) {
        if (slot.optional && !matrix.source.required) continue;
        const bool guesses = group.layer >= imported.config.n_main_layers();
        fail(MOE_ERR_NOT_FOUND, "tensor %.200s is missing%s", matrix.source.tensor.c_str(),
             guesses ? "; --no-mtp (no_predictions) leaves out the layer that needs it" : "");
      }
      check_source(*matrix.tensor, matrix.source, slot.rows, slot.cols);
      check_type(slot, matrix.source, *matrix.tensor);
      used.insert(matrix.tensor);
      if (matrix.source.packing != Packing::kNone) {
        used.insert(&find_scales(checkpoint, *matrix.tensor, matrix.source));
      }
      matrix.precision = policy->choose(slot, matrix.tensor->bit_linear, group.layer);
      matrix.slot = std::move(slot);
      matrix.slot.rotated = matrix.tensor->rotated;
      plan.source_bytes += matrix.source_bytes(n_weights(matrix.slot));
      segment.matrices.push_back(std::move(matrix));
    }
    check_rotated(imported.config, segment);
    if (!segment.matrices.empty()) plan.segments.push_back(std::move(segment));
  }
  check_extra(imported, checkpoint, used);
  policy->check_all_used();
  return plan;
}

}  // namespace moe
