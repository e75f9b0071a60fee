// SPDX-License-Identifier: MIT
// Looks for ternary values and for codes of the checkpoint, then settles format, scale kind and
// scales.
#include "src/convert/weights/storage.h"

#include <algorithm>
#include <limits>

#include "formats/import/failure.h"
#include "quant/formats.h"
#include "quant/half.h"
#include "quant/quantise.h"
#include "src/convert/weights/eight_bits.h"
#include "src/convert/weights/in_order.h"
#include "src/convert/weights/row_reader.h"
#include "src/convert/weights/source_scales.h"
#include "src/convert/weights/weighted.h"

namespace moe {
namespace {

// int8 stands for eight_bits(), unless the matrix is ternary or has codes.
FormatId default_format(const PlannedMatrix& m) {
  return m.slot.kind == SlotKind::kExact ? own_format(m.tensor->type) : FormatId::kInt8;
}

// Calls look() for each row in order, until it returns false; other threads read ahead. False if it
// did.
bool each_row(const PlannedMatrix& m, const Checkpoint& checkpoint, ThreadPool& pool,
              const std::function<bool(int32_t, const float*)>& look,
              const std::function<void()>& tick) {
  const int32_t per_part = rows_per_part(m.slot.cols);
  const auto cols = static_cast<size_t>(m.slot.cols);
  const auto rows_of = [&](int64_t part) {
    return std::min<int64_t>(per_part, m.slot.rows - part * per_part);
  };
  MatrixReaders readers(checkpoint, *m.tensor, m.source, m.slot.rows, m.slot.cols, pool);
  std::vector<std::vector<float>> parts(slots_of(pool));
  bool wanted = true;
  InOrder work;
  work.n = (m.slot.rows + per_part - 1) / per_part;
  work.alone = !readers.together();
  work.make = [&](int worker, int64_t part, size_t at) {
    parts[at].clear();
    for (int64_t i = 0; i < rows_of(part); ++i) {
      const float* row = readers.of(worker).row(static_cast<int32_t>(part * per_part + i));
      parts[at].insert(parts[at].end(), row, row + cols);
    }
  };
  work.use = [&](int64_t part, size_t at) {
    for (int64_t i = 0; i < rows_of(part) && wanted; ++i) {
      wanted = look(static_cast<int32_t>(part * per_part + i),
                    parts[at].data() + static_cast<size_t>(i) * cols);
    }
    return wanted;
  };
  work.tell = [&](int64_t) { tick(); };
  run_in_order(pool, work);
  return wanted;
}

// In one pass: is it ternary and, if it must be made so (`lossy`), what is its absmean?
void look_for_ternary(const PlannedMatrix& m, const Checkpoint& checkpoint, bool lossy,
                      const float* importance, ThreadPool& pool, const std::function<void()>& tick,
                      Storage* out) {
  const int32_t cols = m.slot.cols;
  TernaryDetector detector(cols);
  AbsMean mean;
  std::optional<TernaryScale> scale;
  if (lossy && importance != nullptr) scale.emplace();
  const auto look = [&](int32_t r, const float* row) {
    check_finite(m, r, row);
    detector.add_row(row);
    if (!lossy) return detector.possible();
    check(mean.add(row, cols));
    if (scale) scale->add(row, importance, cols);
    return true;
  };
  if (!lossy && rows_are_together(*m.tensor, m.source)) {  // the first row of most decides
    RowReader first(checkpoint, *m.tensor, m.source, 1, cols);
    tick();
    if (!look(0, first.row(0))) return;
  }
  if (!each_row(m, checkpoint, pool, look, tick)) return;
  out->fit = detector.fit();
  if (lossy) out->absmean = take(mean.scale());
  if (scale) out->absmean = scale->best(out->absmean);
}

// True if the checkpoint's codes may determine the format: none was requested, or the codes have
// six or eight bits and the requested format of at most five is only for codes of its own.
bool is_open_to(FormatId own, const PrecisionChoice& choice) {
  const bool precise = has_eight_bits(own) || own == FormatId::kInt6K;
  if (precise && own != FormatId::kInt8 && choice.int8_by_row) return false;
  return !choice.weights || (choice.only_codes && precise);
}

// Keeps the checkpoint's codes if no format or that of the codes was requested.
void keep_codes(const PlannedMatrix& m, const Checkpoint& checkpoint,
                const std::function<void()>& tick, Storage* out) {
  const bool vocabulary = m.slot.kind == SlotKind::kVocab;
  if (!vocabulary && m.slot.kind != SlotKind::kLinear) return;
  const std::optional<FormatId> own = format_of_codes(m, checkpoint);
  const bool ternary = format_info(out->format).ternary();
  const bool eight = own && has_eight_bits(*own);
  const bool asked = own && own == m.precision.weights;
  const auto scales_fit = [&] {
    return format_info(*own).only_blocks() || SourceScales(m, *own, checkpoint).fit(tick);
  };
  const bool fits = (asked && !eight) ||
                    (own && (asked || (is_open_to(*own, m.precision) && !ternary)) && scales_fit());
  if (fits) {
    out->format = *own;
    out->own_codes = true;
  }
}

bool are_ternary(const PlannedMatrix& m, const Checkpoint& checkpoint) {
  const PackedRows* rows = checkpoint.packed(*m.tensor);
  if (rows != nullptr) return rows->codes(checkpoint) == PackedCodes::kTernary;
  switch (m.tensor->type) {
    case SourceType::kTq1_0:
    case SourceType::kTq2_0:
    case SourceType::kQ2_0:
    case SourceType::kQ2_0Group128:
    case SourceType::kPq2_0:
    case SourceType::kPtq1_0:
    case SourceType::kQ1_0:
      return true;
    default:
      return false;
  }
}

// The format that a matrix of codes would keep them in if nothing had been requested. Does not look
// whether the scales fit: that would read the matrix once more.
std::optional<FormatId> find_kept(const PlannedMatrix& m, const Checkpoint& checkpoint,
                                  const Storage& stored) {
  const bool linear = m.slot.kind == SlotKind::kLinear;
  const bool requested = m.precision.weights || m.precision.int8_by_row;
  if (!requested || stored.own_codes || format_info(stored.format).ternary()) return {};
  if (!linear && m.slot.kind != SlotKind::kVocab) return {};
  PlannedMatrix plain = m;
  plain.precision = {};
  if (are_ternary(plain, checkpoint)) {
    return linear ? std::optional(FormatId::kTernary2) : std::nullopt;
  }
  std::optional<FormatId> own = format_of_codes(plain, checkpoint);
  const SourceType type = m.tensor->type;
  if (type == SourceType::kQ8_0 || type == SourceType::kQ5_0) own = FormatId::kInt8Group;
  return own == stored.format ? std::nullopt : own;
}

ActPrecision activations_of(const PlannedMatrix& m, FormatId stored) {
  const ActPrecision act = m.precision.activations_for(stored);
  const WeightFormat& format = format_info(stored);
  if (const char* others = activations_instead(format, act); others != nullptr) {
    fail(MOE_ERR_UNSUPPORTED, "%s: weight format %s needs %s activations",
         m.slot.short_name().c_str(), format.name, others);
  }
  return act;
}

}  // namespace

Storage choose_storage(const PlannedMatrix& m, const Checkpoint& checkpoint,
                       const float* importance, ThreadPool& pool,
                       const std::function<void()>& tick) {
  const std::optional<FormatId> wish = m.precision.weights;
  Storage out;
  if (m.precision.as_source) {
    out.format = own_format(m.tensor->type);
    return out;
  }
  const bool by_default = m.precision.by_default();
  out.format = by_default ? default_format(m) : *wish;
  const bool automatic = !wish && m.slot.kind == SlotKind::kLinear;
  if (automatic || format_info(out.format).ternary()) {
    look_for_ternary(m, checkpoint, !automatic, importance, pool, tick, &out);
    const bool lossless = out.fit.scale_kind != ScaleKind::kNone;
    if (lossless) {
      out.scale = out.fit.scale_kind;
      out.group = out.fit.group;
      if (automatic || !format_info(out.format).can_have(out.scale)) {
        out.format = FormatId::kTernary2;
      }
    } else if (!automatic) {
      out.scale = ScaleKind::kTensor;
    }
  }
  keep_codes(m, checkpoint, tick, &out);
  if (by_default && out.format == FormatId::kInt8 && !out.own_codes) {
    out.format = eight_bits(m, checkpoint, pool, tick);
  }
  if (format_info(out.format).quantise_row != nullptr) out.scale = ScaleKind::kRow;
  if (format_info(out.format).group != 0) {
    out.scale = ScaleKind::kGroup;
    out.group = format_info(out.format).group;
  }
  out.act = activations_of(m, out.format);
  out.kept = find_kept(m, checkpoint, out);
  return out;
}

FormatId own_format(SourceType type) {
  if (type == SourceType::kBf16) return FormatId::kBf16;
  return type == SourceType::kF16 ? FormatId::kF16 : FormatId::kF32;
}

Storage storage_of_codes(FormatId format) {
  const WeightFormat& info = format_info(format);
  Storage out;
  out.format = format;
  out.group = info.group;
  out.scale = info.ternary()    ? ScaleKind::kTensor
              : info.group != 0 ? ScaleKind::kGroup
                                : ScaleKind::kRow;
  return out;
}

bool can_calibrate(const PlannedMatrix& m, const Storage& storage) {
  const bool product = m.slot.kind == SlotKind::kLinear || m.slot.kind == SlotKind::kVocab;
  return product && format_info(storage.format).integer && !storage.own_codes &&
         storage.fit.scale_kind == ScaleKind::kNone;
}

uint32_t largest_magnitude(const float* values, int32_t n) {
  constexpr uint32_t kMagnitude = 0x7FFFFFFFu;
  constexpr int32_t kChunk = 64;  // a loop of this length is vectorised
  int32_t largest[kChunk] = {};
  const auto see = [&](int32_t i, int32_t j) {
    const auto bits = static_cast<int32_t>(f32_to_bits(values[i]) & kMagnitude);
    largest[j] = largest[j] < bits ? bits : largest[j];
  };
  int32_t i = 0;
  for (; i + kChunk <= n; i += kChunk) {
    for (int32_t j = 0; j < kChunk; ++j) see(i + j, j);
  }
  for (; i < n; ++i) see(i, 0);
  return static_cast<uint32_t>(*std::max_element(largest, largest + kChunk));
}

void check_finite(const PlannedMatrix& m, int32_t row, const float* values) {
  const uint32_t finite = f32_to_bits(std::numeric_limits<float>::max());
  if (largest_magnitude(values, m.slot.cols) <= finite) return;
  int32_t c = 0;
  while (largest_magnitude(values + c, 1) <= finite) ++c;
  fail(MOE_ERR_NON_FINITE, "tensor %.200s: element (%d, %d) of %s is %s", m.tensor->name.c_str(),
       row, c, m.slot.short_name().c_str(), values[c] != values[c] ? "NaN" : "infinite");
}

BlobMatrix blob_matrix(const Slot& slot, const Storage& storage) {
  BlobMatrix m;
  m.role = slot.role;
  m.sublayer = slot.sublayer;
  m.format = storage.format;
  m.scale = storage.scale;
  m.act = storage.act;
  m.group = storage.group;
  m.rows = slot.rows;
  m.cols = slot.cols;
  m.rotated = slot.rotated;
  return m;
}

}  // namespace moe
