// SPDX-License-Identifier: MIT
#pragma once
// Keeps two calls from changing a chat at the same time. Private to src/run.

#include <atomic>

#include "src/base/status.h"

namespace moe {

/// Marks a chat as being changed during its lifetime.
class Change {
 public:
  explicit Change(std::atomic<bool>& busy) : busy_(busy), mine_(!busy.exchange(true)) {}
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  ~Change() {
    if (mine_) busy_.store(false);
  }
  Status status() const {
    if (mine_) return {};
    return Status::error(MOE_ERR_STATE, "the chat is in use by another call");
  }

 private:
  std::atomic<bool>& busy_;
  bool mine_;
};

}  // namespace moe
