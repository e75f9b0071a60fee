// SPDX-License-Identifier: MIT
// Blocks of 256 values that are indices of codebooks: as the weight formats of the same names read
// them.

#include "formats/import/gguf_blocks.h"
#include "quant/codebook.h"

namespace moe {

void read_iq2_xxs(const uint8_t* block, float* to) { Iq2XxsFormat::read_block(block, to); }
void read_iq2_xs(const uint8_t* block, float* to) { Iq2XsFormat::read_block(block, to); }
void read_iq2_s(const uint8_t* block, float* to) { Iq2SFormat::read_block(block, to); }
void read_iq3_xxs(const uint8_t* block, float* to) { Iq3XxsFormat::read_block(block, to); }
void read_iq3_s(const uint8_t* block, float* to) { Iq3SFormat::read_block(block, to); }
void read_iq1_s(const uint8_t* block, float* to) { Iq1SFormat::read_block(block, to); }
void read_iq1_m(const uint8_t* block, float* to) { Iq1MFormat::read_block(block, to); }

}  // namespace moe
