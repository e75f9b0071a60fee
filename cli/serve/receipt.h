// SPDX-License-Identifier: MIT
#pragma once
// Receipts of answers, as moe verify reads and compares them.

#include <string>
#include <vector>

#include "cli/common.h"

namespace moe_cli {

/// The receipt in a line: the line itself, or what an answer has as its "receipt". Throws
/// CallError, which begins with `where`.
Json read_receipt(const std::string& where, const std::string& line);
/// Why it is none of a version that this program knows; empty: it is one.
std::string receipt_problem(const Json& receipt);
/// The request that has the same answer, and asks for a receipt.
std::string request_text(const Json& receipt);
/// The receipt in the last event of an answer, or {"error": TEXT} if there was no answer.
Json receipt_of_answer(const std::string& event, int status);
/// The first difference between the answers of two receipts; empty: none.
std::string difference_of(const Json& receipt, const Json& found);
/// "context 512, here 256": settings that differ.
std::vector<std::string> different_settings(const Json& receipt, const Json& found);

}  // namespace moe_cli
