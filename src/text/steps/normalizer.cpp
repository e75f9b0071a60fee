// SPDX-License-Identifier: MIT
// Creates and runs the steps of a normaliser, each from one buffer to the other.
#include "src/text/steps/normalizer.h"

#include "src/text/characters/byte_level.h"
#include "src/text/characters/utf8.h"
#include "src/text/steps/bert_normalizer.h"

namespace moe {
namespace {

// Applies SentencePiece's NMT rules to a character; 0 = removed.
uint32_t nmt(uint32_t c) {
  if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
      c == 0x9F) {
    return 0;
  }
  if (c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
      c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD) {
    return ' ';
  }
  return c;
}

Status put(Array<char>& out, uint32_t code) {
  char bytes[4];
  return append(out, {bytes, utf8_write(code, bytes)});
}

Status lowercase(std::string_view text, Array<char>& out) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_next(text.data() + i);
    i += c.length;
    uint32_t lower[2];
    const uint32_t n = lower_case(c.code, lower);
    for (uint32_t k = 0; k < n; ++k) MOE_TRY(put(out, lower[k]));
  }
  return {};
}

// Maps each character: f returns the new one, or ~0 for none.
template <class F>
Status map_characters(std::string_view text, Array<char>& out, bool* at_start, F&& f) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_next(text.data() + i);
    const uint32_t mapped = f(c.code);
    if (mapped != ~0U) MOE_TRY(put(out, mapped));
    if (mapped == ~0U && i == 0) *at_start = false;
    i += c.length;
  }
  return {};
}

std::string_view strip(std::string_view text, bool left, bool right, bool* at_start) {
  while (left && !text.empty()) {
    const Utf8Char c = utf8_next(text.data());
    if (!is_white_space(c.code)) break;
    text.remove_prefix(c.length);
    *at_start = false;
  }
  while (right && !text.empty()) {
    const uint32_t n = utf8_previous_length(text.data() + text.size());
    if (!is_white_space(utf8_next(text.data() + text.size() - n).code)) break;
    text.remove_suffix(n);
  }
  return text;
}

}  // namespace

Status Normalizer::create(std::span<const TextStepSpec> specs, const RegexLibrary& library) {
  if (specs.size() > kMaxSteps) {
    return Status::error(MOE_ERR_FORMAT, "normalizer: %zu steps, at most %zu", specs.size(),
                         kMaxSteps);
  }
  MOE_TRY(steps_.resize(specs.size()));
  for (size_t i = 0; i < specs.size(); ++i) {
    const Status s = create_step(specs[i], library, steps_.allocator(), &steps_[i]);
    if (!s.ok()) {
      return s.with_context("normalizer %.*s",
                            static_cast<int>(std::min<size_t>(specs[i].kind.size(), 40)),
                            specs[i].kind.data());
    }
  }
  return {};
}

Status Normalizer::create_step(const TextStepSpec& spec, const RegexLibrary& library,
                               const Allocator& allocator, Step* step) {
  static constexpr struct {
    std::string_view name;
    Kind kind;
    NormalForm form;
  } kKinds[] = {
      {"nfc", Kind::kForm, NormalForm::kNfc},
      {"nfd", Kind::kForm, NormalForm::kNfd},
      {"nfkc", Kind::kForm, NormalForm::kNfkc},
      {"nfkd", Kind::kForm, NormalForm::kNfkd},
      {"lowercase", Kind::kLowercase, NormalForm::kNfc},
      {"strip_accents", Kind::kStripAccents, NormalForm::kNfc},
      {"nmt", Kind::kNmt, NormalForm::kNfc},
      {"strip", Kind::kStrip, NormalForm::kNfc},
      {"prepend", Kind::kPrepend, NormalForm::kNfc},
      {"replace", Kind::kReplace, NormalForm::kNfc},
      {"precompiled", Kind::kPrecompiled, NormalForm::kNfc},
      {"byte_level", Kind::kByteLevel, NormalForm::kNfc},
      {"clean_text", Kind::kCleanText, NormalForm::kNfc},
      {"space_ideographs", Kind::kSpaceIdeographs, NormalForm::kNfc},
      {"strip_nonspacing", Kind::kStripNonspacing, NormalForm::kNfc},
  };
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](const auto& k) { return k.name == spec.kind; });
  if (found == std::end(kKinds)) {
    return Status::error(MOE_ERR_UNSUPPORTED, "unknown kind of normalizer");
  }
  step->kind = found->kind;
  step->form = found->form;
  step->left = spec.start != 0;
  step->right = spec.stop != 0;
  step->content = spec.content;
  MOE_TRY(check_content(spec));
  if (step->kind == Kind::kReplace) return step->finder.create(spec, library, allocator);
  if (step->kind == Kind::kPrecompiled) return step->charsmap.create(spec.data);
  return {};
}

Status Normalizer::run_step(const Step& step, std::string_view text, RegexSearch& search,
                            Array<char>& out, bool* at_start) {
  switch (step.kind) {
    case Kind::kForm:
      return normal_form(step.form, text, out);
    case Kind::kLowercase:
      return lowercase(text, out);
    case Kind::kStripAccents:
      return map_characters(text, out, at_start, [](uint32_t c) { return is_mark(c) ? ~0U : c; });
    case Kind::kNmt:
      return map_characters(text, out, at_start, [](uint32_t c) {
        const uint32_t mapped = nmt(c);
        return mapped == 0 && c != 0 ? ~0U : mapped;
      });
    case Kind::kStrip:
      return append(out, strip(text, step.left, step.right, at_start));
    case Kind::kPrepend: {
      if (!text.empty()) MOE_TRY(append(out, step.content));
      return append(out, text);
    }
    case Kind::kReplace:
      return step.finder.replace(text, step.content, search, out);
    case Kind::kPrecompiled:
      return step.charsmap.normalise(text, out);
    case Kind::kByteLevel:
      return to_byte_level(text, out);
    case Kind::kCleanText:
      return clean_text(text, out, at_start);
    case Kind::kSpaceIdeographs:
      return space_ideographs(text, out);
    case Kind::kStripNonspacing:
      return strip_nonspacing(text, out, at_start);
  }
  return {};
}

Status Normalizer::run(std::string_view text, RegexSearch& search, Array<char> buffers[2],
                       std::string_view* out, bool* at_start) const {
  size_t next = 0;
  const size_t n_at_first = text.size();
  for (const Step& step : steps_) {
    Array<char>& buffer = buffers[next];
    next ^= 1;
    buffer.clear();
    MOE_TRY(run_step(step, text, search, buffer, at_start));
    MOE_TRY(check_growth(buffer.size(), n_at_first));
    text = {buffer.data(), buffer.size()};
  }
  *out = text;
  return {};
}

}  // namespace moe
