// Every weight format, one line each: its name in the code, and the file that holds NameFormat
// (quant/weight_format.h). Read wherever something is made for each of them, so without a guard;
// CMake makes quant/all.h, which includes the files, from it.
MOE_WEIGHT_FORMAT(Ternary2, "quant/ternary2.h")
MOE_WEIGHT_FORMAT(Ternary3, "quant/ternary3.h")
MOE_WEIGHT_FORMAT(Int8, "quant/int8.h")
MOE_WEIGHT_FORMAT(F32, "quant/floats.h")
MOE_WEIGHT_FORMAT(Bf16, "quant/floats.h")
MOE_WEIGHT_FORMAT(F16, "quant/floats.h")
MOE_WEIGHT_FORMAT(I32, "quant/floats.h")
MOE_WEIGHT_FORMAT(Int4, "quant/four_bit.h")
MOE_WEIGHT_FORMAT(Int4Min, "quant/four_bit.h")
MOE_WEIGHT_FORMAT(Fp4, "quant/four_bit.h")
MOE_WEIGHT_FORMAT(Nl4, "quant/four_bit.h")
MOE_WEIGHT_FORMAT(Nf4, "quant/four_bit.h")
MOE_WEIGHT_FORMAT(Int8Group, "quant/int8_group.h")
