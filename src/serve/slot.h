// SPDX-License-Identifier: MIT
#pragma once
// A session of the scheduler, and the text that is in it.

#include <memory>
#include <utility>
#include <vector>

#include "src/serve/service_request.h"

namespace moe_serve {

/// A text in its request.
struct Place {
  std::shared_ptr<ServiceRequest> request;
  Text* text = nullptr;
};

struct Slot {
  Session session;
  std::vector<int32_t> held;  // the tokens in the session; a free slot keeps them
  uint64_t last_use = 0;      // number of the step in which it became free; 0: empty
  bool saved = false;         // no need to write `held` to the folder
  Place place;                // without a text: free
  size_t n_read = 0;          // tokens of the prompt in the session
  size_t n_step = 0;          // tokens to evaluate in this step
  bool generating = false;
  int32_t token = -1;     // generated, to be evaluated
  bool advances = false;  // in this step, alone: with a draft

  bool free() const { return place.text == nullptr; }
  size_t n_unread() const { return place.text->prompt().size() - n_read; }
  /// The tokens to evaluate in this step.
  const int32_t* tokens() const {
    return generating ? &token : place.text->prompt().data() + n_read;
  }
  /// After a text has advanced: the session has its tokens, which it generated.
  void hold_advanced() {
    const std::vector<int32_t>& prompt = place.text->prompt();
    const std::vector<int32_t>& made = place.text->tokens();
    const auto position = static_cast<size_t>(moe_session_position(session.get()));
    const auto from = static_cast<std::ptrdiff_t>(held.size() - prompt.size());
    const auto to = static_cast<std::ptrdiff_t>(position - prompt.size());
    held.insert(held.end(), made.begin() + from, made.begin() + to);
  }
  void take(Place next) {
    place = std::move(next);
    n_read = 0;
    generating = false;
  }
  /// Becomes free, and keeps its tokens.
  void clear(uint64_t step) {
    if (place.text != nullptr) place.text->release();
    place = {};
    last_use = step;
    saved = false;
  }
  void forget() {
    held.clear();
    last_use = 0;
    moe_error error;  // an empty session: nothing can fail
    (void)moe_session_rewind(session.get(), 0, &error);
  }
};

}  // namespace moe_serve
