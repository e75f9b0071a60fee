// SPDX-License-Identifier: MIT
// Finds the row for each slot, fills layer and expert into its name, and says which part of the
// tensor is meant.
#include "src/convert/arch/tensor_table.h"

#include <algorithm>

#include "formats/import/failure.h"

namespace moe {
namespace {

void replace(std::string* text, const char* what, const std::string& by) {
  const size_t at = text->find(what);
  if (at != std::string::npos) text->replace(at, std::string_view(what).size(), by);
}

// "layers.3.moe.experts.7.gate.weight" has the row "moe.experts.gate.weight".
std::string row_key(const SlotGroup& group, const Slot& slot) {
  std::string key = slot.name;
  if (group.layer >= 0) replace(&key, ("layers." + std::to_string(group.layer) + ".").c_str(), "");
  if (group.expert >= 0) {
    replace(&key, ("experts." + std::to_string(group.expert) + ".").c_str(), "experts.");
  }
  return key;
}

Source place_source(const Place& place, int32_t n_experts, int32_t expert, const Slot& slot) {
  Source source;
  source.required = true;
  if (place.taps > 0) {
    source.shape = {slot.rows / place.taps, 1, place.taps};
    source.row_stride = 1;
    return source;
  }
  if (place.col_parts > 1) {
    const int64_t all = int64_t{slot.cols} * place.col_parts;
    source.shape = {slot.rows, all};
    source.row_stride = all;
    source.offset = int64_t{slot.cols} * place.col_part;
    return source;
  }
  const bool whole = place.parts == 1 && place.skipped == 0 && place.behind == 0;
  const bool plain = !place.stacked && !place.transposed && whole;
  if (plain && place.packing == Packing::kNone) return source;
  const int64_t rows = slot.rows, cols = slot.cols;
  const int64_t all_rows = rows * place.parts + place.skipped + place.behind;
  if (place.stacked) {
    source.shape.push_back(n_experts);
    source.offset = expert * all_rows * cols;
  }
  const int64_t step = place.interleaved ? place.parts : 1;
  const int64_t first = place.skipped + (place.interleaved ? place.part : place.part * rows);
  if (place.transposed) {
    source.shape.insert(source.shape.end(), {cols, all_rows});
    source.row_stride = step;
    source.col_stride = all_rows;
    source.offset += first;
  } else {
    source.shape.push_back(all_rows);
    if (slot.kind != SlotKind::kVector) source.shape.push_back(cols);
    source.row_stride = step * cols;
    source.offset += first * cols;
  }
  return source;
}

// There is another tensor of its module: of "mlp" for "mlp.up_proj.weight".
bool has_neighbour(const Checkpoint& checkpoint, std::string_view name) {
  for (const std::string_view end : {".weight", ".bias"}) {
    if (name.ends_with(end)) name.remove_suffix(end.size());
  }
  const std::string module(name.substr(0, name.rfind('.') + 1));
  const auto found = checkpoint.tensors().lower_bound(module);
  return found != checkpoint.tensors().end() && found->first.starts_with(module);
}

}  // namespace

void TensorTable::add(std::span<const TensorName> names) {
  for (const TensorName& row : names) rows_[row.slot].push_back(row);
}

std::string TensorTable::tensor_name(const TensorName& row, const SlotGroup& group) const {
  const bool whole = group.layer < 0 || group.part == Part::kPrediction;
  std::string name = whole ? row.tensor : layer_prefix_ + row.tensor;
  replace(&name, "{l}", std::to_string(group.layer - first_layer_));
  replace(&name, "{e}", std::to_string(group.expert));
  return name;
}

bool TensorTable::is_in_any_layer(const Checkpoint& checkpoint, const TensorName& row) const {
  std::string pattern = layer_prefix_ + row.tensor;
  replace(&pattern, "{l}", "*");
  replace(&pattern, "{e}", "*");
  return std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                     [&](const auto& entry) { return matches(pattern, entry.first); });
}

const TensorName& TensorTable::row_of(const Checkpoint& checkpoint, const SlotGroup& group,
                                      const std::vector<TensorName>& rows) const {
  if (rows.size() == 1) return rows[0];
  for (const TensorName& row : rows) {
    if (checkpoint.find(tensor_name(row, group)) != nullptr) return row;
  }
  // An error then says the name that the tensor has elsewhere in the file.
  for (const TensorName& row : rows) {
    if (group.layer >= 0 && is_in_any_layer(checkpoint, row)) return row;
  }
  // GGUF files have their own names, which are not those of the modules.
  const bool modules = group.layer >= 0 && checkpoint.metadata().is_null();
  for (const TensorName& row : rows) {
    if (modules && has_neighbour(checkpoint, tensor_name(row, group))) return row;
  }
  return rows[0];
}

Source TensorTable::locate(const Checkpoint& checkpoint, int32_t n_experts, const SlotGroup& group,
                           const Slot& slot) const {
  const auto found = rows_.find(row_key(group, slot));
  if (found == rows_.end()) {
    if (!slot.optional) fail(MOE_ERR_INTERNAL, "no tensor name for %s", slot.name.c_str());
    return {};
  }
  const TensorName& row = row_of(checkpoint, group, found->second);
  Source source = place_source(row.place, n_experts, group.expert, slot);
  source.tensor = tensor_name(row, group);
  if (row.place.taps > 0) {  // GGUF files have no axis of one channel
    const SourceTensor* const tensor = checkpoint.find(source.tensor);
    if (tensor != nullptr && tensor->shape.size() == 2)
      source.shape.erase(source.shape.begin() + 1);
  }
  source.packing = row.place.packing;
  if (source.packing == Packing::kMxfp4) {
    source.shape.back() /= 32;
    source.shape.push_back(16);
    source.scales = source.tensor;
    replace(&source.scales, "_blocks", "_scales");
  }
  return source;
}

void locate_by(TensorTable table, const Checkpoint& checkpoint, Imported* out) {
  std::vector<int32_t> n_experts;
  for (const LayerConfig& layer : out->config.layers) n_experts.push_back(layer.ffn.moe.n_experts);
  out->locate = [table = std::move(table), n_experts = std::move(n_experts), &checkpoint](
                    const SlotGroup& group, const Slot& slot) {
    const size_t l = group.layer < 0 ? 0 : static_cast<size_t>(group.layer);
    return table.locate(checkpoint, n_experts[l], group, slot);
  };
}

void locate_by(TensorTable encoder, TensorTable decoder, const Checkpoint& checkpoint,
               Imported* out) {
  const int32_t n_encoder = out->config.n_encoder_layers;
  locate_by(std::move(encoder), checkpoint, out);
  auto encoders = std::move(out->locate);
  locate_by(std::move(decoder), checkpoint, out);
  out->locate = [encoders, decoders = std::move(out->locate), n_encoder](const SlotGroup& group,
                                                                         const Slot& slot) {
    return group.layer < n_encoder ? encoders(group, slot) : decoders(group, slot);
  };
}

}  // namespace moe
