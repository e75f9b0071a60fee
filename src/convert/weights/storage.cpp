#include "src/convert/weights/storage.h"

#include "formats/import/failure.h"
#include "quant/formats.h"
#include "quant/half.h"
#include "quant/quantise.h"
#include "src/convert/weights/closer_int8.h"
#include "src/convert/weights/row_reader.h"
#include "src/convert/weights/source_scales.h"
#include "src/convert/weights/weighted.h"

namespace moe {
namespace {

constexpr int32_t kRowsPerTick = 64;

// The float format that represents a tensor's type.
FormatId own_format(SourceType type) {
  if (type == SourceType::kBf16) return FormatId::kBf16;
  return type == SourceType::kF16 ? FormatId::kF16 : FormatId::kF32;
}

FormatId default_format(const PlannedMatrix& m) {
  if (m.slot.kind == SlotKind::kExact) return own_format(m.tensor->type);
  return FormatId::kInt8;
}

// In one pass: is it ternary and, if it must be made so (`lossy`), what is its absmean?
void look_for_ternary(const PlannedMatrix& m, const Checkpoint& checkpoint, bool lossy,
                      const float* importance, const std::function<void()>& tick, Storage* out) {
  const int32_t cols = m.slot.cols;
  RowReader reader(checkpoint, *m.tensor, m.source, m.slot.rows, cols);
  TernaryDetector detector(cols);
  AbsMean mean;
  std::optional<TernaryScale> scale;
  if (lossy && importance != nullptr) scale.emplace();
  for (int32_t r = 0; r < m.slot.rows; ++r) {
    if (r % kRowsPerTick == 0) tick();
    const float* row = reader.row(r);
    check_finite(m, r, row);
    detector.add_row(row);
    if (lossy) {
      check(mean.add(row, cols));
      if (scale) scale->add(row, importance, cols);
    } else if (!detector.possible()) {
      return;
    }
  }
  out->fit = detector.fit();
  if (lossy) out->absmean = take(mean.scale());
  if (scale) out->absmean = scale->best(out->absmean);
}

// Blocks of two and three bits have scales per 16 inputs, which int4_min approximates.
bool has_few_bits(SourceType type) { return type == SourceType::kQ2K || type == SourceType::kQ3K; }

// True if the checkpoint's codes may determine the format: none was requested, or the codes have
// eight bits and the requested four-bit format has a fallback.
bool is_open_to(FormatId own, const PrecisionChoice& choice) {
  if (own == FormatId::kInt8Group && choice.int8_by_row) return false;
  return !choice.weights || (choice.otherwise && has_eight_bits(own));
}

// Keeps the checkpoint's codes if no format or that of the codes was requested. Without a request,
// blocks of three bits or fewer become int4_min.
void keep_codes(const PlannedMatrix& m, const Checkpoint& checkpoint,
                const std::function<void()>& tick, Storage* out) {
  const bool vocabulary = m.slot.kind == SlotKind::kVocab;
  if (!vocabulary && m.slot.kind != SlotKind::kLinear) return;
  const bool wished = m.precision.weights.has_value();
  const std::optional<FormatId> own = format_of_codes(m, checkpoint);
  const bool ternary = format_info(out->format).ternary();
  const bool eight = own && has_eight_bits(*own);
  const bool asked = own && own == m.precision.weights;
  const bool fits =
      (asked && !eight) || (own && (asked || (is_open_to(*own, m.precision) && !ternary)) &&
                            SourceScales(m, *own, checkpoint).fit(tick));
  if (fits) {
    out->format = *own;
    out->own_codes = true;
  } else if (!wished && !vocabulary && has_few_bits(m.tensor->type) && !ternary) {
    out->format = FormatId::kInt4Min;
  }
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
                       const float* importance, const std::function<void()>& tick) {
  const std::optional<FormatId> wish = m.precision.weights;
  Storage out;
  if (m.precision.as_source) {
    out.format = own_format(m.tensor->type);
    return out;
  }
  out.format = wish ? *wish : default_format(m);
  const bool automatic = !wish && m.slot.kind == SlotKind::kLinear;
  if (automatic || format_info(out.format).ternary()) {
    look_for_ternary(m, checkpoint, !automatic, importance, tick, &out);
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
  const bool otherwise = m.precision.otherwise && !out.own_codes;
  if (otherwise) out.format = *m.precision.otherwise;
  const bool open = !wish && !m.precision.int8_by_row;
  const bool chosen_anew = out.format == FormatId::kInt8 && !out.own_codes;
  if (open && chosen_anew && has_int8_codes(m, checkpoint)) {
    out.format = closer_int8(m, checkpoint, tick);
  }
  if (format_info(out.format).quantise_row != nullptr) out.scale = ScaleKind::kRow;
  if (format_info(out.format).group != 0) {
    out.scale = ScaleKind::kGroup;
    out.group = format_info(out.format).group;
  }
  out.act = activations_of(m, out.format);
  return out;
}

bool can_calibrate(const PlannedMatrix& m, const Storage& storage) {
  const bool product = m.slot.kind == SlotKind::kLinear || m.slot.kind == SlotKind::kVocab;
  return product && format_info(storage.format).integer && !storage.own_codes &&
         storage.fit.scale_kind == ScaleKind::kNone;
}

void check_finite(const PlannedMatrix& m, int32_t row, const float* values) {
  constexpr uint32_t kExponent = 0x7F800000u;
  constexpr int32_t kChunk = 64;  // a loop of this length is vectorised
  uint32_t infinite = 0;
  int32_t i = 0;
  for (; i + kChunk <= m.slot.cols; i += kChunk) {
    for (int32_t j = 0; j < kChunk; ++j) {
      infinite |= (f32_to_bits(values[i + j]) & kExponent) == kExponent ? 1u : 0u;
    }
  }
  for (; i < m.slot.cols; ++i)
    infinite |= (f32_to_bits(values[i]) & kExponent) == kExponent ? 1u : 0u;
  if (infinite == 0) return;
  int32_t c = 0;
  while ((f32_to_bits(values[c]) & kExponent) != kExponent) ++c;
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
  return m;
}

}  // namespace moe
