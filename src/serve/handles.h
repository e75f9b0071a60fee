// SPDX-License-Identifier: MIT
#pragma once
// Owned handles of the C API, and its errors as exceptions, which stay inside libmoe_serve.

#include <memory>
#include <stdexcept>
#include <string>

#include "include/moe_c.h"

namespace moe_serve {

/// A failed call of the C API.
struct CallError : std::runtime_error {
  CallError(moe_status status, const std::string& text) : std::runtime_error(text), code(status) {}
  moe_status code;
};

inline void check(moe_status status, const moe_error& error) {
  if (status != MOE_OK) throw CallError(status, error.text);
}

struct Deleter {
  void operator()(moe_session* p) const { moe_session_free(p); }
  void operator()(moe_chat* p) const { moe_chat_free(p); }
  void operator()(moe_generation* p) const { moe_generation_free(p); }
  void operator()(moe_grammar* p) const { moe_grammar_free(p); }
};
using Session = std::unique_ptr<moe_session, Deleter>;
using Chat = std::unique_ptr<moe_chat, Deleter>;
using Generation = std::unique_ptr<moe_generation, Deleter>;
using Grammar = std::unique_ptr<moe_grammar, Deleter>;

}  // namespace moe_serve
