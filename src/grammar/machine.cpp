// SPDX-License-Identifier: MIT
// Closes sets of items, and keeps equal ones once.
#include "src/grammar/machine.h"

#include "src/grammar/keys.h"

namespace moe::grammar {
namespace {

// Between two tokens it is a few megabytes (Matcher::tidy); all tokens of a mask come between.
constexpr uint64_t kMostBytes = 64 << 20;

constexpr size_t kMaxItems = 1 << 15;    // of a state: beyond that a grammar is too ambiguous
constexpr uint32_t kMaxFrameDepth = 64;  // of frames that a single byte may open inside each other

uint64_t hash(const Item& item) { return mix(mix(mix(0, item.node), item.frame), item.count); }

uint64_t hash(std::span<const Item> items) {
  uint64_t h = items.size();
  for (const Item& item : items) h = mix(h, hash(item));
  return h;
}

bool less(const Item& a, const Item& b) {
  if (a.node != b.node) return a.node < b.node;
  return a.frame != b.frame ? a.frame < b.frame : a.count < b.count;
}

void sort_once(Array<Item>& items) {
  std::sort(items.begin(), items.end(), less);
  Item* const end = std::unique(items.begin(), items.end());
  while (items.end() != end) items.pop();
}

// The slot of a table (a power of two, not full) that holds an id + 1 for which same() is true, or
// is free.
template <class Same>
uint32_t& find_slot(Array<uint32_t>& slots, uint64_t h, Same&& same) {
  size_t i = static_cast<size_t>(h) & (slots.size() - 1);
  while (slots[i] != 0 && !same(slots[i] - 1)) i = (i + 1) & (slots.size() - 1);
  return slots[i];
}

Status reset_slots(Array<uint32_t>& slots, size_t n) {
  slots.clear();
  return slots.resize(n);
}

}  // namespace

Machine::Machine(const Network& network, const Allocator& allocator)
    : network_(network),
      allocator_(allocator),
      items_(allocator),
      states_(allocator),
      rows_(allocator),
      frame_items_(allocator),
      frames_(allocator),
      state_slots_(allocator),
      frame_slots_(allocator),
      work_(allocator),
      reached_(allocator),
      reached_slots_(allocator),
      locals_(allocator),
      first_caller_(allocator),
      callers_(allocator),
      local_of_rule_(allocator) {}

Status Machine::init(uint32_t* start) {
  MOE_TRY(local_of_rule_.resize(network_.n_rules()));
  MOE_TRY(reset_slots(state_slots_, 64));
  MOE_TRY(reset_slots(frame_slots_, 64));
  MOE_TRY(reset_slots(reached_slots_, 64));
  MOE_TRY(frames_.push({}));  // kRootFrame
  MOE_TRY(work_.push({network_.root(), kRootFrame, 0}));
  return close(start);
}

uint64_t Machine::n_bytes() const {
  return (items_.capacity() + frame_items_.capacity()) * sizeof(Item) +
         states_.capacity() * sizeof(State) + frames_.capacity() * sizeof(List) +
         (rows_.capacity() + state_slots_.capacity() + frame_slots_.capacity()) * sizeof(uint32_t);
}

uint32_t Machine::advance(uint32_t state, uint8_t byte) {
  if (status_.ok() && n_bytes() > kMostBytes) {
    status_ = Status::error(MOE_ERR_TOO_LONG, "grammar: one token has too many ways to go on");
  }
  if (!status_.ok()) return kDead;
  work_.clear();
  const State from = states_[state];
  for (uint32_t i = 0; i < from.n_items; ++i) {
    const Item item = items_[from.first_item + i];
    for (const Edge& e : network_.edges(network_.node(item.node))) {
      if (byte < e.low || byte > e.high) continue;
      status_ = work_.push({e.next, item.frame, 0});
      if (!status_.ok()) return kDead;
    }
  }
  uint32_t to = kDead;
  if (!work_.empty()) status_ = close(&to);
  if (!status_.ok()) return kDead;
  rows_[size_t{state} * network_.n_classes() + network_.class_of(byte)] = to;
  return to;
}

// The state of the items in work_ and all that follow from them without reading.
Status Machine::close(uint32_t* state) {
  may_end_ = false;
  reached_.clear();
  locals_.clear();
  first_caller_.clear();
  callers_.clear();
  MOE_TRY(reset_slots(reached_slots_, 64));
  for (size_t i = work_.size(); i-- > 0;) {  // the first of them are not new
    const Item item = work_[i];
    work_.pop();
    MOE_TRY(reach(item));
  }
  for (size_t next = 0; next < reached_.size(); ++next) {
    const Item item = reached_[next];
    MOE_TRY(expand(item));
  }
  const Status status = resolve_frames();
  for (const LocalFrame& l : locals_) local_of_rule_[l.rule] = 0;
  MOE_TRY(status);
  return intern_state(state);
}

// Adds an item unless it is there.
Status Machine::reach(const Item& item) {
  if (2 * reached_.size() >= reached_slots_.size()) {
    MOE_TRY(reset_slots(reached_slots_, 2 * reached_slots_.size()));
    for (uint32_t i = 0; i < reached_.size(); ++i) {
      find_slot(reached_slots_, hash(reached_[i]), [](uint32_t) { return false; }) = i + 1;
    }
  }
  uint32_t& slot =
      find_slot(reached_slots_, hash(item), [&](uint32_t i) { return reached_[i] == item; });
  if (slot != 0) return {};
  if (reached_.size() == kMaxItems) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "grammar: too ambiguous: more than %zu ways to read the text so far",
                         kMaxItems);
  }
  slot = static_cast<uint32_t>(reached_.size() + 1);
  return reached_.push(item);
}

