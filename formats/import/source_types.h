// SPDX-License-Identifier: MIT
// Every type of a tensor's elements in a checkpoint, one per line: its name in SourceType, then
// fields of SourceTypeInfo. MOE_GGUF_TYPE is a block type of GGUF, which gguf_blocks.cpp,
// gguf_k_blocks.cpp or gguf_codebooks.cpp decodes: read_NAME() is declared for each NAME here.
// MOE_GGUF_OTHER is the number of one that is refused by name. The including file defines the
// macros that it wants.

#ifndef MOE_SOURCE_TYPE
#define MOE_SOURCE_TYPE(type, ...)
#endif
#ifndef MOE_GGUF_TYPE
#define MOE_GGUF_TYPE(type, function, ...)
#endif
#ifndef MOE_GGUF_OTHER
#define MOE_GGUF_OTHER(number, type_name)
#endif

// clang-format off
MOE_SOURCE_TYPE(kBool, .name = "BOOL", .bytes = 1)
MOE_SOURCE_TYPE(kU8, .name = "U8", .bytes = 1)
MOE_SOURCE_TYPE(kI8, .name = "I8", .bytes = 1)
MOE_SOURCE_TYPE(kI16, .name = "I16", .bytes = 2)
MOE_SOURCE_TYPE(kU16, .name = "U16", .bytes = 2)
MOE_SOURCE_TYPE(kI32, .name = "I32", .bytes = 4, .gguf = 26)
MOE_SOURCE_TYPE(kU32, .name = "U32", .bytes = 4)
MOE_SOURCE_TYPE(kI64, .name = "I64", .bytes = 8)
MOE_SOURCE_TYPE(kU64, .name = "U64", .bytes = 8)
MOE_SOURCE_TYPE(kF16, .floating = true, .name = "F16", .bytes = 2, .gguf = 1)
MOE_SOURCE_TYPE(kBf16, .floating = true, .name = "BF16", .bytes = 2, .gguf = 30)
MOE_SOURCE_TYPE(kF32, .floating = true, .name = "F32", .bytes = 4, .gguf = 0)
MOE_SOURCE_TYPE(kF64, .floating = true, .name = "F64", .bytes = 8, .gguf = 28)
MOE_SOURCE_TYPE(kF8E4M3, .name = "F8_E4M3", .bytes = 1)
MOE_SOURCE_TYPE(kF8E5M2, .name = "F8_E5M2", .bytes = 1)
MOE_SOURCE_TYPE(kF8E8M0, .name = "F8_E8M0", .bytes = 1)

// Matrices stored in several tensors: codes with scales (Checkpoint::put_packed).
MOE_SOURCE_TYPE(kCodes4, .floating = true, .name = "codes of 4 bits", .bytes = 1, .block = 2)
MOE_SOURCE_TYPE(kCodes8, .floating = true, .name = "codes of 8 bits", .bytes = 1)
MOE_SOURCE_TYPE(kCodes2, .floating = true, .name = "ternary codes", .bytes = 1, .block = 4)

