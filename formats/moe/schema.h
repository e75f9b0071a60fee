// SPDX-License-Identifier: MIT
#pragma once
// The generated classes of moe.fbs. Include them through this file, so that FlatBuffers' asserts
// never abort: opening a file verifies what they would check.

#define FLATBUFFERS_ASSERT(condition) static_cast<void>(0)

#include "formats/moe/moe_generated.h"

static_assert(FLATBUFFERS_LITTLEENDIAN, "files are read as they lie");
