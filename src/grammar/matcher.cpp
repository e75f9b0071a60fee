// SPDX-License-Identifier: MIT
// Finds the tokens that may follow a text.
#include "src/grammar/grammar.h"

namespace moe::grammar {
namespace {

constexpr uint64_t kMaxMachineBytes = uint64_t{8} << 20;
constexpr size_t kMaxForced = 256;  // bytes looked at for a draft

}  // namespace

Matcher::Matcher(const Grammar& grammar)
    : grammar_(grammar),
      machine_(grammar.network(), grammar.allocator()),
      path_(grammar.allocator()),
      masks_(grammar.allocator()) {}

Status Matcher::init() {
  MOE_TRY(path_.resize(grammar_.tokens().max_depth() + 1));
  return machine_.init(&place_);
}

uint64_t Matcher::n_bytes() const {
  return machine_.n_bytes() + path_.size() * sizeof(Place) +
         masks_.size() * (sizeof(Mask) + grammar_.tokens().n_tokens() / 8);
}

Status Matcher::tidy() {
  if (machine_.n_bytes() < kMaxMachineBytes) return {};
  MOE_TRY(machine_.status());
  MOE_TRY(machine_.forget(&place_));
  for (Mask& m : masks_) m.place = Machine::kDead;
  if (machine_.n_bytes() < kMaxMachineBytes / 2) return {};
  return Status::error(MOE_ERR_TOO_LONG,
                       "grammar: the text is nested so deeply that its state needs more than %llu "
                       "MB",
                       static_cast<unsigned long long>(kMaxMachineBytes >> 21));
}

Status Matcher::allowed(const TokenSet** out) {
  for (const Mask& m : masks_) {
    if (m.place != place_) continue;
    *out = &m.tokens;
    return {};
  }
  if (masks_.size() < kMasks) {
    MOE_TRY(masks_.push(Mask(grammar_.allocator())));
    MOE_TRY(masks_.back().tokens.resize(grammar_.tokens().n_tokens()));
    next_mask_ = masks_.size() - 1;
  }
  Mask& m = masks_[next_mask_];
  next_mask_ = (next_mask_ + 1) % kMasks;
  m.place = Machine::kDead;
  m.tokens.clear();
  MOE_TRY(fill(place_, m.tokens));
  m.place = place_;
  *out = &m.tokens;
  return {};
}

Status Matcher::fill(Place place, TokenSet& to) {
  const TokenTrie& tokens = grammar_.tokens();
  if (!add_easy(place, to) && !add_all_but(place, to)) walk(tokens.easy(), place, to);
  walk(tokens.others(), place, to);
  return machine_.status();
}

void Matcher::walk(std::span<const TokenTrie::Node> nodes, Place place, TokenSet& to) {
  const TokenTrie& tokens = grammar_.tokens();
  path_[0] = place;
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& n = nodes[i];
    const Place next = machine_.step(path_[n.depth], n.byte);
    if (next == Machine::kDead) {
      i += n.skip;
      continue;
    }
    path_[n.depth + 1] = next;
    if (n.token >= 0) tokens.add(n, to);
    ++i;
  }
}

// Adds the easy tokens without a walk, if all easy characters lead to the same place, and from
// there again, as in a string. False if they do not.
bool Matcher::add_easy(Place place, TokenSet& to) {
  uint32_t n = 0;
  for (Place at = place; n < TokenTrie::kLengths; ++n) {
    Place next = Machine::kDead;
    if (!easy_step(at, &next)) return false;
    if (next == Machine::kDead) break;
    if (next == at) n = TokenTrie::kLengths - 1;
    at = next;
  }
  if (n > 0) to.add(grammar_.tokens().easy_up_to(n));
  return true;
}

// Adds the easy tokens where most characters lead to a place that all of them lead back to, as at a
// name that is none of those that are listed: only where the ways differ need be walked. False if
// there is no such place.
bool Matcher::add_all_but(Place place, TokenSet& to) {
  Place free = Machine::kDead;
  for (const char c : {' ', 'e', 'Q', '0', '_'}) {
    const Place next = machine_.step(place, static_cast<uint8_t>(c));
    Place after = Machine::kDead;
    if (next != Machine::kDead && easy_step(next, &after) && after == next) free = next;
    if (free != Machine::kDead) break;
  }
  if (free == Machine::kDead) return false;
  const TokenTrie& tokens = grammar_.tokens();
  const std::span<const TokenTrie::Node> nodes = tokens.easy();
  to.add(tokens.easy_up_to(TokenTrie::kLengths));
  // The places of a token's bytes, from `place` and from `free`: where they meet, all may follow.
  struct Pair {
    Place here;
    Place there;
  };
  Pair path[4 * TokenTrie::kLengths + 1];
  path[0] = {place, free};
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& n = nodes[i];
    const Pair at = path[n.depth];
    const Place next = machine_.step(at.here, n.byte);
    const Place other = machine_.step(at.there, n.byte);
    if (next == Machine::kDead) tokens.remove(nodes, i, to);
    if (next == Machine::kDead || next == other) {
      i += n.skip;
      continue;
    }
    path[n.depth + 1] = {next, other};
    ++i;
  }
  return true;
}

