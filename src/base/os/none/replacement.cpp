// SPDX-License-Identifier: MIT
// No files to replace.
#include "src/base/replacement.h"

namespace moe {
namespace {

Status no_files() {
  return Status::error(MOE_ERR_UNSUPPORTED, "this build writes no files (MOE_OS=none)");
}

}  // namespace

Result<int> create_beside(const char*, const char*, Readers, String*) { return no_files(); }

Status Replacement::open(const char*) { return no_files(); }
Status Replacement::begin(int*) { return no_files(); }
Status Replacement::commit() { return no_files(); }
void Replacement::close() {}

}  // namespace moe
