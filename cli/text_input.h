#pragma once
// Where a command's text comes from: -p TEXT, -f FILE, or -f - for stdin.

#include <istream>

#include "cli/common.h"

namespace moe_cli {

inline constexpr uint64_t kMostPromptBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMostTextBytes = uint64_t{256} << 20;  // of perplexity, score and embed

/// What `path` (-: stdin) holds; an error when that is more than `most` bytes.
std::string read_file(const std::string& path, uint64_t most);

/// The next line, without its end; false behind the last one. An error when it has more than
/// kMostPromptBytes.
bool next_line(std::istream& in, std::string* line);

/// Without their line ends, of either kind.
std::vector<std::string> lines_of(const std::string& text);

/// "1,2,3". Throws UsageError.
std::vector<int32_t> parse_ids(const std::string& text);

class TextInput {
 public:
  /// Adds the options. `what` says what the text is, such as "Text to continue".
  void add(CLI::App& app, const std::string& what);
  /// The same as an argument without an option's name.
  void add_positional_text(CLI::App& app, const std::string& what);
  void add_positional_file(CLI::App& app, const std::string& what);

  /// Keeps the line ends at the end of a file, and lets it be larger.
  void take_whole_files() { whole_ = true; }
  bool given() const { return has_text_ || has_file_; }
  /// Throws UsageError when there is no text, or an empty one.
  std::string read() const;

  /// Options that exclude all of this, such as eval's --tokens.
  void exclude(CLI::Option* other) const;

 private:
  CLI::Option* add_text(CLI::App& app, const std::string& name, const std::string& what);
  CLI::Option* add_file(CLI::App& app, const std::string& name, const std::string& what);
  void keep(CLI::Option* option);

  std::string text_;
  std::string file_;
  bool has_text_ = false;
  bool has_file_ = false;
  bool whole_ = false;
  std::vector<CLI::Option*> options_;  // each excludes the others
};

}  // namespace moe_cli
