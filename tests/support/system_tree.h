// SPDX-License-Identifier: MIT
#pragma once
// A tree of files that stand for those of /proc and /sys.

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace moe::test {

class SystemTree {
 public:
  SystemTree() {
    std::string pattern = (std::filesystem::temp_directory_path() / "moe_system_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  SystemTree(const SystemTree&) = delete;
  SystemTree& operator=(const SystemTree&) = delete;
  ~SystemTree() { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  std::string path(const std::string& name = "") const { return (root_ / name).string(); }

 private:
  std::filesystem::path root_;
};

}  // namespace moe::test
