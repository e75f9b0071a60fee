#pragma once
// Shape checks for callers that assemble operations themselves (a single layer). A loaded model is
// checked as a whole (src/model); a Device checks nothing.

#include "kernels/device.h"
#include "src/base/status.h"

namespace moe {

/// Every output's weight has d_in inputs. MOE_ERR_SHAPE.
Status check_linear(const LinearOp& op);

/// gate, up and down match each other and d_in. `name` prefixes the message. MOE_ERR_SHAPE.
Status check_ffn(const Ffn& ffn, int32_t d_in, const char* name);

/// Heads divide d_model; router, head, merge and shared expert have matching shapes; the router's
/// parameters are in range. Experts are in an ExpertSource: check them with check_ffn().
/// MOE_ERR_SHAPE, MOE_ERR_RANGE, or MOE_ERR_ARGUMENT for a missing matrix.
Status check_moe(const MoeOp& op);

}  // namespace moe
