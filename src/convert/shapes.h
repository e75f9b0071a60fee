#pragma once
// Named shapes of published models, for measuring without a download. examples/shapes.md is the
// table; each shape is one function in shapes.cpp and one line in kShapes.

#include "quant/format.h"
#include "src/model/config.h"

namespace moe {

struct Shape {
  const char* name;
  ModelConfig (*make)();
  ScaleKind ternary_scale;   // of ternary matrices: kTensor (BitNet) or kRow (Maple)
  ActPrecision ternary_act;  // how the inputs of ternary matrices are quantised
  FormatId router;           // type that the routers are published in
  bool bytes_tokenizer;      // ids are bytes
};

/// Null for a name that is none.
const Shape* find_shape(const char* name);
/// "tiny, olmoe-1b-7b, ..."
const char* shape_names();
std::span<const Shape> shapes();

}  // namespace moe
