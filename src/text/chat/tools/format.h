// SPDX-License-Identifier: MIT
#pragma once
// The formats in which models write calls of tools, and how a chat template tells which one it is.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace moe {

/// How the parts of a call stand between the marks of a format.
enum class ToolSyntax : uint8_t {
  kJson,      // open, an object or a list of objects {"name", "arguments"}, close
  kTags,      // a tag for the name, and one for each argument
  kNamed,     // a name, a mark, an object of arguments
  kMistral,   // open, then as kJson without close, or a name, a mark and an object
  kGemma,     // call:NAME{key:value,key:value} with strings between marks
  kChannels,  // the recipient in a channel's header, an object of arguments as its text
};

/// The objects of kJson, and of kMistral's older form, as a template asks for them.
struct CallObject {
  std::string_view name = "name";
  std::string_view arguments = "arguments";
  std::string_view id = {};  // may be missing; empty: there is none
  bool list = false;         // the calls stand in a list
};

/// A format. A mark is a text, or a special token with this spelling.
struct ToolFormat {
  enum Mark : uint8_t {
    kOpen,       // begins a call, or several
    kClose,      // ends them
    kCallOpen,   // begins each; empty: only kOpen
    kNameEnd,    // behind a name
    kKeyOpen,    // before an argument's name; of kGemma: around a string; of kMistral: before an id
    kKeyEnd,     // behind an argument's name
    kValueOpen,  // before an argument's value, if more than kKeyEnd is between
    kValueEnd,   // behind an argument's value
    kCallClose,  // ends each
    kMarks
  };

  const char* name;
  ToolSyntax syntax;
  std::string_view needles[2];  // texts of its templates
  std::string_view marks[kMarks];
  CallObject object = {};
  bool lines = false;  // kTags: values stand on lines of their own
  bool bare = false;   // kJson: an object at the beginning of a reply may be a call without open
};

/// The format of a template's calls; null: it has none that is known.
const ToolFormat* tool_format(std::string_view chat_template);
/// The names of all, separated by commas.
const char* tool_format_names();

}  // namespace moe
