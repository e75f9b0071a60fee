// SPDX-License-Identifier: MIT
// Writes the report as JSON, with its members in order.
#include "src/convert/report.h"

#include "formats/import/json_value.h"
#include "formats/moe/names.h"
#include "quant/formats.h"

namespace moe {
namespace {

// A list, because an object would not preserve the order.
using Members = std::vector<std::pair<const char*, Json>>;

std::string text_of(const Members& members) {
  std::string text;
  for (const auto& [name, value] : members) {
    text += text.empty() ? '{' : ',';
    text += Json(name).dump() + ":" + value.dump();
  }
  return text + "}";
}

Json json_of(const CalibrationReport& r) {
  return {{"tokens", r.n_tokens},
          {"perplexity", r.perplexity},
          {"passes", r.n_passes},
          {"weighted_matrices", r.n_matrices},
          {"compensated_matrices", r.n_compensated},
          {"layers_without_room", r.n_without_room},
          {"experts", r.n_experts},
          {"unreached_experts", r.n_unreached}};
}

Json json_of(const SizeReport& r) {
  Json j = {{"bits", r.bits}, {"expected_divergence", r.damage}};
  if (r.most_bytes != 0) j["most_bytes"] = r.most_bytes;
  if (r.most_bits != 0) j["most_bits"] = r.most_bits;
  return j;
}

Json json_of(const SplitReport& r) {
  return {{"experts", r.n_experts},     {"by", r.clusters ? "clusters" : "in-order"},
          {"layers", r.n_layers},       {"tokens", r.n_tokens},
          {"perplexity", r.perplexity}, {"passes", r.n_passes},
          {"explained", r.explained}};
}

}  // namespace

std::string to_json(const MatrixReport& r) {
  Members members = {{"matrix", r.name},
                     {"rows", r.rows},
                     {"cols", r.cols},
                     {"format", format_info(r.format).name},
                     {"scale", name_in(kScaleKinds, r.scale)},
                     {"group", r.group},
                     {"activations", name_in(kActPrecisions, r.act)},
                     {"lossless", r.lossless},
                     {"relative_error", r.relative_error},
                     {"max_error", r.max_error},
                     {"bytes", r.bytes},
                     {"source_type", r.source_type},
                     {"source_bytes", r.source_bytes}};
  if (r.zeros) members.emplace_back("zeros", true);
  if (r.own_rounding) members.emplace_back("own_rounding", true);
  if (r.kept) {
    members.emplace_back("kept_format", format_info(*r.kept).name);
    members.emplace_back("kept_bytes", r.kept_bytes);
  }
  if (r.expected_error) {
    members.emplace_back("expected_error", *r.expected_error);
    members.emplace_back("sensitivity", r.sensitivity);
  }
  if (r.weighted) {
    members.emplace_back("compensated", r.compensated);
    members.emplace_back("weighted_error", r.weighted_error);
    members.emplace_back("calibration_tokens", r.n_tokens);
  }
  return text_of(members);
}

std::string to_json(const ConvertReport& r) {
  Members members = {{"model", r.name},
                     {"importer", r.importer},
                     {"matrices", r.n_matrices},
                     {"lossless_matrices", r.n_lossless},
                     {"weights", r.n_weights},
                     {"source_bytes", r.source_bytes},
                     {"source_file_bytes", r.source_file_bytes},
                     {"weight_bytes", r.weight_bytes},
                     {"file_bytes", r.file_bytes},
                     {"largest_relative_error", r.largest_relative_error},
                     {"worst_matrix", r.worst_matrix},
                     {"verified", r.verified},
                     {"tokenizer", r.tokenizer},
                     {"ignored_keys", r.ignored_keys}};
  if (!r.dropped_tokens.empty()) members.emplace_back("dropped_tokens", r.dropped_tokens);
  if (!r.warnings.empty()) members.emplace_back("warnings", r.warnings);
  if (r.n_skipped_layers > 0) members.emplace_back("skipped_layers", r.n_skipped_layers);
  if (r.split) members.emplace_back("split", json_of(*r.split));
  if (r.calibration) members.emplace_back("calibration", json_of(*r.calibration));
  if (r.size) members.emplace_back("size", json_of(*r.size));
  return text_of(members);
}

}  // namespace moe