// GGUF blocks: numbers along a row share scales.
MOE_GGUF_TYPE(kQ8_0, q8_0, .name = "Q8_0", .bytes = 34, .gguf = 8, .block = 32)
MOE_GGUF_TYPE(kTq1_0, tq1_0, .name = "TQ1_0", .bytes = 54, .gguf = 34, .block = 256)
MOE_GGUF_TYPE(kTq2_0, tq2_0, .name = "TQ2_0", .bytes = 66, .gguf = 35, .block = 256)
MOE_GGUF_TYPE(kQ2_0, q2_0, .name = "Q2_0", .bytes = 18, .gguf = 42, .block = 64)
MOE_GGUF_TYPE(kQ1_0, q1_0, .name = "Q1_0", .bytes = 18, .gguf = 41, .block = 128)
// PrismML's llama.cpp has these two.
MOE_GGUF_TYPE(kPq2_0, q2_0_group128, .name = "PQ2_0", .bytes = 34, .gguf = 142, .block = 128)
MOE_GGUF_TYPE(kPtq1_0, ptq1_0, .name = "PTQ1_0", .bytes = 28, .gguf = 143, .block = 128)
// The exponent precedes its block.
MOE_GGUF_TYPE(kBlockMxfp4, mxfp4, .name = "MXFP4", .bytes = 17, .gguf = 39, .block = 32, .read_scales = scales_of_mxfp4)
// The same type number as kQ2_0, in files of its first users.
MOE_GGUF_TYPE(kQ2_0Group128, q2_0_group128, .name = "Q2_0", .bytes = 34, .block = 128)
MOE_GGUF_TYPE(kQ4_0, q4_0, .name = "Q4_0", .bytes = 18, .gguf = 2, .block = 32, .read_scales = scales_of_q4_0)
MOE_GGUF_TYPE(kQ4_1, q4_1, .name = "Q4_1", .bytes = 20, .gguf = 3, .block = 32, .read_scales = scales_of_q4_1)
MOE_GGUF_TYPE(kQ5_0, q5_0, .name = "Q5_0", .bytes = 22, .gguf = 6, .block = 32)
MOE_GGUF_TYPE(kQ5_1, q5_1, .name = "Q5_1", .bytes = 24, .gguf = 7, .block = 32)
MOE_GGUF_TYPE(kQ2K, q2_k, .name = "Q2_K", .bytes = 84, .gguf = 10, .block = 256, .read_scales = scales_of_q2_k)
MOE_GGUF_TYPE(kQ3K, q3_k, .name = "Q3_K", .bytes = 110, .gguf = 11, .block = 256, .read_scales = scales_of_q3_k)
MOE_GGUF_TYPE(kQ4K, q4_k, .name = "Q4_K", .bytes = 144, .gguf = 12, .block = 256, .read_scales = scales_of_q4_k)
MOE_GGUF_TYPE(kQ5K, q5_k, .name = "Q5_K", .bytes = 176, .gguf = 13, .block = 256)
MOE_GGUF_TYPE(kQ6K, q6_k, .name = "Q6_K", .bytes = 210, .gguf = 14, .block = 256, .read_scales = scales_of_q6_k)
MOE_GGUF_TYPE(kIq4Nl, iq4_nl, .name = "IQ4_NL", .bytes = 18, .gguf = 20, .block = 32, .read_scales = scales_of_iq4_nl)
MOE_GGUF_TYPE(kIq4Xs, iq4_xs, .name = "IQ4_XS", .bytes = 136, .gguf = 23, .block = 256, .read_scales = scales_of_iq4_xs)
// Codebooks: a weight format has the same blocks.
MOE_GGUF_TYPE(kIq2Xxs, iq2_xxs, .name = "IQ2_XXS", .bytes = 66, .gguf = 16, .block = 256)
MOE_GGUF_TYPE(kIq2Xs, iq2_xs, .name = "IQ2_XS", .bytes = 74, .gguf = 17, .block = 256)
MOE_GGUF_TYPE(kIq2S, iq2_s, .name = "IQ2_S", .bytes = 82, .gguf = 22, .block = 256)
MOE_GGUF_TYPE(kIq3Xxs, iq3_xxs, .name = "IQ3_XXS", .bytes = 98, .gguf = 18, .block = 256)
MOE_GGUF_TYPE(kIq3S, iq3_s, .name = "IQ3_S", .bytes = 110, .gguf = 21, .block = 256)
MOE_GGUF_TYPE(kIq1S, iq1_s, .name = "IQ1_S", .bytes = 50, .gguf = 19, .block = 256)
MOE_GGUF_TYPE(kIq1M, iq1_m, .name = "IQ1_M", .bytes = 56, .gguf = 29, .block = 256)
// bitnet.cpp has one scale for the tensor, behind all codes.
MOE_SOURCE_TYPE(kI2S, .floating = true, .name = "I2_S", .bytes = 16, .gguf = 36, .block = 64, .tail = 32)

// GGUF types that cannot be read.
MOE_GGUF_OTHER(9, "Q8_1")
MOE_GGUF_OTHER(15, "Q8_K")
MOE_GGUF_OTHER(24, "I8")
MOE_GGUF_OTHER(25, "I16")
MOE_GGUF_OTHER(27, "I64")
MOE_GGUF_OTHER(31, "Q4_0_4_4")
MOE_GGUF_OTHER(32, "Q4_0_4_8")
MOE_GGUF_OTHER(33, "Q4_0_8_8")
MOE_GGUF_OTHER(37, "I8_S")
MOE_GGUF_OTHER(38, "TL1")
MOE_GGUF_OTHER(40, "NVFP4")
// clang-format on

#undef MOE_SOURCE_TYPE
#undef MOE_GGUF_TYPE
#undef MOE_GGUF_OTHER
