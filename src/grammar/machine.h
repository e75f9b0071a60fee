// SPDX-License-Identifier: MIT
#pragma once
// Runs a network over bytes. Its states are built when a text first needs them, and kept.

#include "src/grammar/network.h"

namespace moe::grammar {

/// A place in a text that is being read: a node of the network, and the frame of the rule's
/// callers, which says where the text goes on after the rule. count: how often a kRepeat node has
/// read its rule.
struct Item {
  uint32_t node;
  uint32_t frame;
  uint32_t count;
  friend bool operator==(const Item&, const Item&) = default;
};

/// All readings of a text at once: a state is a set of items, and a frame the set of the items that
/// follow a rule's end. Equal sets are the same state or frame (a graph-structured stack, Tomita
/// 1985, with shared sets), so that a text that repeats itself meets the same states again, and
/// left recursion and ambiguity cost no more than the sets. A call at the end of a rule keeps its
/// caller's frame. One thread.
class Machine final {
 public:
  static constexpr uint32_t kDead = ~uint32_t{0};

  Machine(const Network& network, const Allocator& allocator);
  /// *start: the state before the first byte.
  Status init(uint32_t* start);

  /// The state after one more byte; kDead if no text of the grammar goes on like that. On failure,
  /// which status() tells, kDead.
  uint32_t step(uint32_t state, uint8_t byte) {
    uint32_t& cell = rows_[size_t{state} * network_.n_classes() + network_.class_of(byte)];
    return cell != kUnknown ? cell : advance(state, byte);
  }
  /// The text so far satisfies the grammar.
  bool may_end(uint32_t state) const { return states_[state].may_end; }
  /// Nothing may follow.
  bool must_end(uint32_t state) const { return states_[state].n_items == 0; }
  const Network& network() const { return network_; }
  const Status& status() const { return status_; }
  uint32_t n_states() const { return static_cast<uint32_t>(states_.size()); }
  uint64_t n_bytes() const;
  /// Forgets all states but *state, which gets a new number.
  Status forget(uint32_t* state);

 private:
  static constexpr uint32_t kUnknown = kDead - 1;
  static constexpr uint32_t kRootFrame = 0;  // the end of the text
  static constexpr uint32_t kLocal = uint32_t{1} << 31;

  struct List {
    uint32_t first = 0;
    uint32_t n = 0;
  };
  struct State {
    uint32_t first_item = 0;
    uint32_t n_items = 0;
    bool may_end = false;
  };
  // A frame made while a state is closed, whose callers are not all known yet.
  struct LocalFrame {
    uint32_t rule = 0;
    uint32_t frame = kUnknown;  // once it is known
    bool visited = false;
  };
  struct Caller {
    uint32_t local;
    Item item;
    uint32_t next;  // the next caller of the same local frame
  };

  uint32_t advance(uint32_t state, uint8_t byte);
  Status close(uint32_t* state);
  Status expand(const Item& item);
  Status reach(const Item& item);
  Status enter(uint32_t rule, const Item& then);
  Status resolve_frames();
  Status resolve(uint32_t local, uint32_t depth, uint32_t* frame);
  Status intern_frame(Array<Item>& content, uint32_t given, uint32_t* frame);
  Status intern_state(uint32_t* state);
  Status add_state(std::span<const Item> items, bool may_end, uint32_t* state);
  Status rehash();

  const Network& network_;
  const Allocator& allocator_;
  Status status_;
  Array<Item> items_;  // of all states
  Array<State> states_;
  Array<uint32_t> rows_;  // (states, classes)
  Array<Item> frame_items_;
  Array<List> frames_;
  Array<uint32_t> state_slots_;  // hash tables of ids + 1
  Array<uint32_t> frame_slots_;
  // Scratch of close():
  Array<Item> work_;
  Array<Item> reached_;
  Array<uint32_t> reached_slots_;  // index in reached_ + 1
  Array<LocalFrame> locals_;
  Array<uint32_t> first_caller_;  // per local frame
  Array<Caller> callers_;
  Array<uint32_t> local_of_rule_;  // + 1
  bool may_end_ = false;
};

}  // namespace moe::grammar