// *to: the place to which all easy characters lead (kDead: none may follow); false if there is no
// such place.
bool Matcher::easy_step(Place at, Place* to) {
  *to = machine_.step(at, ' ');
  if (!all_lead_to(at, {' ' + 1, '"' - 1}, 0, *to)) return false;
  if (!all_lead_to(at, {'"' + 1, '\\' - 1}, 0, *to)) return false;
  if (!all_lead_to(at, {'\\' + 1, 0x7E}, 0, *to)) return false;
  struct Lead {
    Bytes first, second;
    uint32_t n_more;
  };
  static constexpr Lead kLeads[] = {
      {{0xC2, 0xDF}, {0x80, 0xBF}, 0}, {{0xE0, 0xE0}, {0xA0, 0xBF}, 1},
      {{0xE1, 0xEC}, {0x80, 0xBF}, 1}, {{0xED, 0xED}, {0x80, 0x9F}, 1},
      {{0xEE, 0xEF}, {0x80, 0xBF}, 1}, {{0xF0, 0xF0}, {0x90, 0xBF}, 2},
      {{0xF1, 0xF3}, {0x80, 0xBF}, 2}, {{0xF4, 0xF4}, {0x80, 0x8F}, 2}};
  for (const Lead& lead : kLeads) {
    const bool same = each_step(at, lead.first, [&](Place next) {
      if (next == Machine::kDead) return *to == Machine::kDead;
      return all_lead_to(next, lead.second, lead.n_more, *to);
    });
    if (!same) return false;
  }
  return true;
}

// Whether f is true for every place that a byte of the range leads to.
template <class F>
bool Matcher::each_step(Place at, Bytes range, F&& f) {
  const Network& network = machine_.network();
  Place last = at;  // checked already
  bool any = false;
  for (uint32_t b = range.low; b <= range.high; ++b) {
    const auto byte = static_cast<uint8_t>(b);
    if (b > range.low && network.class_of(byte) == network.class_of(static_cast<uint8_t>(b - 1))) {
      continue;
    }
    const Place next = machine_.step(at, byte);
    if (any && next == last) continue;
    if (!f(next)) return false;
    last = next;
    any = true;
  }
  return true;
}

bool Matcher::all_lead_to(Place at, Bytes range, uint32_t n_more, Place to) {
  return each_step(at, range, [&](Place next) {
    if (n_more == 0 || next == Machine::kDead) return next == to;
    return all_lead_to(next, {0x80, 0xBF}, n_more - 1, to);
  });
}

Status Matcher::accept_text(std::string_view text, bool* fits) {
  Place at = place_;
  for (const char c : text) {
    at = machine_.step(at, static_cast<uint8_t>(c));
    if (at == Machine::kDead) break;
  }
  // A known step stays right when a later one has failed, as one of a draft may have.
  if (at == Machine::kDead) MOE_TRY(machine_.status());
  *fits = at != Machine::kDead && !text.empty();
  if (*fits) place_ = at;
  return {};
}

Status Matcher::forced(size_t most, Array<char>& bytes) {
  Place at = place_;
  while (bytes.size() < most && !machine_.may_end(at)) {
    int only = -1;
    for (uint32_t b = 0; b < 256; ++b) {
      if (machine_.step(at, static_cast<uint8_t>(b)) == Machine::kDead) continue;
      if (only >= 0) return machine_.status();
      only = static_cast<int>(b);
    }
    if (only < 0) break;
    MOE_TRY(bytes.push(static_cast<char>(only)));
    at = machine_.step(at, static_cast<uint8_t>(only));
  }
  return machine_.status();
}

Status Matcher::draft(size_t room, int32_t* tokens, size_t* n) {
  Array<char> bytes(grammar_.allocator());
  *n = 0;
  MOE_TRY(forced(kMaxForced, bytes));
  std::string_view rest(bytes.data(), bytes.size());
  while (*n < room && !rest.empty()) {
    const int32_t token = grammar_.tokens().longest(rest);
    if (token < 0) break;
    tokens[(*n)++] = token;
    rest.remove_prefix(grammar_.tokens().text(token).size());
  }
  return {};
}

}  // namespace moe::grammar
