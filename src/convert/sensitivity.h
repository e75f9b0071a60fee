// SPDX-License-Identifier: MIT
#pragma once
// What rounding is expected to cost a model: the divergence of its next tokens, in nats.
// docs/precision.md says where the numbers come from.

#include "formats/moe/names.h"

namespace moe {

/// A model as far as sensitivities depend on it.
struct ModelShape {
  int32_t n_layers = 0;
  bool tied_head = false;  // the embedding is the head too
};

/// Nats per squared relative error of all matrices with this role in a part, if it is small.
/// `layer`: -1 outside layers.
double sensitivity(Part part, int32_t layer, Role role, const ModelShape& shape);

/// A squared relative error with what large ones cost beyond their squares.
double grown(double squared_error);

/// What rounding the inputs adds to the squared relative error of the weights.
double input_error(ActPrecision act);

}  // namespace moe
