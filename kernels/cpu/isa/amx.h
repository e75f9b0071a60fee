// SPDX-License-Identifier: MIT
#pragma once
// Matrix products with many rows on AMX tiles; with few rows AVX-512's. Both functions are for the
// table in kernels/cpu/isa/avx512vnni.cpp, and share a layout of activation codes.

#include "kernels/cpu/table.h"

namespace moe {

void quantise_rows_amx(const LinearInput& input, int32_t begin, int32_t end);
void linear_amx(const LinearArgs& args);

}  // namespace moe
