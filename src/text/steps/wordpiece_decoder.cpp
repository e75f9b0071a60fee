// SPDX-License-Identifier: MIT
// Joins "##" pieces, puts spaces in front of the others, and cleans up spaces before punctuation.
#include "src/text/steps/wordpiece_decoder.h"

namespace moe {
namespace {

// In this order, as in `tokenizers`, on each token alone.
constexpr std::pair<std::string_view, std::string_view> kCleanUp[] = {
    {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
    {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
    {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

}  // namespace

Status decode_wordpiece(std::string_view token, std::string_view prefix, bool first, bool clean_up,
                        String& out) {
  out.clear();
  const bool continues = !first && slice(token, 0, prefix.size()) == prefix;
  if (!first && !continues) MOE_TRY(out.append(" "));
  MOE_TRY(out.append(continues ? slice(token, prefix.size()) : token));
  if (!clean_up) return {};
  for (const auto& [what, with] : kCleanUp) out.replace_by_shorter(what, with);
  return {};
}

}  // namespace moe
