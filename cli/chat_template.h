#pragma once
// --template of chat and batch.

#include <string>

#include "cli/common.h"

namespace moe_cli {

void add_template_option(CLI::App& app, std::string& given);
/// What moe_chat_create takes for a given --template: a name or Jinja text. Throws UsageError.
std::string read_template(const std::string& given);
/// "YYYY-MM-DD", for templates that print the date.
std::string today();

}  // namespace moe_cli
