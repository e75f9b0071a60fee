// SPDX-License-Identifier: MIT
#pragma once
// Normalises text before it is split: normal forms, case, replacements.

#include "src/text/characters/unicode.h"
#include "src/text/steps/charsmap.h"
#include "src/text/steps/text_step.h"

namespace moe {

/// A list of steps, each applied to the previous output. Immutable after create().
class Normalizer final {
 public:
  explicit Normalizer(const Allocator& allocator) : steps_(allocator) {}

  Status create(std::span<const TextStepSpec> steps, const RegexLibrary& library);
  bool empty() const { return steps_.empty(); }

  /// Normalises `text` (valid UTF-8). *out is `text` itself or one of `buffers`. *at_start becomes
  /// false if the first character was removed.
  Status run(std::string_view text, RegexSearch& search, Array<char> buffers[2],
             std::string_view* out, bool* at_start) const;

 private:
  enum class Kind {
    kForm,
    kLowercase,
    kStripAccents,
    kNmt,
    kStrip,
    kPrepend,
    kReplace,
    kPrecompiled,
    kByteLevel,
    kCleanText,
    kSpaceIdeographs,
    kStripNonspacing
  };
  struct Step {
    Kind kind = Kind::kForm;
    NormalForm form = NormalForm::kNfc;
    bool left = false;
    bool right = false;
    std::string_view content;
    Finder finder;
    Charsmap charsmap;
  };
  static Status create_step(const TextStepSpec& spec, const RegexLibrary& library,
                            const Allocator& allocator, Step* step);
  static Status run_step(const Step& step, std::string_view text, RegexSearch& search,
                         Array<char>& out, bool* at_start);

  Array<Step> steps_;
};

}  // namespace moe
