// SPDX-License-Identifier: MIT
// Converts routers: text to moe_router and back, moe_router to RouterConfig and back; says which
// parameter is wrong and which are allowed.
#include "kernels/router/text.h"

#include <cmath>

#include "kernels/router/names.h"
#include "kernels/router/table.h"
#include "src/base/format.h"
#include "src/base/number.h"
#include "src/base/string.h"

namespace moe {
namespace {

// --- Members of moe_router -----------------------------------------------------------------------

// A number of moe_router and of RouterConfig. `count` or `number` is set.
struct Member {
  const char* name;  // as in kRouterFields
  int32_t moe_router::*count;
  float moe_router::*number;
};
constexpr Member kMembers[] = {
    {"k", &moe_router::k, nullptr},
    {"threshold", nullptr, &moe_router::threshold},
    {"min_k", &moe_router::min_k, nullptr},
    {"max_k", &moe_router::max_k, nullptr},
    {"scale", nullptr, &moe_router::scale},
    {"n_groups", &moe_router::n_groups, nullptr},
    {"top_groups", &moe_router::top_groups, nullptr},
    {"tau", nullptr, &moe_router::tau},
    {"cosine_eps", nullptr, &moe_router::cosine_eps},
    {"jitter", nullptr, &moe_router::jitter},
    {"gamma", nullptr, &moe_router::gamma},
    {"min_capacity", &moe_router::min_capacity, nullptr},
    {"resident", nullptr, &moe_router::resident},
};
static_assert(std::size(kMembers) == std::size(kRouterFields), "a number that moe_router lacks");

const Member* find_member(std::string_view name) {
  for (const Member& member : kMembers) {
    if (name == member.name) return &member;
  }
  return nullptr;
}

constexpr const RouterField* find_field(std::string_view name) {
  for (const RouterField& field : kRouterFields) {
    if (name == field.name) return &field;
  }
  return nullptr;
}

// A 0 of these is a value; of any other number it would be taken for "not said".
bool may_be_zero(const Member& m) {
  return m.number == &moe_router::threshold || m.number == &moe_router::resident;
}

double value(const moe_router& r, const Member& m) {
  return m.count != nullptr ? r.*m.count : static_cast<double>(r.*m.number);
}
double value(const RouterConfig& c, const RouterField& f) {
  return f.count != nullptr ? c.*f.count : static_cast<double>(c.*f.number);
}
void copy(const moe_router& r, const Member& m, RouterConfig* c) {
  const RouterField* field = find_field(m.name);
  if (m.count != nullptr) c->*field->count = r.*m.count;
  if (m.number != nullptr) c->*field->number = r.*m.number;
}
void copy(const RouterConfig& c, const Member& m, moe_router* r) {
  const RouterField* field = find_field(m.name);
  if (m.count != nullptr) r->*m.count = c.*field->count;
  if (m.number != nullptr) r->*m.number = c.*field->number;
}

// --- Kinds ---------------------------------------------------------------------------------------

constexpr const char* text_name(const RouterInfo& info) {
  return info.text != nullptr ? info.text : info.name;
}

// The number after a router's name, or null if it has none.
constexpr const RouterField* own_number(const RouterInfo& info) {
  if (info.has(kParamK)) return find_field("k");
  return info.has(kParamThreshold) ? find_field("threshold") : nullptr;
}

using Group = bool (*)(const RouterInfo&);
constexpr bool any_kind(const RouterInfo&) { return true; }
// A layer has no table of token ids.
constexpr bool of_layers(const RouterInfo& info) { return info.scores != RouterScores::kTable; }
constexpr bool of_overrides(const RouterInfo& info) {
  return info.selection == RouterOverride::kSelects;
}

// "topk:K, threshold:T, sparsemixer"
struct Listed {
  char text[256] = {};
  constexpr explicit Listed(Group group) {
    size_t used = 0;
    const auto add = [&](const char* more) {
      for (; *more != 0; ++more) text[used++] = *more;
    };
    for (const RouterInfo& info : kRouters) {
      if (!group(info)) continue;
      if (used > 0) add(", ");
      add(text_name(info));
      // By parameter: gcc 12 with UBSan cannot compare a member pointer in a constant.
      add(info.has(kParamK) ? ":K" : info.has(kParamThreshold) ? ":T" : "");
    }
  }
};
constexpr Listed kAllRouters(any_kind);
constexpr Listed kLayerRouters(of_layers);
constexpr Listed kOverrideRouters(of_overrides);

const RouterInfo* find_kind(std::string_view name, Group group) {
  for (const RouterInfo& info : kRouters) {
    if (group(info) && name == text_name(info)) return &info;
  }
  return nullptr;
}

Status check_kind(const char* name, Group group, const Listed& listed, const RouterInfo** out) {
  *out = find_kind(name, group);
  if (*out != nullptr) return {};
  return Status::error(MOE_ERR_ARGUMENT, "router: kind: expected one of %s, found '%.40s'",
                       listed.text, name);
}

template <size_t N>
int index_of(const char* const (&names)[N], std::string_view name) {
  for (size_t i = 0; i < N; ++i) {
    if (name == names[i]) return static_cast<int>(i);
  }
  return -1;
}

template <size_t N>
Status check_name(const char* field, const char* const (&names)[N], const char* given, int* out) {
  *out = index_of(names, given);
  if (*out >= 0) return {};
  char listed[64] = {};
  for (size_t i = 0, used = 0; i < N; ++i) {
    used += static_cast<size_t>(
        format(listed + used, sizeof listed - used, "%s%s", i == 0 ? "" : ", ", names[i]));
  }
  return Status::error(MOE_ERR_ARGUMENT, "router: %s: expected one of %s, found '%.40s'", field,
                       listed, given);
}

// --- Text ----------------------------------------------------------------------------------------

// The next part of `rest`, up to `separator`; `rest` moves past it.
std::string_view next_part(std::string_view* rest, char separator) {
  const size_t end = std::min(rest->find(separator), rest->size());
  const std::string_view part = slice(*rest, 0, end);
  *rest = slice(*rest, end + 1);
  return part;
}

// Sets the number; false if the text is not one, or not an integer where required, or it is set
// already, or it is a 0 that would be taken for a default.
bool read_number(const Member& member, std::string_view text, moe_router* r) {
  double v = 0;
  if (member.number == &moe_router::gamma && text == "inf") {
    v = static_cast<double>(INFINITY);
  } else if (!parse_number(text, &v) || std::isinf(static_cast<float>(v))) {
    return false;
  }
  if (value(*r, member) != 0) return false;
  if (static_cast<float>(v) == 0 && !may_be_zero(member)) return false;
  if (member.number != nullptr) {
    r->*member.number = static_cast<float>(v);
    return true;
  }
  if (v < INT32_MIN || v > INT32_MAX || v != static_cast<int32_t>(v)) return false;
  r->*member.count = static_cast<int32_t>(v);
  return true;
}

bool parse_kind(std::string_view text, moe_router* r) {
  const bool has_number = text.find(':') != std::string_view::npos;
  const RouterInfo* info = find_kind(next_part(&text, ':'), any_kind);
  if (info == nullptr || r->kind != nullptr) return false;
  r->kind = text_name(*info);
  const RouterField* number = own_number(*info);
  if (has_number) return number != nullptr && read_number(*find_member(number->name), text, r);
  return number == nullptr || number->count != nullptr;  // k has a default
}

bool parse_part(std::string_view part, moe_router* r) {
  if (part.find('=') != std::string_view::npos) {
    const std::string_view name = next_part(&part, '=');
    const Member* member = find_member(name);
    if (member != nullptr) return read_number(*member, part, r);
    const int gate = index_of(kCosineGateNames, part);
    if (name != "gate" || gate < 0 || r->gate != nullptr) return false;
    r->gate = kCosineGateNames[gate];
    return true;
  }
  const int weights = index_of(kRouterWeightNames, part);
  if (weights < 0) return parse_kind(part, r);
  if (r->weights != nullptr) return false;
  r->weights = kRouterWeightNames[weights];
  return true;
}

// A number that is refused because it is 0.
Status check_not_zero(std::string_view part) {
  const size_t at = part.find_last_of(":=");
  double v = 1;
  if (at == std::string_view::npos || !parse_number(slice(part, at + 1), &v)) return {};
  if (static_cast<float>(v) != 0) return {};
  return Status::error(MOE_ERR_RANGE, "router: '%.*s': expected a number other than 0%s",
                       static_cast<int>(std::min<size_t>(part.size(), 60)), part.data(),
                       slice(part, 0, at) == "gamma" ? "; gamma=inf means no limit" : "");
}

// Appends to a text, with a comma between its parts.
class TextWriter {
 public:
  explicit TextWriter(RouterText* out) : out_(*out) { out_ = {}; }

