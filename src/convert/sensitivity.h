// SPDX-License-Identifier: MIT
#pragma once
// Says what rounding is expected to cost a model: the divergence of its next tokens, in nats.
// docs/precision.md says where the numbers come from.

#include "formats/moe/names.h"
#include "src/model/config.h"

namespace moe {

/// Nats per squared relative error of all matrices with this role in a part, if it is small.
/// `layer`: -1 outside layers. All layers together have what a role was measured to have, and a
/// layer's experts that of one FFN, of which a shared expert has the part that its neurons are of
/// those that a token uses.
double sensitivity(Part part, int32_t layer, Role role, const ModelConfig& config);

/// A squared relative error with what large ones cost beyond their squares.
double grown(double squared_error);

/// Rounding the inputs adds this to the squared relative error of the weights.
double input_error(ActPrecision act);

}  // namespace moe
