// SPDX-License-Identifier: MIT
// Encoder-decoders in a build without them (MOE_TRANSLATE=OFF): programs link and get an error.

#include "src/c_api.h"

namespace moe {
namespace {

moe_status refuse_translation(moe_error* error) {
  return deliver(
      Status::error(MOE_ERR_UNSUPPORTED, "this build does not translate (MOE_TRANSLATE=OFF)"),
      error);
}

}  // namespace
}  // namespace moe

moe_status moe_session_translate(moe_session*, const int32_t*, size_t, const moe_translate_params*,
                                 size_t*, moe_error* error) {
  return moe::refuse_translation(error);
}

moe_status moe_session_get_translation(const moe_session*, size_t, moe_translation*,
                                       moe_error* error) {
  return moe::refuse_translation(error);
}

moe_status moe_session_read_source(moe_session*, const int32_t*, size_t, float*, moe_error* error) {
  return moe::refuse_translation(error);
}