  void add(const char* name, const char* between = "", const char* rest = "") {
    out_.n_bytes +=
        static_cast<size_t>(format(out_.text + out_.n_bytes, sizeof out_.text - out_.n_bytes,
                                   "%s%s%s%s", out_.n_bytes == 0 ? "" : ",", name, between, rest));
  }
  void add(const char* name, const char* between, const moe_router& r, const Member& m) {
    char digits[32];
    if (m.count != nullptr) {
      format(digits, sizeof digits, "%d", r.*m.count);
    } else {
      write(r.*m.number, digits, sizeof digits);
    }
    add(name, between, digits);
  }

 private:
  // The fewest digits that are the same float, with an exponent only for the very small and large.
  static void write(float number, char* digits, size_t n_bytes) {
    const float size = std::fabs(number);
    const bool plain = size >= 1e-4f && size < 1e6f;
    for (int n = 1; n <= 9; ++n) {
      format(digits, n_bytes, "%.*g", n, static_cast<double>(number));
      double again = 0;
      if (plain && std::string_view(digits).find('e') != std::string_view::npos) continue;
      if (parse_number(digits, &again) && static_cast<float>(again) == number) return;
    }
  }

  RouterText& out_;
};

// --- Layers and overrides ------------------------------------------------------------------------

Status apply_weights(const moe_router& r, const RouterInfo& info, RouterConfig* c) {
  if (r.weights == nullptr) return {};
  int rule = 0;
  MOE_TRY(check_name("weights", kRouterWeightNames, r.weights, &rule));
  if (info.has(kParamTopkNorm) && rule <= static_cast<int>(RouterWeights::kRenormalised)) {
    c->topk_norm = static_cast<int8_t>(rule);
  } else if (info.has(kParamWeights)) {
    c->weights = static_cast<RouterWeights>(rule);
  } else {
    return Status::error(MOE_ERR_ARGUMENT, "router: weights: a %s router has no rule '%.40s'",
                         text_name(info), r.weights);
  }
  return {};
}

Status apply_gate(const moe_router& r, const RouterInfo& info, RouterConfig* c) {
  if (r.gate == nullptr) return {};
  if (!info.has(kParamGate)) {
    return Status::error(MOE_ERR_ARGUMENT, "router: a %s router has no gate", text_name(info));
  }
  int gate = 0;
  MOE_TRY(check_name("gate", kCosineGateNames, r.gate, &gate));
  c->gate = static_cast<CosineGate>(gate);
  return {};
}

// A cosine router may select by threshold instead of k.
bool takes_threshold(const RouterInfo& info, const RouterField& field) {
  return field.param == kParamThreshold && info.selection == RouterOverride::kByGate;
}

Status apply_to_layer(const moe_router& r, const RouterInfo& info, const Member& m,
                      RouterConfig* c) {
  if (value(r, m) == 0) return {};
  const RouterField& field = *find_field(m.name);
  if (field.param == 0 && field.number != &RouterConfig::scale) {
    return Status::error(MOE_ERR_ARGUMENT, "router: %s: a single layer has none", m.name);
  }
  if (field.param == kParamK && info.takes == r.k) return {};
  if (takes_threshold(info, field)) {
    c->by_threshold = true;
  } else if (field.param != 0 && (info.params & field.param) == 0) {
    return Status::error(MOE_ERR_ARGUMENT, "router: %s: a %s router has none", m.name,
                         text_name(info));
  }
  copy(r, m, c);
  return {};
}

Status need_softmax(const RouterConfig& r, const char* what) {
  if (has_softmax(r)) return {};
  return Status::error(MOE_ERR_UNSUPPORTED,
                       "router override: a %s router has no softmax over all experts %s",
                       router_info(r).name, what);
}

Status select_as(const RouterInfo& wanted, RouterConfig* r) {
  MOE_TRY(need_softmax(*r, "to select from"));
  if (r->n_groups > 1 && !wanted.has(kParamGroups)) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "router override: %s does not select from the best of %d groups, as this "
                         "model's router does",
                         text_name(wanted), r->n_groups);
  }
  const RouterInfo& info = router_info(*r);
  if (info.selection == RouterOverride::kByGate) {
    // The file's own k determines its weight rule; preserve that rule when k changes.
    r->topk_norm = gate_renormalises(*r) ? 1 : 0;
    r->by_threshold = wanted.has(kParamThreshold);
  } else {
    r->kind = wanted.kind;
  }
  return {};
}