Status Machine::expand(const Item& item) {
  const Node& n = network_.node(item.node);
  switch (n.kind) {
    case Node::kBytes:
      return {};
    case Node::kStop: {
      // After a local frame's rule nothing was read: nullable() has told its callers.
      if ((item.frame & kLocal) != 0) return {};
      if (item.frame == kRootFrame) may_end_ = true;
      const List callers = frames_[item.frame];
      for (uint32_t i = 0; i < callers.n; ++i) MOE_TRY(reach(frame_items_[callers.first + i]));
      return {};
    }
    case Node::kSplit:
      for (const uint32_t t : network_.targets(n)) MOE_TRY(reach({t, item.frame, 0}));
      return {};
    case Node::kCall:
      if (n.next() == kEnd) return reach({network_.start(n.rule()), item.frame, 0});
      if (network_.nullable(n.rule())) MOE_TRY(reach({n.next(), item.frame, 0}));
      return enter(n.rule(), {n.next(), item.frame, 0});
    case Node::kRepeat: {
      const Counts counts = network_.counts(n);
      const uint32_t min = network_.nullable(n.rule()) ? 0 : counts.min;
      if (item.count >= min) MOE_TRY(reach({n.next(), item.frame, 0}));
      if (item.count >= counts.max) return {};
      const uint32_t count =
          counts.max == kNoLimit ? std::min(item.count + 1, min) : item.count + 1;
      return enter(n.rule(), {item.node, item.frame, count});
    }
  }
  return {};
}

// Begins a rule after which the text goes on with `then`.
Status Machine::enter(uint32_t rule, const Item& then) {
  uint32_t& local = local_of_rule_[rule];
  if (local == 0) {
    MOE_TRY(locals_.push({.rule = rule}));
    MOE_TRY(first_caller_.push(kUnknown));
    local = static_cast<uint32_t>(locals_.size());
    MOE_TRY(reach({network_.start(rule), kLocal | (local - 1), 0}));
  }
  MOE_TRY(callers_.push({local - 1, then, first_caller_[local - 1]}));
  first_caller_[local - 1] = static_cast<uint32_t>(callers_.size() - 1);
  return {};
}

// Replaces local frames by kept ones. One that is its own caller (left recursion), or lies very
// deep, gets a number before its content is known, and is not compared with others.
Status Machine::resolve_frames() {
  for (uint32_t i = 0; i < locals_.size(); ++i) {
    uint32_t frame = 0;
    MOE_TRY(resolve(i, 0, &frame));
  }
  return {};
}

Status Machine::resolve(uint32_t local, uint32_t depth, uint32_t* frame) {
  LocalFrame& l = locals_[local];
  const bool busy = l.visited && l.frame == kUnknown;
  if (l.frame == kUnknown && (busy || depth > kMaxFrameDepth)) {
    l.frame = static_cast<uint32_t>(frames_.size());
    MOE_TRY(frames_.push({}));
  }
  if (l.visited || depth > kMaxFrameDepth) {
    *frame = l.frame;
    return {};
  }
  l.visited = true;
  Array<Item> content(allocator_);
  for (uint32_t c = first_caller_[local]; c != kUnknown; c = callers_[c].next) {
    Item item = callers_[c].item;
    if ((item.frame & kLocal) != 0) MOE_TRY(resolve(item.frame & ~kLocal, depth + 1, &item.frame));
    MOE_TRY(content.push(item));
  }
  MOE_TRY(intern_frame(content, l.frame, frame));
  l.frame = *frame;
  return {};
}

// given: the number that the frame has already; kUnknown: none.
Status Machine::intern_frame(Array<Item>& content, uint32_t given, uint32_t* frame) {
  sort_once(content);
  uint32_t* slot = nullptr;
  if (given == kUnknown) {
    if (2 * frames_.size() >= frame_slots_.size()) MOE_TRY(rehash());
    slot = &find_slot(frame_slots_, hash(content.span()), [&](uint32_t f) {
      const Item* const first = frame_items_.data() + frames_[f].first;
      return frames_[f].n == content.size() && std::equal(content.begin(), content.end(), first);
    });
    if (*slot != 0) {
      *frame = *slot - 1;
      return {};
    }
    given = static_cast<uint32_t>(frames_.size());
    MOE_TRY(frames_.push({}));
    *slot = given + 1;
  }
  frames_[given] = {static_cast<uint32_t>(frame_items_.size()),
                    static_cast<uint32_t>(content.size())};
  *frame = given;
  return frame_items_.append(content.data(), content.size());
}

