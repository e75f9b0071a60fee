#include "cli/chat_template.h"

#include <unistd.h>

#include <ctime>

#include "cli/help.h"
#include "cli/strict_stream.h"
#include "cli/text_input.h"

namespace moe_cli {
namespace {

bool is_builtin(const std::string& name) {
  StrictReader names(moe_chat_template_names());
  for (std::string n; std::getline(names, n, ',');) {
    if (n == name) return true;
  }
  return false;
}

}  // namespace

void add_template_option(CLI::App& app, std::string& given) {
  app.add_option("--template", given,
                 std::string("A file with a Jinja template, or a name: ") +
                     moe_chat_template_names() + " (default the model's own)")
      ->check(suggest(moe_chat_template_names()))
      ->option_text("FILE|NAME");
}

std::string read_template(const std::string& given) {
  if (is_builtin(given)) return given;
  if (access(given.c_str(), R_OK) != 0) {
    throw UsageError("--template '" + given + "': neither a file nor one of " +
                     moe_chat_template_names());
  }
  return read_file(given, kMostPromptBytes);
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d", std::localtime(&now)));
}

}  // namespace moe_cli