bool same_text(const char* a, const char* b) {
  return a != nullptr && b != nullptr && std::string_view(a) == b;
}

// The selection that `r` names, with its number. `own` describes the file's.
Status apply_selection(const moe_router& r, const moe_router& own, RouterConfig* c) {
  const RouterField* number = nullptr;
  const bool stays = r.kind == nullptr ||
                     (same_text(r.kind, own.kind) && find_kind(r.kind, of_overrides) == nullptr);
  if (!stays) {
    const RouterInfo* wanted = nullptr;
    MOE_TRY(check_kind(r.kind, of_overrides, kOverrideRouters, &wanted));
    MOE_TRY(select_as(*wanted, c));
    number = own_number(*wanted);
    const Member& member = *find_member(number->name);
    // A threshold of 0 is the best expert alone; without a k the file's stays.
    if (number->number != nullptr || value(r, member) != 0) copy(r, member, c);
  }
  for (const char* name : {"k", "threshold"}) {
    const Member& member = *find_member(name);
    if (value(r, member) == 0 || number == find_field(name)) continue;
    if (stays && value(r, member) == value(own, member)) continue;
    return Status::error(MOE_ERR_ARGUMENT, "router override: %s needs a kind that has it: %s", name,
                         kOverrideRouters.text);
  }
  return {};
}

