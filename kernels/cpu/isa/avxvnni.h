// SPDX-License-Identifier: MIT
#pragma once
// Products of codes with AVX-VNNI, for the table in kernels/cpu/isa/avx2.cpp, whose layout of
// activation codes it shares.

#include "kernels/cpu/table.h"

namespace moe {

void linear_avxvnni(const LinearArgs& args);

}  // namespace moe
