// SPDX-License-Identifier: MIT
// Files that replace others.

#include "src/base/replacement.h"

#include "src/c_api/params.h"

struct moe_replacement {
  moe::Replacement file;
};

namespace moe {
namespace {

Status open(const char* path, moe_replacement** out) {
  if (out == nullptr) return null_argument("out");
  *out = nullptr;
  if (path == nullptr) return null_argument("path");
  MOE_ASSIGN(Box<moe_replacement> handle, make_box<moe_replacement>(system_allocator()));
  MOE_TRY(handle->file.open(path));
  *out = handle.release();
  return {};
}

Status begin(moe_replacement* replacement, int* file) {
  if (replacement == nullptr) return null_argument("replacement");
  if (file == nullptr) return null_argument("file");
  return replacement->file.begin(file);
}

Status commit(moe_replacement* replacement) {
  if (replacement == nullptr) return null_argument("replacement");
  return replacement->file.commit();
}

}  // namespace
}  // namespace moe

moe_status moe_replacement_open(const char* path, moe_replacement** out, moe_error* error) {
  return moe::deliver(moe::open(path, out), error);
}

moe_status moe_replacement_begin(moe_replacement* replacement, int* file, moe_error* error) {
  return moe::deliver(moe::begin(replacement, file), error);
}

moe_status moe_replacement_commit(moe_replacement* replacement, moe_error* error) {
  return moe::deliver(moe::commit(replacement), error);
}

void moe_replacement_free(moe_replacement* replacement) {
  if (replacement != nullptr)
    moe::Box<moe_replacement>(replacement, moe::system_allocator()).reset();
}
