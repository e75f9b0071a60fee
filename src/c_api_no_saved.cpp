// SPDX-License-Identifier: MIT
// Saved sessions in a build without them (MOE_SAVE=OFF): programs link and get an error.

#include "src/c_api.h"

namespace moe {
namespace {

moe_status refuse_saved(moe_error* error) {
  return deliver(
      Status::error(MOE_ERR_UNSUPPORTED, "this build saves and forks no sessions (MOE_SAVE=OFF)"),
      error);
}

}  // namespace
}  // namespace moe

moe_status moe_session_save(moe_session*, const moe_writer*, moe_error* error) {
  return moe::refuse_saved(error);
}

moe_status moe_session_load(moe_session*, const moe_reader*, moe_error* error) {
  return moe::refuse_saved(error);
}

moe_status moe_session_fork(moe_session*, moe_session**, moe_error* error) {
  return moe::refuse_saved(error);
}
