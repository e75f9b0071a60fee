// SPDX-License-Identifier: MIT
// Writes a TokenizerData as a FlatBuffers table, and creates the tokenizer once to check it.
#include "src/convert/tokenizer/tokenizer_write.h"

#include "formats/import/failure.h"
#include "src/text/tokenizer.h"

namespace moe {
namespace {

template <class T>
std::span<const T> view(const std::vector<T>& v) {
  return {v.data(), v.size()};
}

std::vector<TextStepSpec> views(const std::vector<TextStepData>& steps) {
  std::vector<TextStepSpec> out;
  for (const TextStepData& d : steps) {
    TextStepSpec s;
    s.kind = d.kind;
    s.pattern = d.pattern;
    s.content = d.content;
    s.behavior = d.behavior;
    s.scheme = d.scheme;
    s.data = view(d.data);
    s.start = d.start;
    s.stop = d.stop;
    s.regex = d.regex;
    s.invert = d.invert;
    s.flag = d.flag;
    out.push_back(s);
  }
  return out;
}

using Builder = flatbuffers::FlatBufferBuilder;

// Omitted if empty: a smaller file.
flatbuffers::Offset<flatbuffers::String> text(Builder& b, const std::string& s) {
  return s.empty() ? 0 : b.CreateString(s);
}
template <class T>
flatbuffers::Offset<flatbuffers::Vector<T>> numbers(Builder& b, const std::vector<T>& v) {
  return v.empty() ? 0 : b.CreateVector(v);
}

// Fields are added in the order of flatc's Create functions (src/convert/config_write.cpp).
flatbuffers::Offset<fbs::TextStep> write_step(Builder& b, const TextStepData& d) {
  const auto kind = b.CreateString(d.kind);
  const auto pattern = text(b, d.pattern);
  const auto content = text(b, d.content);
  const auto behavior = text(b, d.behavior);
  const auto scheme = text(b, d.scheme);
  const auto data = numbers(b, d.data);
  fbs::TextStepBuilder out(b);
  out.add_data(data);
  out.add_stop(d.stop);
  out.add_start(d.start);
  out.add_scheme(scheme);
  out.add_behavior(behavior);
  out.add_content(content);
  out.add_pattern(pattern);
  out.add_kind(kind);
  out.add_flag(d.flag);
  out.add_invert(d.invert);
  out.add_regex(d.regex);
  return out.Finish();
}

using Steps = flatbuffers::Vector<flatbuffers::Offset<fbs::TextStep>>;
flatbuffers::Offset<Steps> write_steps(Builder& b, const std::vector<TextStepData>& steps) {
  std::vector<flatbuffers::Offset<fbs::TextStep>> out;
  for (const TextStepData& d : steps) out.push_back(write_step(b, d));
  return out.empty() ? 0 : b.CreateVector(out);
}

Box<Tokenizer> make_tokenizer(const TokenizerData& data, uint32_t model_vocab) {
  const std::vector<TextStepSpec> normalizers = views(data.normalizers);
  const std::vector<TextStepSpec> pre_tokenizers = views(data.pre_tokenizers);
  const std::vector<TextStepSpec> decoders = views(data.decoders);
  TokenizerSpec spec;
  spec.kind = data.kind;
  spec.token_bytes = view(data.token_bytes);
  spec.token_ends = view(data.token_ends);
  spec.scores = view(data.scores);
  spec.merges = view(data.merges);
  spec.added_ids = view(data.added_ids);
  spec.added_flags = view(data.added_flags);
  spec.normalizers = view(normalizers);
  spec.pre_tokenizers = view(pre_tokenizers);
  spec.decoders = view(decoders);
  spec.prefix = view(data.prefix);
  spec.suffix = view(data.suffix);
  spec.between = view(data.between);
  spec.second_type = data.second_type;
  spec.unk_id = data.unk_id;
  spec.bos_id = data.bos_id;
  spec.eos_id = data.eos_id;
  spec.pad_id = data.pad_id;
  spec.byte_fallback = data.byte_fallback;
  spec.fuse_unk = data.fuse_unk;
  spec.ignore_merges = data.ignore_merges;
  spec.continuing_prefix = data.continuing_prefix;
  spec.end_suffix = data.end_suffix;
  spec.max_word_characters = data.max_word_characters;
  spec.model_vocab = model_vocab;
  return take(Tokenizer::create(spec, system_allocator()));
}

}  // namespace

void check_tokenizer(const TokenizerData& data, uint32_t model_vocab) {
  make_tokenizer(data, model_vocab);
}

std::vector<int32_t> encode_text(const TokenizerData& data, uint32_t model_vocab,
                                 std::string_view text) {
  Array<int32_t> ids;
  check(make_tokenizer(data, model_vocab)->encode(text, false, false, ids));
  return {ids.begin(), ids.end()};
}

flatbuffers::Offset<fbs::Tokenizer> write_tokenizer(Builder& b, const TokenizerData& data) {
  const auto kind = b.CreateString(data.kind);
  const auto token_bytes = numbers(b, data.token_bytes);
  const auto token_ends = numbers(b, data.token_ends);
  const auto scores = numbers(b, data.scores);
  const auto merges = numbers(b, data.merges);
  const auto added_ids = numbers(b, data.added_ids);
  const auto added_flags = numbers(b, data.added_flags);
  const auto normalizers = write_steps(b, data.normalizers);
  const auto pre_tokenizers = write_steps(b, data.pre_tokenizers);
  const auto decoders = write_steps(b, data.decoders);
  const auto prefix = numbers(b, data.prefix);
  const auto suffix = numbers(b, data.suffix);
  const auto between = numbers(b, data.between);
  const auto continuing_prefix = text(b, data.continuing_prefix);
  const auto end_suffix = text(b, data.end_suffix);
  const auto chat_template = text(b, data.chat_template);
  fbs::TokenizerBuilder t(b);
  t.add_kind(kind);
  t.add_token_bytes(token_bytes);
  t.add_token_ends(token_ends);
  t.add_scores(scores);
  t.add_merges(merges);
  t.add_added_ids(added_ids);
  t.add_added_flags(added_flags);
  t.add_normalizers(normalizers);
  t.add_pre_tokenizers(pre_tokenizers);
  t.add_decoders(decoders);
  t.add_prefix(prefix);
  t.add_suffix(suffix);
  t.add_between(between);
  t.add_second_type(!data.between.empty() && data.second_type);
  t.add_unk_id(data.unk_id);
  t.add_bos_id(data.bos_id);
  t.add_eos_id(data.eos_id);
  t.add_pad_id(data.pad_id);
  t.add_byte_fallback(data.byte_fallback);
  t.add_fuse_unk(data.fuse_unk);
  t.add_ignore_merges(data.ignore_merges);
  t.add_continuing_prefix(continuing_prefix);
  t.add_end_suffix(end_suffix);
  t.add_chat_template(chat_template);
  t.add_max_word_characters(data.max_word_characters);
  return t.Finish();
}

}  // namespace moe
