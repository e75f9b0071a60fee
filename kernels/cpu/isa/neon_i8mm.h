#pragma once
// Products of codes by the matrix instructions, for the table of kernels/cpu/isa/neon_dotprod.cpp:
// it shares the layout of activation codes.

#include "kernels/cpu/table.h"

namespace moe {

void linear_neon_i8mm(const LinearArgs& args);

}  // namespace moe