Status check_part_of_model(const char* name, const char* given, const char* own) {
  if (given == nullptr || same_text(given, own)) return {};
  return Status::error(MOE_ERR_ARGUMENT,
                       "router override: %s is a part of the model: expected %s, found '%.40s'",
                       name, own == nullptr ? "none" : own, given);
}

bool is_bound(const RouterField& f) {
  return f.count == &RouterConfig::min_k || f.count == &RouterConfig::max_k;
}
bool is_capacity(const RouterField& f) {
  return f.param == 0 && f.number != &RouterConfig::scale;  // and resident
}

Status apply_to_override(const moe_router& r, const moe_router& own, const Member& m,
                         RouterConfig* c) {
  const RouterField& field = *find_field(m.name);
  if (value(r, m) == 0 || m.count == &moe_router::k || m.number == &moe_router::threshold) {
    return {};
  }
  if (!is_bound(field) && !is_capacity(field)) {
    if (value(r, m) == value(own, m)) return {};
    return Status::error(MOE_ERR_ARGUMENT,
                         "router override: %s is a part of the model; expected %s, and gamma, "
                         "min_capacity, min_k, max_k, resident",
                         m.name, kOverrideRouters.text);
  }
  if (is_bound(field) && !selects_by_threshold(*c)) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "router override: min_k and max_k are bounds of threshold:T");
  }
  if (field.number == &RouterConfig::resident) MOE_TRY(need_softmax(*c, "for 'resident'"));
  copy(r, m, c);
  return {};
}

}  // namespace

Status parse_router(std::string_view text, moe_router* out) {
  moe_router r{};
  r.struct_size = sizeof r;
  for (size_t from = 0; !text.empty() && from <= text.size();) {
    const size_t end = std::min(text.find(',', from), text.size());
    const std::string_view part = slice(text, from, end - from);
    if (!parse_part(part, &r)) {
      MOE_TRY(check_not_zero(part));
      return Status::error(
          MOE_ERR_ARGUMENT,
          "router: cannot read '%.*s'; expected one of %s, and once each raw, renormalised, chosen "
          "or one, gate=softmax or sigmoid, k, threshold, min_k, max_k, scale, n_groups, "
          "top_groups, tau, cosine_eps, jitter, gamma, min_capacity, resident with =NUMBER",
          static_cast<int>(std::min<size_t>(part.size(), 60)), part.data(), kAllRouters.text);
    }
    from = end + 1;
  }
  *out = r;
  return {};
}

