// SPDX-License-Identifier: MIT
// Encoding and decoding text.

#include "formats/moe/schema.h"
#include "src/c_api/handles.h"

namespace moe {
namespace {

Status encode(const moe_tokenizer* tokenizer, const char* text, size_t n_bytes, uint32_t flags,
              int32_t* tokens, size_t capacity, size_t* n_tokens) {
  if (tokenizer == nullptr) return null_argument("tokenizer");
  if (text == nullptr && n_bytes != 0) return null_argument("text");
  if (n_tokens == nullptr) return null_argument("n_tokens");
  constexpr uint32_t kKnown = uint32_t{MOE_ENCODE_NO_SPECIAL} | uint32_t{MOE_ENCODE_PARSE_SPECIAL};
  if ((flags & ~kKnown) != 0) {
    return Status::error(MOE_ERR_ARGUMENT, "flags: expected bits of %u, found %u", kKnown, flags);
  }
  Array<int32_t> ids(*tokenizer->allocator);
  MOE_TRY(tokenizer->tokenizer->encode({n_bytes == 0 ? "" : text, n_bytes},
                                       (flags & MOE_ENCODE_NO_SPECIAL) == 0,
                                       (flags & MOE_ENCODE_PARSE_SPECIAL) != 0, ids));
  return write_array(ids.data(), ids.size(), tokens, capacity, n_tokens);
}

Status encode_pair(const moe_tokenizer* tokenizer, std::string_view first, std::string_view second,
                   uint32_t flags, size_t max_tokens, int32_t* tokens, size_t capacity,
                   moe_token_pair* out) {
  if (tokenizer == nullptr) return null_argument("tokenizer");
  if (first.data() == nullptr && !first.empty()) return null_argument("first");
  if (second.data() == nullptr && !second.empty()) return null_argument("second");
  MOE_TRY(check_out_struct(out, "out"));
  if ((flags & ~uint32_t{MOE_ENCODE_PARSE_SPECIAL}) != 0) {
    return Status::error(MOE_ERR_ARGUMENT, "flags: expected bits of %u, found %u",
                         uint32_t{MOE_ENCODE_PARSE_SPECIAL}, flags);
  }
  Array<int32_t> ids(*tokenizer->allocator);
  TokenPair pair;
  MOE_TRY(tokenizer->tokenizer->encode_pair(first, second, flags != 0, max_tokens, ids, &pair));
  moe_token_pair value{};
  value.second = pair.second;
  value.n_cut = pair.n_cut;
  const Status written = write_array(ids.data(), ids.size(), tokens, capacity, &value.n_tokens);
  write_struct(value, out);
  return written;
}

Status decode(const moe_tokenizer* tokenizer, const int32_t* tokens, size_t n_tokens,
              uint32_t flags, char* text, size_t capacity, size_t* n_bytes) {
  if (tokenizer == nullptr) return null_argument("tokenizer");
  if (tokens == nullptr && n_tokens != 0) return null_argument("tokens");
  if (n_bytes == nullptr) return null_argument("n_bytes");
  if ((flags & ~uint32_t{MOE_DECODE_SKIP_SPECIAL}) != 0) {
    return Status::error(MOE_ERR_ARGUMENT, "flags: expected bits of %u, found %u",
                         uint32_t{MOE_DECODE_SKIP_SPECIAL}, flags);
  }
  String out(*tokenizer->allocator);
  MOE_TRY(tokenizer->tokenizer->decode({tokens, n_tokens}, (flags & MOE_DECODE_SKIP_SPECIAL) != 0,
                                       out));
  return write_text(out.c_str(), out.size(), text, capacity, n_bytes);
}

}  // namespace
}  // namespace moe

const moe_tokenizer* moe_model_tokenizer(const moe_model* model) {
  return model == nullptr || !model->text.tokenizer ? nullptr : &model->text;
}

const char* moe_model_chat_template(const moe_model* model) {
  if (model == nullptr || model->model->tokenizer() == nullptr) return nullptr;
  const auto* text = model->model->tokenizer()->chat_template();
  return text == nullptr || text->size() == 0 ? nullptr : text->c_str();
}

moe_status moe_tokenizer_encode(const moe_tokenizer* tokenizer, const char* text, size_t n_bytes,
                                uint32_t flags, int32_t* tokens, size_t capacity, size_t* n_tokens,
                                moe_error* error) {
  return moe::deliver(moe::encode(tokenizer, text, n_bytes, flags, tokens, capacity, n_tokens),
                      error);
}

moe_status moe_tokenizer_encode_pair(const moe_tokenizer* tokenizer, const char* first,
                                     size_t n_first_bytes, const char* second,
                                     size_t n_second_bytes, uint32_t flags, size_t max_tokens,
                                     int32_t* tokens, size_t capacity, moe_token_pair* out,
                                     moe_error* error) {
  return moe::deliver(moe::encode_pair(tokenizer, {first, n_first_bytes}, {second, n_second_bytes},
                                       flags, max_tokens, tokens, capacity, out),
                      error);
}

moe_status moe_tokenizer_decode(const moe_tokenizer* tokenizer, const int32_t* tokens,
                                size_t n_tokens, uint32_t flags, char* text, size_t capacity,
                                size_t* n_bytes, moe_error* error) {
  return moe::deliver(moe::decode(tokenizer, tokens, n_tokens, flags, text, capacity, n_bytes),
                      error);
}

const char* moe_tokenizer_piece(const moe_tokenizer* tokenizer, int32_t token) {
  if (tokenizer == nullptr || token < 0 || token >= tokenizer->tokenizer->n_vocab()) return nullptr;
  const std::string_view piece = tokenizer->tokenizer->piece(token);
  return piece.empty() ? "" : piece.data();
}
