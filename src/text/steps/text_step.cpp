// SPDX-License-Identifier: MIT
// Finds and replaces a pattern or a plain string, as a step's specification says.
#include "src/text/steps/text_step.h"

#include "src/text/characters/utf8.h"

namespace moe {

Status Finder::create(const TextStepSpec& spec, const RegexLibrary& library,
                      const Allocator& allocator) {
  if (spec.regex) return regex_.create(spec.pattern, library, allocator);
  if (spec.pattern.empty() || spec.pattern.size() > kMaxContentBytes ||
      !utf8_is_valid(spec.pattern)) {
    return Status::error(MOE_ERR_FORMAT,
                         "pattern: expected 1 to %zu bytes of UTF-8, found %zu bytes",
                         kMaxContentBytes, spec.pattern.size());
  }
  literal_ = spec.pattern;
  return {};
}

Status Finder::replace(std::string_view text, std::string_view content, RegexSearch& search,
                       Array<char>& out) const {
  size_t done = 0;
  const auto put = [&](size_t begin, size_t end) -> Status {
    MOE_TRY(append(out, slice(text, done, begin - done)));
    done = end;
    return append(out, content);
  };
  MOE_TRY(for_each(text, search, put));
  return append(out, slice(text, done));
}

}  // namespace moe
