// SPDX-License-Identifier: MIT
#pragma once
// GGUF files that llama-gguf-split wrote: one model in several files, "NAME-00001-of-00003.gguf".

#include <string>
#include <vector>

#include "formats/import/json.h"

namespace moe {

/// The number of a part, from 1, and their count; a count of 0: the name does not say.
struct GgufPart {
  int number = 0;
  int count = 0;
};

GgufPart gguf_part_of_name(const std::string& path);

/// The paths of all parts in order if `path` has the name of any of them; otherwise empty.
std::vector<std::string> gguf_parts(const std::string& path);

/// Throws MOE_ERR_FORMAT if a file's split.no and split.count contradict its name `path`.
void check_gguf_part(const JsonNode& metadata, const std::string& path);

/// Throws MOE_ERR_UNSUPPORTED for a piece of a file that is to be joined by cat.
void refuse_gguf_piece(const std::string& path);

}  // namespace moe
