// SPDX-License-Identifier: MIT
#pragma once
// The figures of a trace token by token and expert by expert, for the page that Python draws.

#include "cli/common.h"
#include "cli/trace/trace_file.h"

namespace moe_cli {

/// Adds members to `figures`, the output of --budgets, as docs/traces.md describes them. The trace
/// has decoded tokens.
void add_trace_curves(const Trace& trace, Json* figures);

}  // namespace moe_cli
