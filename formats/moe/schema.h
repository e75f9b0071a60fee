#pragma once
// The generated classes of moe.fbs. Everyone includes them from here, so that FlatBuffers' checks
// never abort: what they would catch is verified when a file is opened.

#define FLATBUFFERS_ASSERT(condition) static_cast<void>(0)

#include "formats/moe/moe_generated.h"

static_assert(FLATBUFFERS_LITTLEENDIAN, "files are read as they lie");
