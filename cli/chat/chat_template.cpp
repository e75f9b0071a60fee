// SPDX-License-Identifier: MIT
// Adds the options of templates, reads a template's file, and creates the chat.
#include "cli/chat/chat_template.h"

#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "cli/help/help.h"
#include "cli/io/strict_stream.h"
#include "cli/io/text_input.h"

namespace moe_cli {
namespace {

bool is_builtin(const std::string& name) {
  for (size_t i = 0; moe_chat_template_name(i) != nullptr; ++i) {
    if (name == moe_chat_template_name(i)) return true;
  }
  return false;
}

// "YYYY-MM-DD", for templates that print the date.
std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  if (localtime_r(&now, &day) == nullptr) return "";
  char text[32];  // strftime would take 12 kB of a static command
  std::snprintf(text, sizeof text, "%04d-%02d-%02d", day.tm_year + 1900, day.tm_mon + 1,
                day.tm_mday);
  return text;
}

}  // namespace

void add_template_options(CLI::App& app, TemplateOptions& o, const std::string& system) {
  app.add_option("--template", o.name,
                 "A file with a Jinja template, or a name: " +
                     listed_names(moe_chat_template_name) + " (default the model's own)")
      ->check(not_empty())
      ->check(suggest(listed_names(moe_chat_template_name)))
      ->option_text("FILE|NAME");
  app.add_option("--system", o.system, system)->option_text("TEXT");
  auto* think = app.add_flag("--think", o.think, "Let the model think before it answers");
  app.add_flag("--no-think", o.no_think, "Let it answer without thinking")->excludes(think);
  app.add_option("--set", o.variables,
                 "A variable of the template, such as reasoning_effort=low; may be given several "
                 "times")
      ->check(with_equals("NAME=VALUE"))
      ->option_text("NAME=VALUE")
      ->allow_extra_args(false);
}

std::string read_template(const std::string& given) {
  if (is_builtin(given)) return given;
  if (access(given.c_str(), R_OK) != 0) {
    throw UsageError("--template '" + given + "': neither a file nor one of " +
                     listed_names(moe_chat_template_name));
  }
  return read_file(given, kMostPromptBytes);
}

moe_status create_chat(const TemplateOptions& o, const std::string& text, moe_session* session,
                       Chat* chat, moe_error* error) {
  std::vector<const char*> variables;
  for (const std::string& v : o.variables) variables.push_back(v.c_str());
  const std::string date = today();
  moe_chat_params p{};
  p.struct_size = sizeof p;
  p.thinking = o.think ? MOE_THINKING_ON : o.no_think ? MOE_THINKING_OFF : MOE_THINKING_DEFAULT;
  p.chat_template = text.empty() ? nullptr : text.c_str();
  p.system = o.system.empty() ? nullptr : o.system.c_str();
  p.variables = variables.data();
  p.n_variables = static_cast<int32_t>(variables.size());
  p.date = date.c_str();
  moe_chat* raw = nullptr;
  const moe_status status = moe_chat_create(session, &p, &raw, error);
  chat->reset(raw);
  return status;
}

}  // namespace moe_cli
