// SPDX-License-Identifier: MIT
// Reads the text from the place that the options name, and checks its size and encoding.
#include "cli/io/text_input.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "cli/help/help.h"
#include "cli/io/input_file.h"
#include "cli/io/output_file.h"
#include "cli/io/strict_stream.h"

namespace moe_cli {
namespace {

std::string mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

std::string read_file(const std::string& path, uint64_t most) {
  InputFile file(path);
  std::string text;
  for (std::string_view part = file.next(); !part.empty(); part = file.next()) {
    text += part;
    if (text.size() > most) {
      throw CallError(MOE_ERR_TOO_LONG,
                      file.name() + ": more than " + mebibytes(most) + ", the limit");
    }
  }
  return text;
}

bool next_line(std::istream& in, std::string* line) {
  line->clear();
  bool ended = false;
  for (char c = 0; in.get(c);) {
    ended = c == '\n';
    if (ended) break;
    if (line->size() == kMostPromptBytes) {
      throw CallError(MOE_ERR_TOO_LONG, "stdin: a line does not end within " +
                                            mebibytes(kMostPromptBytes) + ", the limit");
    }
    line->push_back(c);
  }
  const bool any = ended || !line->empty();
  if (line->ends_with('\r')) line->pop_back();
  return any;
}

std::vector<int32_t> parse_ids(const std::string& text, const std::string& file) {
  std::vector<int32_t> ids;
  StrictReader in(text);
  std::string item;
  while (std::getline(in, item, ',')) {
    char* end = nullptr;
    const long id = std::strtol(item.c_str(), &end, 10);
    while (*end == ' ' || *end == '\n') ++end;
    if (end == item.c_str() || *end != '\0' || id < INT32_MIN || id > INT32_MAX) {
      const std::string why = "'" + item + "' is not a token id; expected ids separated by commas";
      if (!file.empty()) throw CallError(MOE_ERR_FORMAT, file + ": " + why);
      throw UsageError(why);
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  StrictReader in(text);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

void TextInput::set_texts(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    if (text.empty() && texts.size() > 1) refuse_empty();  // its line would not be seen
    text_ += (has_text_ ? "\n" : "") + text;
    has_text_ = true;
  }
}

void TextInput::keep(CLI::Option* option) {
  for (CLI::Option* other : options_) option->excludes(other);
  options_.push_back(option);
}

CLI::Option* TextInput::add_text(CLI::App& app, const std::string& name, const std::string& what) {
  CLI::Option* option =
      several_ ? app.add_option_function<std::vector<std::string>>(
                        name, [this](const auto& texts) { set_texts(texts); }, what)
                     ->allow_extra_args(false)
               : app.add_option_function<std::string>(
                     name, [this](const std::string& text) { set_texts({text}); }, what);
  keep(option);
  return option->option_text("TEXT");
}

CLI::Option* TextInput::add_file(CLI::App& app, const std::string& name, const std::string& what) {
  CLI::Option* option = app.add_option_function<std::string>(
      name,
      [this](const std::string& file) {
        file_ = file;
        has_file_ = true;
      },
      what);
  keep(option);
  return option->check(not_empty())->option_text("FILE");
}

void TextInput::add(CLI::App& app, const std::string& what) {
  add_text(app, "-p,--prompt", what);
  const uint64_t most = whole_ ? kMostTextBytes : kMostPromptBytes;
  add_file(app, "-f,--file,--prompt-file",
           "Read the text from FILE (- is stdin), at most " + mebibytes(most) +
               (whole_ ? "" : "; trailing newlines are dropped"));
}

void TextInput::add_positional_text(CLI::App& app, const std::string& what) {
  add_text(app, "TEXT", what);
}

void TextInput::add_positional_file(CLI::App& app, const std::string& what) {
  add_file(app, "FILE", what);
}

void TextInput::exclude(CLI::Option* other) {
  for (CLI::Option* option : options_) other->excludes(option);
  others_.push_back(other);
}

bool TextInput::piped() const {
  const bool other = std::any_of(others_.begin(), others_.end(),
                                 [](const CLI::Option* o) { return o->count() > 0; });
  return !has_text_ && !has_file_ && !other && isatty(STDIN_FILENO) == 0;
}

std::string TextInput::source() const {
  if (has_text_) return "";
  return file_.empty() || file_ == "-" ? "stdin" : file_;
}

void TextInput::keep_from(const std::string& written) const {
  if (has_file_) keep_input(written, file_, "the text");
}

void TextInput::refuse_empty() {
  throw UsageError("the text is empty; give one with -p TEXT or -f FILE");
}

void TextInput::refuse_missing() const {
  throw UsageError("a text is required: -p TEXT, -f FILE or a pipe" +
                   std::string(others_.empty() ? "" : "; or " + others_[0]->get_name()));
}

std::string TextInput::read() const {
  if (!given()) refuse_missing();
  if (has_text_) {
    if (text_.empty() && !empty_) refuse_empty();
    return text_;
  }
  std::string text = read_file(piped() ? "-" : file_, whole_ ? kMostTextBytes : kMostPromptBytes);
  while (!whole_ && !text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty() && piped()) refuse_missing();
  if (text.empty()) {
    throw CallError(MOE_ERR_ARGUMENT,
                    source() + ": holds no text; give one with -p TEXT or -f FILE");
  }
  return text;
}

}  // namespace moe_cli
