// SPDX-License-Identifier: MIT
// The input is a template, a zero byte and the text of a user. A template that parses must end
// within its limits. Its output is UTF-8, in which every byte from the user is marked.

#include "src/text/characters/utf8.h"
#include "src/text/chat/chat_template.h"

namespace {

void require(bool condition) {
  if (!condition) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moe;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  size_t end = 0;
  while (end < size && all[end] != '\0') ++end;
  const auto chat = ChatTemplate::create(slice(all, 0, end), system_allocator());
  if (!chat.ok()) return 0;
  const std::string_view said = slice(all, end + 1);
  const ChatMessage messages[] = {{"system", "s"}, {"user", said}, {"assistant", "\x01 <a>"}};
  ChatInput input;
  input.messages = {messages, 3};
  input.add_generation_prompt = size % 2 == 0;
  input.bos_token = "<s>";
  input.date = "2024-02-29";
  jinja::Limits limits;
  limits.max_steps = 200000;
  limits.max_text = size_t{4} << 20;
  limits.max_items = 65536;
  ChatText out(system_allocator());
  const Status status = chat.value()->render(input, out, limits);
  require(out.chars.size() == out.marks.size());
  require(status.ok() ? utf8_is_valid(out.view()) : out.size() == 0);
  bool in_template = false;
  for (size_t i = 0; i < end; ++i) in_template = in_template || all[i] == '\x01' || all[i] == '\\';
  for (size_t i = 0; i < out.size() && !in_template; ++i) {
    if (out.chars[i] == '\x01') require(out.marks[i] != 0);
  }
  return 0;
}
