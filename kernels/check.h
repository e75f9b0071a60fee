#pragma once
// Checks of an operation's shapes, for callers that put operations together from outside (a layer
// on its own). A loaded model is checked as a whole (src/model); a Device checks nothing.

#include "kernels/device.h"
#include "src/base/status.h"

namespace moe {

/// Every output's weight takes d_in inputs. MOE_ERR_SHAPE.
Status check_linear(const LinearOp& op);

/// gate, up and down fit each other and d_in. `name` is put in front of the message. MOE_ERR_SHAPE.
Status check_ffn(const Ffn& ffn, int32_t d_in, const char* name);

/// Heads divide d_model, router and head and merge fit, the router's parameters are in range and
/// the shared expert fits. Experts are behind an ExpertSource: check_ffn() is for them.
/// MOE_ERR_SHAPE, MOE_ERR_RANGE, or MOE_ERR_ARGUMENT for a matrix that is missing.
Status check_moe(const MoeOp& op);

}  // namespace moe
