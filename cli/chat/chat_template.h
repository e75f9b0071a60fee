// SPDX-License-Identifier: MIT
#pragma once
// The template of a conversation and its options, of chat and batch.

#include <string>
#include <vector>

#include "cli/common.h"

namespace moe_cli {

struct TemplateOptions {
  std::string name;  // or a file; empty: the model's own template
  std::string system;
  std::vector<std::string> variables;  // "NAME=VALUE"
  bool think = false;
  bool no_think = false;

  bool given() const {
    return !name.empty() || !system.empty() || !variables.empty() || think || no_think;
  }
};

/// --template, --system, --think, --no-think and --set. `system` describes --system.
void add_template_options(CLI::App& app, TemplateOptions& o, const std::string& system);
/// A given --template as moe_chat_create takes it: a name or Jinja text. Throws UsageError.
std::string read_template(const std::string& given);
/// A conversation in `session` with these options and the template `text`; empty: the model's own.
moe_status create_chat(const TemplateOptions& o, const std::string& text, moe_session* session,
                       Chat* chat, moe_error* error);

}  // namespace moe_cli
