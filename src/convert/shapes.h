// SPDX-License-Identifier: MIT
#pragma once
// Named shapes of published models, for measurements without a download. examples/shapes.md is the
// table; each shape is a function in shapes.cpp and a line in kShapes.

#include "quant/format.h"
#include "src/model/config.h"

namespace moe {

struct Shape {
  const char* name;
  ModelConfig (*make)();
  ScaleKind ternary_scale;    // of ternary matrices: kTensor (BitNet) or kRow (Maple)
  ActPrecision ternary_act;   // how the inputs of ternary matrices are quantised
  FormatId router;            // type of the published routers
  bool bytes_tokenizer;       // ids are bytes
  bool whole_values = false;  // of latent attention: values are as wide as keys
};

/// Null for an unknown name.
const Shape* find_shape(const char* name);
/// "tiny, olmoe-1b-7b, ..."
const char* shape_names();
/// One of them; null behind the last.
const char* shape_name(size_t index);
std::span<const Shape> shapes();

}  // namespace moe
