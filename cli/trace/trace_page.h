// SPDX-License-Identifier: MIT
#pragma once
// An HTML page for a trace.

#include <string>

#include "cli/common.h"
#include "cli/trace/trace_file.h"

namespace moe_cli {

/// A self-contained HTML file: no script, no network. `budgets` is the output of --budgets; the
/// trace has decoded tokens.
std::string trace_page(const std::string& name, const Trace& trace, const Json& budgets);

}  // namespace moe_cli
