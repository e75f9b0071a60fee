#pragma once
// A trace as a page to look at.

#include <string>

#include "cli/common.h"
#include "cli/trace_file.h"

namespace moe_cli {

/// One HTML file that needs nothing else: no script, no network. `budgets` is what --budgets
/// prints; something was decoded.
std::string trace_page(const std::string& name, const Trace& trace, const Json& budgets);

}  // namespace moe_cli
