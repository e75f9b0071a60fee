// SPDX-License-Identifier: MIT
// Templates for checkpoints without one.

#include "src/text/chat/chat_template.h"

namespace moe {
namespace {

struct Builtin {
  const char* name;
  std::string_view source;
  std::string_view turn_end;
};

constexpr std::string_view kChatMl =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

constexpr std::string_view kLlama3 =
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}"
    "{{ message.content | trim + '<|eot_id|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    "{% endif %}";

// A system text precedes the first question.
constexpr std::string_view kMistral =
    "{{ bos_token }}"
    "{% set ns = namespace(system='') %}"
    "{% for message in messages %}"
    "{% if message.role == 'system' %}{% set ns.system = message.content + '\\n\\n' %}"
    "{% elif message.role == 'user' %}"
    "{{ '[INST] ' + ns.system + message.content + ' [/INST]' }}{% set ns.system = '' %}"
    "{% elif message.role == 'assistant' %}"
    "{{ ' ' ~ message.content | trim ~ eos_token }}"
    "{% else %}{{ raise_exception('roles are system, user and assistant') }}"
    "{% endif %}"
    "{% endfor %}";

// No roles: for models that continue a text.
constexpr std::string_view kPlain =
    "{% if adds_bos %}{{ bos_token }}{% endif %}"
    "{% for message in messages %}"
    "{% if message.role == 'user' %}"
    "{% if loop.index0 > 0 and loop.previtem.role == 'assistant' %}{{ '\\n' }}{% endif %}"
    "{{ user_prefix ~ message.content ~ reply_prefix }}"
    "{% else %}{{ message.content }}{% endif %}"
    "{% endfor %}";

constexpr Builtin kBuiltins[] = {{"chatml", kChatMl, "<|im_end|>"},
                                 {"llama3", kLlama3, "<|eot_id|>"},
                                 {"mistral", kMistral, ""},
                                 {"plain", kPlain, ""}};

const Builtin* find(std::string_view name) {
  for (const Builtin& b : kBuiltins) {
    if (b.name == name) return &b;
  }
  return nullptr;
}

}  // namespace

std::string_view builtin_chat_template(std::string_view name) {
  const Builtin* b = find(name);
  return b == nullptr ? std::string_view() : b->source;
}

std::string_view builtin_chat_turn_end(std::string_view name) {
  const Builtin* b = find(name);
  return b == nullptr ? std::string_view() : b->turn_end;
}

const char* builtin_chat_names() { return "chatml, llama3, mistral, plain"; }

const char* builtin_chat_name(size_t index) {
  return index < std::size(kBuiltins) ? kBuiltins[index].name : nullptr;
}

}  // namespace moe
