// SPDX-License-Identifier: MIT
#include "kernels/router/text.h"

#include "kernels/router/table.h"
#include "src/base/number.h"
#include "src/base/string.h"

namespace moe {
namespace {

// The next part of `rest`, up to `separator`; `rest` moves past it.
std::string_view next_part(std::string_view* rest, char separator) {
  const size_t end = std::min(rest->find(separator), rest->size());
  const std::string_view part = slice(*rest, 0, end);
  *rest = slice(*rest, end + 1);
  return part;
}

// Sets the field; false if the text is not a number, or not an integer where required.
bool read_field(const RouterField& field, std::string_view text, RouterConfig* r) {
  double v = 0;
  if (!parse_number(text, &v)) return false;
  if (field.number != nullptr) {
    r->*field.number = static_cast<float>(v);
    return true;
  }
  if (!(v >= -1e6 && v <= 1e6) || v != static_cast<double>(static_cast<int32_t>(v))) return false;
  r->*field.count = static_cast<int32_t>(v);
  return true;
}

constexpr const RouterField* find_field(std::string_view name) {
  for (const RouterField& field : kRouterFields) {
    if (name == field.name) return &field;
  }
  return nullptr;
}

// --- A layer's router ----------------------------------------------------------------------------

constexpr const char* text_name(const RouterInfo& info) {
  return info.text != nullptr ? info.text : info.name;
}

// The number after a router's name, or null if it has none.
constexpr const RouterField* own_number(const RouterInfo& info) {
  if (info.has(kParamK)) return find_field("k");
  return info.has(kParamThreshold) ? find_field("threshold") : nullptr;
}

// A layer has no table of token ids.
constexpr bool of_layers(const RouterInfo& info) { return info.scores != RouterScores::kTable; }
constexpr bool of_overrides(const RouterInfo& info) {
  return info.selection == RouterOverride::kSelects;
}

using Group = bool (*)(const RouterInfo&);

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
constexpr Listed kLayerRouters(of_layers);
constexpr Listed kOverrideRouters(of_overrides);

const RouterInfo* find_text(std::string_view name, Group group) {
  for (const RouterInfo& info : kRouters) {
    if (group(info) && name == text_name(info)) return &info;
  }
  return nullptr;
}

bool parse_kind(std::string_view text, RouterConfig* r) {
  const bool has_number = text.find(':') != std::string_view::npos;
  const RouterInfo* info = find_text(next_part(&text, ':'), of_layers);
  if (info == nullptr) return false;
  r->kind = info->kind;
  const RouterField* number = own_number(*info);
  if (has_number) return number != nullptr && read_field(*number, text, r);
  return number == nullptr || number->count != nullptr;  // k defaults to 1
}

bool parse_option(std::string_view option, RouterConfig* r) {
  if (option == "renormalise") {
    r->weights = RouterWeights::kRenormalised;
    r->topk_norm = 1;
    return true;
  }
  if (option == "chosen" || option == "one") {
    r->weights = option == "one" ? RouterWeights::kOne : RouterWeights::kChosen;
    return true;
  }
  const RouterField* field = find_field(next_part(&option, '='));
  if (field == nullptr) return false;
  // A layer has no capacity, and its text begins with the number of experts.
  const bool other = field->param == 0 && field->number != &RouterConfig::scale;
  const bool twice = field->count == &RouterConfig::k || field->number == &RouterConfig::threshold;
  if (other || twice) return false;
  const uint32_t params = router_info(*r).params | kParamTau;  // other routers ignore tau
  return (field->param == 0 || (field->param & params) != 0) && read_field(*field, option, r);
}

// --- Overrides -----------------------------------------------------------------------------------

// The fields that an override may set, and how its message lists them.
constexpr const char kOverrideFields[] = "gamma=G, min_capacity=C, min_k=A, max_k=B, resident=P";

const RouterField* find_override(std::string_view name) {
  std::string_view rest = kOverrideFields;
  while (!rest.empty()) {
    std::string_view known = next_part(&rest, ' ');
    if (next_part(&known, '=') == name) return find_field(name);
  }
  return nullptr;
}

Status bad_text(std::string_view part) {
  return Status::error(MOE_ERR_ARGUMENT,
                       "router override: cannot read '%.*s'; expected one of %s, then %s",
                       static_cast<int>(std::min<size_t>(part.size(), 80)), part.data(),
                       kOverrideRouters.text, kOverrideFields);
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

Status apply_part(RouterConfig* r, std::string_view part) {
  std::string_view value = part;
  const RouterField* field = nullptr;
  if (part.find(':') != std::string_view::npos) {
    const RouterInfo* wanted = find_text(next_part(&value, ':'), of_overrides);
    if (wanted == nullptr) return bad_text(part);
    MOE_TRY(select_as(*wanted, r));
    field = own_number(*wanted);
  } else {
    const std::string_view name = next_part(&value, '=');
    field = find_override(name);
    if (name == "resident") MOE_TRY(need_softmax(*r, "for 'resident'"));
  }
  return field != nullptr && read_field(*field, value, r) ? Status() : bad_text(part);
}

}  // namespace

Status parse_router(std::string_view text, RouterConfig* out) {
  RouterConfig r;
  std::string_view rest = text;
  bool known = parse_kind(next_part(&rest, ','), &r);
  while (known && !rest.empty()) known = parse_option(next_part(&rest, ','), &r);
  if (!known) {
    return Status::error(
        MOE_ERR_ARGUMENT,
        "params.router: expected %s, with ,renormalise ,chosen ,one ,scale=S ,tau=T "
        ",n_groups=N ,top_groups=N, found '%.*s'",
        kLayerRouters.text, static_cast<int>(std::min<size_t>(text.size(), 80)), text.data());
  }
  *out = r;
  return {};
}

const char* override_routers() { return kOverrideRouters.text; }

Status override_router(const RouterConfig& config, int32_t n_experts, std::string_view text,
                       RouterConfig* out) {
  RouterConfig r = config;
  bool bounds = false;
  for (size_t from = 0; from <= text.size();) {
    size_t end = text.find(',', from);
    if (end == std::string_view::npos) end = text.size();
    const std::string_view part = slice(text, from, end - from);
    MOE_TRY(apply_part(&r, part));
    bounds = bounds || part.starts_with("min_k") || part.starts_with("max_k");
    from = end + 1;
  }
  if (bounds && !selects_by_threshold(r)) {
    return Status::error(MOE_ERR_ARGUMENT,
                         "router override: min_k and max_k are bounds of threshold:T");
  }
  MOE_TRY(validate_router(r, n_experts));
  *out = r;
  return {};
}

}  // namespace moe