Status Machine::intern_state(uint32_t* state) {
  work_.clear();
  for (Item item : reached_) {
    if (network_.node(item.node).kind != Node::kBytes) continue;
    if ((item.frame & kLocal) != 0) item.frame = locals_[item.frame & ~kLocal].frame;
    MOE_TRY(work_.push(item));
  }
  sort_once(work_);
  const Status status = add_state(work_.span(), may_end_, state);
  work_.clear();
  return status;
}

Status Machine::add_state(std::span<const Item> items, bool may_end, uint32_t* state) {
  if (2 * states_.size() >= state_slots_.size()) MOE_TRY(rehash());
  uint32_t& slot = find_slot(state_slots_, hash(items) + may_end, [&](uint32_t s) {
    const State& other = states_[s];
    return other.n_items == items.size() && other.may_end == may_end &&
           std::equal(items.begin(), items.end(), items_.data() + other.first_item);
  });
  if (slot != 0) {
    *state = slot - 1;
    return {};
  }
  const auto id = static_cast<uint32_t>(states_.size());
  const auto first = static_cast<uint32_t>(items_.size());
  MOE_TRY(items_.append(items.data(), items.size()));
  MOE_TRY(states_.push({first, static_cast<uint32_t>(items.size()), may_end}));
  const size_t n = rows_.size();
  if (n + network_.n_classes() > rows_.capacity()) {
    MOE_TRY(rows_.reserve(std::max<size_t>(64 * network_.n_classes(), 2 * n)));
  }
  MOE_TRY(rows_.resize(n + network_.n_classes()));
  std::fill(rows_.begin() + n, rows_.end(), kUnknown);
  slot = id + 1;
  *state = id;
  return {};
}

// Makes both tables large enough for what there is.
Status Machine::rehash() {
  size_t n = 64;
  while (n < 4 * states_.size()) n *= 2;
  MOE_TRY(reset_slots(state_slots_, n));
  const auto other = [](uint32_t) { return false; };
  for (uint32_t i = 0; i < states_.size(); ++i) {
    const State& s = states_[i];
    find_slot(state_slots_, hash({items_.data() + s.first_item, s.n_items}) + s.may_end, other) =
        i + 1;
  }
  n = 64;
  while (n < 4 * frames_.size()) n *= 2;
  MOE_TRY(reset_slots(frame_slots_, n));
  for (uint32_t i = 0; i < frames_.size(); ++i) {
    const List& f = frames_[i];
    find_slot(frame_slots_, hash({frame_items_.data() + f.first, f.n}), other) = i + 1;
  }
  return {};
}

Status Machine::forget(uint32_t* state) {
  // The frames that the state needs, and their new numbers.
  Array<uint32_t> renamed(allocator_);
  MOE_TRY(renamed.resize(frames_.size()));
  Array<uint32_t> needed(allocator_);
  const auto need = [&](std::span<const Item> items) -> Status {
    for (const Item& item : items) {
      if (renamed[item.frame] != 0) continue;
      renamed[item.frame] = 1;
      MOE_TRY(needed.push(item.frame));
    }
    return {};
  };
  const State kept = states_[*state];
  const Item root = {kEnd, kRootFrame, 0};
  MOE_TRY(need({&root, 1}));
  MOE_TRY(need({items_.data() + kept.first_item, kept.n_items}));
  for (size_t i = 0; i < needed.size(); ++i) {
    const List f = frames_[needed[i]];
    MOE_TRY(need({frame_items_.data() + f.first, f.n}));
  }
  std::sort(needed.begin(), needed.end());
  for (uint32_t i = 0; i < needed.size(); ++i) renamed[needed[i]] = i;
  const auto copy = [&](const Item* from, uint32_t n, Array<Item>& to) -> Status {
    for (uint32_t i = 0; i < n; ++i) {
      MOE_TRY(to.push({from[i].node, renamed[from[i].frame], from[i].count}));
    }
    return {};
  };
  Array<Item> frame_items(allocator_);
  Array<List> frames(allocator_);
  for (const uint32_t old : needed) {
    const List f = frames_[old];
    MOE_TRY(frames.push({static_cast<uint32_t>(frame_items.size()), f.n}));
    MOE_TRY(copy(frame_items_.data() + f.first, f.n, frame_items));
  }
  Array<Item> items(allocator_);
  MOE_TRY(copy(items_.data() + kept.first_item, kept.n_items, items));
  sort_once(items);
  frame_items_ = std::move(frame_items);
  frames_ = std::move(frames);
  items_ = Array<Item>(allocator_);
  states_ = Array<State>(allocator_);
  rows_ = Array<uint32_t>(allocator_);
  MOE_TRY(rehash());
  return add_state(items.span(), kept.may_end, state);
}

}  // namespace moe::grammar
