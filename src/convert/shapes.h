#pragma once
// Named shapes of published models, for measuring without a download. examples/shapes.md is the table.

#include <string>

#include "src/model/config.h"

namespace moe {

struct Shape {
  const char* name;
  const char* source;     // where the numbers come from
  ActPrecision act;       // of linear matrices under integer weights
  ScaleKind ternary_scale;
  Status (*build)(ModelConfig* config);
};

/// Null when there is no such shape.
const Shape* find_shape(const std::string& name);
/// Comma-separated.
const char* shape_names();

}  // namespace moe
