// SPDX-License-Identifier: MIT
// Grammar functions of a build without them (MOE_GRAMMAR=OFF): programs link and get an error.

#include "src/c_api/handles.h"

namespace moe {
namespace {

Status no_grammars() {
  return Status::error(MOE_ERR_UNSUPPORTED, "this build has no grammars (MOE_GRAMMAR=OFF)");
}

}  // namespace

// A chat with strict tools, or a required call, asks for one.
Status make_grammar(moe_model&, Box<moe_grammar>*) { return no_grammars(); }
void drop(moe_grammar*) {}

}  // namespace moe

moe_status moe_grammar_create(moe_model*, moe_grammar_kind, const char*, size_t, moe_grammar**,
                              moe_error* error) {
  return moe::deliver(moe::no_grammars(), error);
}

void moe_grammar_free(moe_grammar*) {}
