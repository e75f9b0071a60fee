// SPDX-License-Identifier: MIT
// The table of formats. The first one whose texts a template contains is the template's.
#include "src/text/chat/tools/format.h"

namespace moe {
namespace {

using enum ToolSyntax;

constexpr CallObject kPlain = {};
constexpr CallObject kList = {.list = true};
constexpr CallObject kListWithIds = {.id = "id", .list = true};
constexpr CallObject kCohere = {
    .name = "tool_name", .arguments = "parameters", .id = "tool_call_id", .list = true};
constexpr CallObject kParameters = {.arguments = "parameters"};

#define MOE_DEEPSEEK(word) "<\uFF5Ctool\u2581" word "\uFF5C>"

// In each row of marks: open, close, call open, name end, key open, key end, value open, value end,
// call close.
constexpr ToolFormat kFormats[] = {
    {"gpt-oss", kChannels, {"<|channel|>", "functions."}, {}},
    {"deepseek",
     kNamed,
     {MOE_DEEPSEEK("calls\u2581begin"), ""},
     {MOE_DEEPSEEK("calls\u2581begin"), MOE_DEEPSEEK("calls\u2581end"),
      MOE_DEEPSEEK("call\u2581begin"), MOE_DEEPSEEK("sep"), "", "", "", "",
      MOE_DEEPSEEK("call\u2581end")}},
    {"kimi-k2",
     kNamed,
     {"<|tool_call_argument_begin|>", ""},
     {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
      "<|tool_call_argument_begin|>", "", "", "", "", "<|tool_call_end|>"}},
    {"minimax-m2",
     kTags,
     {"<minimax:tool_call>", ""},
     {"<minimax:tool_call>", "</minimax:tool_call>", "<invoke name=\"", "\">", "<parameter name=\"",
      "\">", "", "</parameter>", "</invoke>"}},
    {"glm",
     kTags,
     {"<arg_key>", ""},
     {"<tool_call>", "", "", "", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>",
      "</tool_call>"}},
    {"seed-oss",
     kTags,
     {"<seed:tool_call>", ""},
     {"<seed:tool_call>", "</seed:tool_call>", "<function=", ">", "<parameter=", ">", "",
      "</parameter>", "</function>"}},
    {"qwen3-coder",
     kTags,
     {"<function=", "<parameter="},
     {"<tool_call>", "</tool_call>", "<function=", ">", "<parameter=", ">", "", "</parameter>",
      "</function>"},
     kPlain,
     true},
    {"gemma4",
     kGemma,
     {"<|tool_call>call:", ""},
     {"<|tool_call>", "<tool_call|>", "", "", "<|\"|>"}},
    {"functiongemma",
     kGemma,
     {"<start_function_call>", ""},
     {"<start_function_call>", "<end_function_call>", "", "", "<escape>"}},
    {"mistral",
     kMistral,
     {"[TOOL_CALLS]", ""},
     {"[TOOL_CALLS]", "", "", "[ARGS]", "[CALL_ID]"},
     kListWithIds},
    {"cohere", kJson, {"<|START_ACTION|>", ""}, {"<|START_ACTION|>", "<|END_ACTION|>"}, kCohere},
    {"phi4", kJson, {"<|/tool_call|>", ""}, {"<|tool_call|>", "<|/tool_call|>"}, kList},
    {"granite", kJson, {"<|tool_call|>", ""}, {"<|tool_call|>"}, kList},
    {"nemotron", kJson, {"<TOOLCALL>", ""}, {"<TOOLCALL>", "</TOOLCALL>"}, kList},
    {"hunyuan", kJson, {"<tool_calls>", ""}, {"<tool_calls>", "</tool_calls>"}, kList},
    {"hermes", kJson, {"<tool_call>", ""}, {"<tool_call>", "</tool_call>"}},
    {"llama3",
     kJson,
     {"{\"name\": function name, \"parameters\"", ""},
     {"<|python_tag|>"},
     kParameters,
     false,
     true},
};

#undef MOE_DEEPSEEK

}  // namespace

const ToolFormat* tool_format(std::string_view chat_template) {
  const auto has = [&](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  // This model of MiniMax writes marks between those of other formats.
  if (has("]<]minimax[>[")) return nullptr;
  for (const ToolFormat& format : kFormats) {
    if (has(format.needles[0]) && has(format.needles[1])) return &format;
  }
  return nullptr;
}

const char* tool_format_names() {
  return "gpt-oss, deepseek, kimi-k2, minimax-m2, glm, seed-oss, qwen3-coder, gemma4, "
         "functiongemma, mistral, cohere, phi4, granite, nemotron, hunyuan, hermes, llama3";
}

}  // namespace moe
