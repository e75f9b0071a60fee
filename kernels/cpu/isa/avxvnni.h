#pragma once
// Products of codes by AVX-VNNI, for the table of kernels/cpu/isa/avx2.cpp: it shares the layout of
// activation codes.

#include "kernels/cpu/table.h"

namespace moe {

void linear_avxvnni(const LinearArgs& args);

}  // namespace moe
