// SPDX-License-Identifier: MIT
#pragma once
// Replies with calls of tools, taken as from a model: in tokens of any length, with the marks of
// formats as texts or as special tokens.

#include <map>
#include <random>
#include <string>
#include <vector>

#include "src/run/reply_collector.h"
#include "tests/text/tokenizer_support.h"

namespace moe {

/// Texts by which templates are recognised.
inline const std::map<std::string, std::string>& templates() {
  static const std::map<std::string, std::string> texts = {
      {"gpt-oss", "<|channel|><|message|> to=functions."},
      {"deepseek", "<｜tool▁calls▁begin｜>"},
      {"kimi-k2", "<|tool_calls_section_begin|><|tool_call_argument_begin|>"},
      {"minimax-m2", "<minimax:tool_call> <tool_call>"},
      {"glm", "<tool_call><arg_key>"},
      {"seed-oss", "<seed:tool_call><function=f><parameter=p>"},
      {"qwen3-coder", "<tool_call><function=f><parameter=p>"},
      {"gemma4", "{{ '<|tool_call>call:' }}"},
      {"functiongemma", "<start_function_call>call:"},
      {"mistral", "[TOOL_CALLS]"},
      {"cohere", "<|START_ACTION|>"},
      {"phi4", "<|tool_call|><|/tool_call|>"},
      {"granite", "<|tool_call|>"},
      {"nemotron", "<TOOLCALL>"},
      {"hunyuan", "<tool_calls>"},
      {"hermes", "<tools></tools> <tool_call>"},
      {"llama3", "respond {\"name\": function name, \"parameters\": ...}"}};
  return texts;
}

struct GivenReply {
  std::string chat_template;
  std::string tools;                  // JSON
  std::vector<std::string> specials;  // special tokens of the model
  std::string text;                   // with special tokens spelled out
};

struct FoundReply {
  std::string content;
  std::string thinking;
  std::vector<std::string> calls;  // JSON: id, name, arguments
  std::string order;               // "t" for a text, "c" for a call
  std::string members;             // of the message that is kept
  bool operator==(const FoundReply&) const = default;

  static bool take(void* user, const Piece& piece) {
    auto* found = static_cast<FoundReply*>(user);
    if (piece.call) {
      found->calls.emplace_back(piece.text);
    } else {
      (piece.thinking ? found->thinking : found->content) += piece.text;
    }
    const char kind = piece.call ? 'c' : 't';
    const bool counts = !piece.thinking && !piece.text.empty();
    if (counts && (kind == 'c' || !found->order.ends_with('t'))) found->order += kind;
    return true;
  }
};

/// Letters, and special tokens behind token 0.
inline TokenizerData letters_and(const std::vector<std::string>& specials) {
  TokenizerData data;
  data.kind = "bpe";
  std::vector<std::string> pieces = {"a"};
  pieces.insert(pieces.end(), specials.begin(), specials.end());
  set_pieces(data, pieces);
  for (size_t i = 0; i < specials.size(); ++i) {
    data.added_ids.push_back(static_cast<int32_t>(i) + 1);
    data.added_flags.push_back(kAddedSpecial);
  }
  return data;
}

struct ReplyToken {
  int32_t id;
  std::string text;
};

/// Special tokens, and texts of 1 to `longest` characters between them.
inline std::vector<ReplyToken> cut_reply(const GivenReply& given, uint64_t seed, size_t longest) {
  std::mt19937_64 random(seed);
  std::vector<ReplyToken> tokens;
  const std::string& text = given.text;
  std::string part;
  size_t room = 1 + random() % longest;
  const auto end_part = [&] {
    if (!part.empty()) tokens.push_back({0, part});
    part.clear();
    room = 1 + random() % longest;
  };
  for (size_t i = 0; i < text.size();) {
    size_t special = 0;
    for (size_t k = 0; k < given.specials.size(); ++k) {
      const bool here = text.compare(i, given.specials[k].size(), given.specials[k]) == 0;
      if (here && (special == 0 || given.specials[k].size() > given.specials[special - 1].size())) {
        special = k + 1;
      }
    }
    if (special > 0) {
      end_part();
      tokens.push_back({static_cast<int32_t>(special), ""});
      i += given.specials[special - 1].size();
      continue;
    }
    do part += text[i++];
    while (i < text.size() && (static_cast<uint8_t>(text[i]) & 0xC0) == 0x80);
    if (--room == 0) end_part();
  }
  end_part();
  return tokens;
}

/// The parts of a reply that is cut in this way. inside: it begins inside thinking.
inline FoundReply find_calls(const GivenReply& given, uint64_t seed, size_t longest,
                             bool inside = false) {
  const auto loaded = load(letters_and(given.specials));
  check(loaded->status);
  FoundReply found;
  GenerateOptions options;
  options.callback = FoundReply::take;
  options.user = &found;
  Collector collector(options, thinking_tags(given.chat_template), *loaded->tokenizer, inside,
                      system_allocator());
  const ToolFormat* format = tool_format(given.chat_template);
  if (format == nullptr) check(Status::error(MOE_ERR_ARGUMENT, "no format"));
  check(collector.find_calls(*format, given.tools, 7));
  for (const ReplyToken& token : cut_reply(given, seed, longest)) {
    Piece piece;
    piece.token = token.id;
    piece.text = token.text;
    Collector::call(&collector, piece);
  }
  Finish finish = Finish::kEos;
  check(collector.finish(&finish));
  found.members = collector.message.members.view();
  return found;
}

}  // namespace moe
