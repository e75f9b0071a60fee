// SPDX-License-Identifier: MIT
// Copies the tokenizer's table of a model file into a TokenizerSpec and makes the tokenizer.
#include "src/c_api/load_tokenizer.h"

#include "src/text/subword_text.h"

namespace moe {
namespace {

std::string_view view(const flatbuffers::String* text) {
  if (text == nullptr) return {};
  return {text->c_str(), text->size()};
}

template <class T>
std::span<const T> view(const flatbuffers::Vector<T>* vector) {
  if (vector == nullptr) return {};
  return {vector->data(), vector->size()};
}

Status copy_steps(const flatbuffers::Vector<flatbuffers::Offset<fbs::TextStep>>* from,
                  Array<TextStepSpec>& to) {
  if (from == nullptr) return {};
  if (from->size() > kMaxSteps) {
    return Status::error(MOE_ERR_FORMAT, "tokenizer: %u steps of one kind, at most %zu",
                         from->size(), kMaxSteps);
  }
  for (const fbs::TextStep* step : *from) {
    TextStepSpec s;
    s.kind = view(step->kind());
    s.pattern = view(step->pattern());
    s.content = view(step->content());
    s.behavior = view(step->behavior());
    s.scheme = view(step->scheme());
    s.data = view(step->data());
    s.start = step->start();
    s.stop = step->stop();
    s.regex = step->regex();
    s.invert = step->invert();
    s.flag = step->flag();
    MOE_TRY(to.push(s));
  }
  return {};
}

}  // namespace

Result<Box<Tokenizer>> load_tokenizer(const fbs::Tokenizer& table, uint32_t model_vocab,
                                      const Allocator& allocator, int32_t begin_id) {
  Array<TextStepSpec> normalizers(allocator);
  Array<TextStepSpec> pre_tokenizers(allocator);
  Array<TextStepSpec> decoders(allocator);
  MOE_TRY(copy_steps(table.normalizers(), normalizers));
  MOE_TRY(copy_steps(table.pre_tokenizers(), pre_tokenizers));
  MOE_TRY(copy_steps(table.decoders(), decoders));
  TokenizerSpec spec;
  spec.kind = view(table.kind());
  spec.token_bytes = view(table.token_bytes());
  spec.token_ends = view(table.token_ends());
  spec.scores = view(table.scores());
  spec.merges = view(table.merges());
  spec.added_ids = view(table.added_ids());
  spec.added_flags = view(table.added_flags());
  spec.normalizers = normalizers.span();
  spec.pre_tokenizers = pre_tokenizers.span();
  spec.decoders = decoders.span();
  spec.prefix = view(table.prefix());
  spec.suffix = view(table.suffix());
  spec.between = view(table.between());
  spec.second_type = table.second_type();
  spec.begin_id = begin_id;
  spec.unk_id = table.unk_id();
  spec.bos_id = table.bos_id();
  spec.eos_id = table.eos_id();
  spec.pad_id = table.pad_id();
  spec.byte_fallback = table.byte_fallback();
  spec.fuse_unk = table.fuse_unk();
  spec.ignore_merges = table.ignore_merges();
  spec.continuing_prefix = view(table.continuing_prefix());
  spec.end_suffix = view(table.end_suffix());
  spec.max_word_characters = table.max_word_characters();
  spec.model_vocab = model_vocab;
  return Tokenizer::create(spec, allocator);
}

bool can_load_tokenizer(const fbs::Tokenizer& table) {
  return SubwordText::kBuilt || (table.kind() != nullptr && table.kind()->string_view() == "bytes");
}

}  // namespace moe