Status format_router(const moe_router& r, RouterText* out) {
  TextWriter writer(out);
  const RouterConfig defaults;
  const RouterInfo* info = nullptr;
  const RouterField* own = nullptr;
  if (r.kind != nullptr) {
    MOE_TRY(check_kind(r.kind, any_kind, kAllRouters, &info));
    own = own_number(*info);
    const double number = own == nullptr ? 0 : value(r, *find_member(own->name));
    if (number == 0 && (own == nullptr || own->count != nullptr)) {
      writer.add(r.kind);
    } else {
      writer.add(r.kind, ":", r, *find_member(own->name));
    }
  }
  int index = 0;
  if (r.weights != nullptr) {
    MOE_TRY(check_name("weights", kRouterWeightNames, r.weights, &index));
    if (index != 0 || (info != nullptr && info->has(kParamTopkNorm))) writer.add(r.weights);
  }
  if (r.gate != nullptr) {
    MOE_TRY(check_name("gate", kCosineGateNames, r.gate, &index));
    if (index != 0) writer.add("gate", "=", r.gate);
  }
  for (const Member& m : kMembers) {
    const double number = value(r, m);
    const RouterField* field = find_field(m.name);
    const bool fixed = m.count == &moe_router::k && info != nullptr && info->takes == r.k;
    if (number == 0 || field == own || fixed) continue;
    if (number != value(defaults, *field) || field->param == kParamK) {
      writer.add(m.name, "=", r, m);
    }
  }
  return {};
}

Status layer_router(const moe_router& r, RouterConfig* out) {
  const RouterInfo* info = nullptr;
  MOE_TRY(check_kind(r.kind == nullptr ? "topk" : r.kind, of_layers, kLayerRouters, &info));
  RouterConfig c;
  c.kind = info->kind;
  MOE_TRY(apply_weights(r, *info, &c));
  MOE_TRY(apply_gate(r, *info, &c));
  for (const Member& m : kMembers) MOE_TRY(apply_to_layer(r, *info, m, &c));
  *out = c;
  return {};
}

Status override_router(const RouterConfig& config, int32_t n_experts, const moe_router& r,
                       RouterConfig* out) {
  const moe_router own = describe_router(config, n_experts);
  MOE_TRY(check_part_of_model("weights", r.weights, own.weights));
  MOE_TRY(check_part_of_model("gate", r.gate, own.gate));
  RouterConfig c = config;
  MOE_TRY(apply_selection(r, own, &c));
  for (const Member& m : kMembers) MOE_TRY(apply_to_override(r, own, m, &c));
  if (std::isinf(c.gamma) && c.gamma > 0) c.gamma = 0;  // no limit
  MOE_TRY(validate_router(c, n_experts));
  *out = c;
  return {};
}

moe_router describe_router(const RouterConfig& c, int32_t n_experts) {
  const RouterInfo& info = router_info(c);
  const bool by_threshold = selects_by_threshold(c);
  moe_router r{};
  r.struct_size = sizeof r;
  r.kind = text_name(info);
  for (const Member& m : kMembers) {
    const RouterField& field = *find_field(m.name);
    const bool has = field.param == kParamThreshold ? by_threshold
                     : field.param == kParamK       ? info.has(kParamK) && !by_threshold
                                                    : (info.params & field.param) == field.param;
    if (has) copy(c, m, &r);
  }
  if (info.takes > 0 && !by_threshold) r.k = router_max_k(c, n_experts);
  if (info.has(kParamGate)) r.gate = kCosineGateNames[static_cast<size_t>(c.gate)];
  if (info.has(kParamTopkNorm))
    r.weights = kRouterWeightNames[gate_renormalises(c) ? 1 : 0];
  else if (info.has(kParamWeights))
    r.weights = kRouterWeightNames[static_cast<size_t>(c.weights)];
  return r;
}

const char* router_kind(size_t index) {
  return index < std::size(kRouters) ? text_name(kRouters[index]) : nullptr;
}

}  // namespace moe
