#pragma once
// Products with many rows on AMX's tiles; with few rows they are those of AVX-512. Both functions
// are for the table of kernels/cpu/isa/avx512vnni.cpp, and share a layout of activation codes.

#include "kernels/cpu/table.h"

namespace moe {

void quantise_rows_amx(const LinearInput& input, int32_t begin, int32_t end);
void linear_amx(const LinearArgs& args);

}  // namespace moe
