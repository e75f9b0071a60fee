// SPDX-License-Identifier: MIT
// Names of files whose download has not ended, and the error for them.
#include "formats/import/unfinished.h"

#include <algorithm>
#include <string_view>

#include "formats/import/failure.h"
#include "formats/import/file.h"

namespace moe {

std::string unfinished_name(const std::vector<std::string>& names) {
  constexpr std::string_view kEndings[] = {".incomplete", ".part",       ".partial", ".crdownload",
                                           ".download",   ".opdownload", ".aria2",   ".filepart"};
  const auto unfinished = [&](const std::string& name) {
    const bool weights =
        name.find(".safetensors") != std::string::npos || name.find(".gguf") != std::string::npos;
    return weights && std::any_of(std::begin(kEndings), std::end(kEndings),
                                  [&](std::string_view end) { return name.ends_with(end); });
  };
  const auto found = std::find_if(names.begin(), names.end(), unfinished);
  return found == names.end() ? "" : *found;
}

void refuse_unfinished(const std::string& path) {
  if (!path_exists(path + ".aria2")) return;
  fail(MOE_ERR_FORMAT,
       "%.200s: its download has not ended, as the file .aria2 beside it says: continue it with "
       "aria2c, or remove that file if the download is known to be complete",
       path.c_str());
}

}  // namespace moe
