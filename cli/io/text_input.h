// SPDX-License-Identifier: MIT
#pragma once
// The source of a command's text: -p TEXT, -f FILE, or stdin (-f -, or a pipe without either).

#include <istream>

#include "cli/common.h"

namespace moe_cli {

inline constexpr uint64_t kMostPromptBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMostTextBytes = uint64_t{256} << 20;  // of perplexity, score and embed

/// The content of `path` (-: stdin); an error if longer than `most` bytes.
std::string read_file(const std::string& path, uint64_t most);

/// The next line without its end, of either kind; false at the end of input. An error if it is
/// longer than kMostPromptBytes.
bool next_line(std::istream& in, std::string* line);

/// Without their line ends, of either kind.
std::vector<std::string> lines_of(const std::string& text);

/// "1,2,3". Throws UsageError, or CallError if the text is that of a `file`.
std::vector<int32_t> parse_ids(const std::string& text, const std::string& file = "");

class TextInput {
 public:
  /// Adds the options. `what` describes the text, such as "Text to continue".
  void add(CLI::App& app, const std::string& what);
  /// The same as a positional argument.
  void add_positional_text(CLI::App& app, const std::string& what);
  void add_positional_file(CLI::App& app, const std::string& what);

  /// Preserves trailing line ends of a file, and allows larger files.
  void take_whole_files() { whole_ = true; }
  /// Accepts -p "", a text of which the model may make tokens: its begin of text.
  void take_empty() { empty_ = true; }
  /// Accepts -p several times: the texts are lines of one.
  void take_several() { several_ = true; }
  /// Also if stdin is a pipe or a file, and nothing was given in place of a text.
  bool given() const { return has_text_ || has_file_ || piped(); }
  /// Throws UsageError if the text is missing or empty, CallError for a file without text.
  std::string read() const;
  [[noreturn]] static void refuse_empty();
  /// The file's name, "stdin" for standard input; empty for a text of the command line.
  std::string source() const;

  /// Throws UsageError if the file to write is that of the text.
  void keep_from(const std::string& written) const;

  /// `other`, for example eval's --tokens, is given in place of a text: it excludes all of these
  /// options.
  void exclude(CLI::Option* other);

 private:
  CLI::Option* add_text(CLI::App& app, const std::string& name, const std::string& what);
  CLI::Option* add_file(CLI::App& app, const std::string& name, const std::string& what);
  void set_texts(const std::vector<std::string>& texts);
  void keep(CLI::Option* option);
  bool piped() const;
  [[noreturn]] void refuse_missing() const;

  std::string text_;
  std::string file_;
  bool has_text_ = false;
  bool has_file_ = false;
  bool whole_ = false;
  bool empty_ = false;
  bool several_ = false;
  std::vector<CLI::Option*> options_;       // each excludes the others
  std::vector<const CLI::Option*> others_;  // given in place of a text
};

}  // namespace moe_cli
