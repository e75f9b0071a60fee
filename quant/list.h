// SPDX-License-Identifier: MIT
// Every weight format, one per line: its name in code, and the file with NameFormat
// (quant/weight_format.h). Included wherever something is generated for each, hence no include
// guard; CMake generates quant/all.h, which includes the files, from it.
MOE_WEIGHT_FORMAT(Ternary2, "quant/ternary2.h")
MOE_WEIGHT_FORMAT(Ternary3, "quant/ternary3.h")
MOE_WEIGHT_FORMAT(Int8, "quant/int8.h")
MOE_WEIGHT_FORMAT(F32, "quant/floats.h")
MOE_WEIGHT_FORMAT(Bf16, "quant/floats.h")
MOE_WEIGHT_FORMAT(F16, "quant/floats.h")
MOE_WEIGHT_FORMAT(I32, "quant/floats.h")
MOE_WEIGHT_FORMAT(Int4, "quant/four_bit.h")
MOE_WEIGHT_FORMAT(Int4Min, "quant/four_bit.h")
MOE_WEIGHT_FORMAT(Int4K, "quant/four_bit.h")
MOE_WEIGHT_FORMAT(Fp4, "quant/four_bit.h")
MOE_WEIGHT_FORMAT(Nl4, "quant/four_bit.h")
MOE_WEIGHT_FORMAT(Nf4, "quant/four_bit.h")
MOE_WEIGHT_FORMAT(Int6K, "quant/int6_k.h")
MOE_WEIGHT_FORMAT(Int8Group, "quant/int8_group.h")
MOE_WEIGHT_FORMAT(Int2K, "quant/few_bits.h")
MOE_WEIGHT_FORMAT(Int3K, "quant/few_bits.h")
