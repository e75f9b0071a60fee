// SPDX-License-Identifier: MIT
#pragma once
// The files of a checkpoint that a conversion reads, and a hash of their content.

#include <cstdint>
#include <string>
#include <vector>

namespace moe_cli {

/// A file as it was when it was looked at.
struct SourceFile {
  std::string name;  // relative to the folder: a link's own, not its target's
  std::string path;  // absolute, through links
  uint64_t bytes = 0;
  int64_t changed_ns = 0;  // of the content
  int64_t status_ns = 0;   // of anything about it: who restores the former changes this
  uint64_t inode = 0;
  bool operator==(const SourceFile&) const = default;
};

/// True for what `moe convert` reads: a folder, or a file that begins as GGUF files do.
bool is_checkpoint(const std::string& path);

/// Files of a checkpoint folder, or the parts of a GGUF file that there are, by name: that one is
/// missing is for the converter to say. Throws CallError for a folder that is no checkpoint.
std::vector<SourceFile> source_files(const std::string& path);

/// 32 hexadecimal digits of names and content, keyed by `secret`: nobody who does not know it can
/// make two checkpoints of one hash. Shows progress on stderr. Throws CallError.
std::string content_hash(const std::vector<SourceFile>& files, const std::string& secret,
                         const std::string& prefix);

}  // namespace moe_cli
