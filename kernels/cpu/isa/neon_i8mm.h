// SPDX-License-Identifier: MIT
#pragma once
// Products of codes with the matrix instructions, for the table in
// kernels/cpu/isa/neon_dotprod.cpp, whose layout of activation codes it shares.

#include "kernels/cpu/table.h"

namespace moe {

void linear_neon_i8mm(const LinearArgs& args);

}  // namespace moe
