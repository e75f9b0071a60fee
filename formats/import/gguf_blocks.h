// SPDX-License-Identifier: MIT
#pragma once
// Decoders of the readable GGUF block types. Layouts: ggml's (ggml-common.h). Each function reads
// one block; every multiplication and addition is rounded to float32 as in ggml's reference, so
// results are bit-identical.

#include <cstdint>

namespace moe {

/// Codes of IQ4_NL and IQ4_XS.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

/// Codes of MXFP4: E2M1 (OCP Microscaling Formats 1.0, section 5.3.3), with 0 for -0.
inline constexpr float kFp4Values[16] = {0, 0.5f,  1,  1.5f,  2,  3,  4,  6,
                                         0, -0.5f, -1, -1.5f, -2, -3, -4, -6};

#define MOE_GGUF_TYPE(id, function, ...) void read_##function(const uint8_t* block, float* to);
#include "formats/import/source_types.h"

// Scale and minimum per 32 values, Q6_K per 16, for types with weights scale * value + minimum:
// -8..7 (Q4_0), 0..15 (Q4_1, Q4_K), kIq4Values, twice FP4 (MXFP4), -32..31 (Q6_K).
void scales_of_q4_0(const uint8_t* block, float* scales, float* minimums);
void scales_of_q4_1(const uint8_t* block, float* scales, float* minimums);
void scales_of_q4_k(const uint8_t* block, float* scales, float* minimums);
void scales_of_q2_k(const uint8_t* block, float* scales, float* minimums);
void scales_of_q3_k(const uint8_t* block, float* scales, float* minimums);
void scales_of_q6_k(const uint8_t* block, float* scales, float* minimums);
void scales_of_iq4_nl(const uint8_t* block, float* scales, float* minimums);
void scales_of_iq4_xs(const uint8_t* block, float* scales, float* minimums);
void scales_of_mxfp4(const uint8_t* block, float* scales, float* minimums);

}  // namespace moe
