// SPDX-License-Identifier: MIT
// Routers as text.

#include "kernels/router/text.h"
#include "src/c_api/handles.h"

namespace moe {
namespace {

Status parse(const char* text, moe_router* out) {
  if (text == nullptr) return null_argument("text");
  MOE_TRY(check_out_struct(out, "out"));
  moe_router router{};
  MOE_TRY(parse_router(text, &router));
  write_struct(router, out);
  return {};
}

Status format_text(const moe_router* given, char* text, size_t capacity, size_t* n_bytes) {
  if (n_bytes == nullptr) return null_argument("n_bytes");
  moe_router router{};
  MOE_TRY(read_params(given, "router", &router));
  RouterText out;
  MOE_TRY(format_router(router, &out));
  return write_text(out.text, out.n_bytes, text, capacity, n_bytes);
}

}  // namespace
}  // namespace moe

moe_status moe_router_parse(const char* text, moe_router* out, moe_error* error) {
  return moe::deliver(moe::parse(text, out), error);
}

moe_status moe_router_format(const moe_router* router, char* text, size_t capacity, size_t* n_bytes,
                             moe_error* error) {
  return moe::deliver(moe::format_text(router, text, capacity, n_bytes), error);
}

const char* moe_router_kind(size_t index) { return moe::router_kind(index); }
