// SPDX-License-Identifier: MIT
// Matrix products with many rows on AMX. Sums are exact, so the results equal those of every other
// instruction set.
#include "kernels/cpu/isa/amx.h"

#include "kernels/cpu/isa/avx512vnni.h"

namespace moe {

namespace {

// Each file requires those above it.
// clang-format off
#include "kernels/cpu/generic/kernels.inc"
#include "kernels/cpu/isa/amx_rows.inc"
#include "kernels/cpu/isa/amx_panels.inc"
#include "kernels/cpu/isa/amx_tiles.inc"
#include "kernels/cpu/isa/amx_groups.inc"
// clang-format on

void quantise_for_tiles(const LinearInput& in, int32_t begin, int32_t end) {
  for (int32_t row = begin; row < end; ++row) quantise_row(in, row, GroupedBy64(in, row));
}

void linear_on_tiles(const LinearArgs& a) {
  if (a.tile_begin >= a.tile_end) return;
  switch (a.weight->format) {
    case FormatId::kTernary2:
      return many_rows_on_tiles<Ternary2Panel>(a);
    case FormatId::kTernary3:
      return many_rows_on_tiles<Ternary3Panel>(a);
    case FormatId::kInt8:
      return many_rows_on_tiles<Int8Panel>(a);
    case FormatId::kInt4:
      return many_rows_in_groups(a, kGroupKind<Int4Layout>);
    case FormatId::kInt4Min:
    case FormatId::kInt4K:
      return many_rows_in_groups(a, kGroupKind<Int4MinLayout>);
    case FormatId::kFp4:
      return many_rows_in_groups(a, kGroupKind<Fp4Layout>);
    case FormatId::kNl4:
    case FormatId::kNf4:
      return many_rows_in_groups(a, kGroupKind<Nl4Layout>);
    case FormatId::kInt6K:
      return many_rows_in_groups(a, kGroupKind<Int6KLayout>);
    case FormatId::kInt2K:
      return many_rows_in_groups(a, kGroupKind<Int2KLayout>);
    case FormatId::kInt3K:
      return many_rows_in_groups(a, kGroupKind<Int3KLayout>);
    case FormatId::kTcq2:
    case FormatId::kTcq3:
      return many_rows_in_groups(a, kGroupKind<Tcq3Layout>);
    case FormatId::kInt8Group:
      return many_rows_in_groups(a, kGroupKind<Int8GroupLayout>);
    case FormatId::kIq2Xxs:
    case FormatId::kIq2Xs:
    case FormatId::kIq2S:
    case FormatId::kIq3Xxs:
    case FormatId::kIq3S:
    case FormatId::kIq1S:
    case FormatId::kIq1M:
      return many_rows_in_groups(a, a.weight->group == 16 ? kCodebookKind<16> : kCodebookKind<32>);
    default:  // no faster kernel
      return linear_any<GroupedBy64>(a);
  }
}

/// One layout of codes: its writer and its kernels.
struct CodeLayout {
  void (*quantise_rows)(const LinearInput& in, int32_t begin, int32_t end);
  void (*linear)(const LinearArgs& args);
};

/// AVX-512 is faster with few rows, and with a whole group of eight if weights come from memory:
/// AMX loads and decodes as much for eight rows as for sixteen.
CodeLayout layout_of(const LinearInput& in) {
  const bool on_tiles =
      in.n_rows > kFewRows && in.n_rows != Isa::kMaxTokens && in.act != ActPrecision::kF32;
  if (on_tiles) return {quantise_for_tiles, linear_on_tiles};
  return {kernels_avx512vnni.quantise_rows, kernels_avx512vnni.linear};
}

}  // namespace

void quantise_rows_amx(const LinearInput& in, int32_t begin, int32_t end) {
  layout_of(in).quantise_rows(in, begin, end);
}

void linear_amx(const LinearArgs& a) { layout_of(*a.input).linear(a); }

}  // namespace moe
