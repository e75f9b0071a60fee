// SPDX-License-Identifier: MIT
// Grammars.

#include "src/c_api/handles.h"

namespace moe {
namespace {

void destroy(moe_grammar* grammar) {
  const Ref<moe_model> model = grammar->model;  // counts the grammar's memory
  const Allocator& allocator = model->memory.get();
  grammar->~moe_grammar();
  deallocate(allocator, grammar, sizeof *grammar);
}

Status create_grammar(moe_model* model, moe_grammar_kind kind, const char* text, size_t n_bytes,
                      moe_grammar** out) {
  MOE_TRY(check_model(model));
  if (text == nullptr && n_bytes != 0) return null_argument("text");
  if (out == nullptr) return null_argument("out");
  const int number = enum_number(kind);
  if (number < MOE_GRAMMAR_JSON_SCHEMA || number > MOE_GRAMMAR_REGEX) {
    return Status::error(MOE_ERR_ARGUMENT, "kind: expected 1..3, found %d", number);
  }
  if (!model->text.tokenizer) {
    return Status::error(MOE_ERR_UNSUPPORTED, "a grammar needs a model with a tokenizer");
  }
  Box<moe_grammar> made;
  MOE_TRY(make_grammar(*model, &made));
  MOE_TRY(made->grammar->create(static_cast<grammar::Kind>(number),
                                {n_bytes == 0 ? "" : text, n_bytes}));
  *out = made.release();
  return {};
}

}  // namespace

Status vocabulary_of(moe_model& model, const grammar::TokenTrie** out) {
  const LockGuard guard(model.making_vocabulary);
  if (!model.vocabulary) {
    const Allocator& allocator = model.memory.get();
    MOE_ASSIGN(Box<grammar::TokenTrie> made, make_box<grammar::TokenTrie>(allocator, allocator));
    MOE_TRY(made->create(*model.text.tokenizer));
    model.vocabulary = std::move(made);
  }
  *out = model.vocabulary.get();
  return {};
}

Status make_grammar(moe_model& model, Box<moe_grammar>* out) {
  const grammar::TokenTrie* vocabulary = nullptr;
  MOE_TRY(vocabulary_of(model, &vocabulary));
  const Allocator& allocator = model.memory.get();
  MOE_ASSIGN(Box<moe_grammar> made, make_box<moe_grammar>(allocator, model));
  MOE_ASSIGN(made->grammar, make_box<grammar::Grammar>(allocator, *vocabulary, allocator));
  *out = std::move(made);
  return {};
}

void drop(moe_grammar* grammar) {
  if (grammar->references.remove()) destroy(grammar);
}

}  // namespace moe

moe_status moe_grammar_create(moe_model* model, moe_grammar_kind kind, const char* text,
                              size_t n_bytes, moe_grammar** out, moe_error* error) {
  return moe::deliver(moe::create_grammar(model, kind, text, n_bytes, out), error);
}

void moe_grammar_free(moe_grammar* grammar) {
  if (grammar != nullptr) moe::drop(grammar);
}
