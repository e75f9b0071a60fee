// SPDX-License-Identifier: MIT
// Creates a tokenizer from its specification, finds its special tokens, and encodes and decodes
// whole texts.
#include "src/text/tokenizer.h"

#include "src/text/characters/utf8.h"
#include "src/text/parts.h"
#include "src/text/steps/text_step.h"
#include "src/text/stream_decoder.h"

namespace moe {
namespace {

constexpr size_t kMaxAround = 64;  // ids put before or after a text

Status find_kind(std::string_view kind, TokenizerParts::Kind* out) {
  if (kind == "bytes") {
    *out = TokenizerParts::kBytes;
    return {};
  }
  static constexpr std::pair<std::string_view, TokenizerParts::Kind> kFull[] = {
      {"bpe", TokenizerParts::kBpe},
      {"unigram", TokenizerParts::kUnigram},
      {"wordpiece", TokenizerParts::kWordPiece}};
  for (const auto& [name, value] : kFull) {
    if (kind != name) continue;
    *out = value;
    return SubwordText::check_kind(kind);
  }
  return Status::error(MOE_ERR_UNSUPPORTED, "tokenizer: unknown kind \"%.*s\"",
                       static_cast<int>(std::min<size_t>(kind.size(), 40)), kind.data());
}

Status check_id(const char* what, int32_t id, const Vocabulary& vocabulary) {
  if (id >= -1 && (id < 0 || static_cast<uint32_t>(id) < vocabulary.size())) return {};
  return Status::error(MOE_ERR_FORMAT, "tokenizer: %s is %d, there are %u tokens", what, id,
                       vocabulary.size());
}

Status copy_around(const char* what, std::span<const uint32_t> from, const Vocabulary& vocabulary,
                   Array<int32_t>& to) {
  if (from.size() > kMaxAround) {
    return Status::error(MOE_ERR_FORMAT, "tokenizer: %s of %zu ids, at most %zu", what, from.size(),
                         kMaxAround);
  }
  for (const uint32_t id : from) {
    if (id >= vocabulary.size()) {
      return Status::error(MOE_ERR_FORMAT, "tokenizer: id %u in its %s, there are %u tokens", id,
                           what, vocabulary.size());
    }
    MOE_TRY(to.push(static_cast<int32_t>(id)));
  }
  return {};
}

Status create_added(const TokenizerSpec& spec, TokenizerParts& p) {
  Array<TrieEntry> raw(*p.allocator);
  for (size_t i = 0; i < spec.added_ids.size(); ++i) {
    const uint32_t id = spec.added_ids[i];
    const uint8_t flags = spec.added_flags[i];
    constexpr uint8_t needs_text =
        kAddedLstrip | kAddedRstrip | kAddedSingleWord | kAddedNormalized;
    if (p.kind == TokenizerParts::kBytes && (flags & needs_text) != 0) {
      return Status::error(MOE_ERR_UNSUPPORTED,
                           "tokenizer: added token %u: flags that the kind \"bytes\" does not have",
                           id);
    }
    if ((flags & (kAddedNormalized | kAddedDecodesOnly)) == 0)
      MOE_TRY(raw.push({p.vocabulary.piece(id), id}));
  }
  return p.added.create(raw, p.vocabulary);
}

Status create_parts(const TokenizerSpec& spec, TokenizerParts& p) {
  MOE_TRY(find_kind(spec.kind, &p.kind));
  const bool bytes = p.kind == TokenizerParts::kBytes;
  MOE_TRY(p.vocabulary.create(spec, bytes));
  p.n_ids = static_cast<int32_t>(std::max(p.vocabulary.size(), spec.model_vocab));
  p.unk_id = spec.unk_id;
  p.bos_id = spec.bos_id;
  p.eos_id = spec.eos_id;
  p.pad_id = spec.pad_id;
  MOE_TRY(check_id("unk_id", p.unk_id, p.vocabulary));
  MOE_TRY(check_id("bos_id", p.bos_id, p.vocabulary));
  MOE_TRY(check_id("eos_id", p.eos_id, p.vocabulary));
  MOE_TRY(check_id("pad_id", p.pad_id, p.vocabulary));
  const bool has_begin =
      !spec.prefix.empty() && spec.prefix[0] == static_cast<uint32_t>(spec.begin_id);
  if (spec.begin_id >= 0 && !has_begin) MOE_TRY(p.prefix.push(spec.begin_id));
  MOE_TRY(copy_around("prefix", spec.prefix, p.vocabulary, p.prefix));
  MOE_TRY(copy_around("suffix", spec.suffix, p.vocabulary, p.suffix));
  MOE_TRY(copy_around("between", spec.between, p.vocabulary, p.between));
  p.second_type = spec.second_type;
  MOE_TRY(create_added(spec, p));
  if (bytes) {
    if (!spec.normalizers.empty() || !spec.pre_tokenizers.empty() || !spec.decoders.empty() ||
        !spec.merges.empty() || !spec.scores.empty()) {
      return Status::error(MOE_ERR_FORMAT,
                           "tokenizer: the kind \"bytes\" has no steps, merges or scores");
    }
    return p.decoder.create_for_bytes();
  }
  return SubwordText::create(spec, &p);
}

}  // namespace

std::string_view TokenizerParts::decoded_piece(uint32_t id) const {
  if ((vocabulary.flags(id) & kAddedNormalized) != 0) return subwords.piece(id);
  return vocabulary.piece(id);
}

Tokenizer::Tokenizer(Box<TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

Result<Box<Tokenizer>> Tokenizer::create(const TokenizerSpec& spec, const Allocator& allocator) {
  MOE_ASSIGN(Box<TokenizerParts> parts, make_box<TokenizerParts>(allocator, allocator));
  if (spec.model_vocab > 0x7FFFFFFF) {
    return Status::error(MOE_ERR_FORMAT, "tokenizer: a model vocabulary of %u", spec.model_vocab);
  }
  MOE_TRY(create_parts(spec, *parts));
  return make_box<Tokenizer>(allocator, std::move(parts));
}

int Tokenizer::n_vocab() const { return static_cast<int>(parts_->vocabulary.size()); }

Status Tokenizer::encode(std::string_view text, bool add_special, bool parse_special,
                         Array<int32_t>& ids) const {
  const size_t n = ids.size();
  const auto append_all = [&]() -> Status {
    if (add_special) MOE_TRY(ids.append(parts_->prefix.data(), parts_->prefix.size()));
    MOE_TRY(encode_text(*parts_, text, parse_special, {}, ids));
    if (add_special) MOE_TRY(ids.append(parts_->suffix.data(), parts_->suffix.size()));
    return {};
  };
  const Status status = append_all();
  if (!status.ok()) (void)ids.resize(n);
  return status;
}

bool Tokenizer::knows_pairs() const { return !parts_->between.empty(); }

namespace {

// How many tokens of each text stay, as `tokenizers` decides for truncation "longest_first".
void share_room(size_t room, size_t* a, size_t* b) {
  size_t& less = *a <= *b ? *a : *b;
  size_t& more = *a <= *b ? *b : *a;
  if (less + more <= room) return;
  if (less <= room / 2) {
    more = room - less;
    return;
  }
  less = room / 2;
  more = room - less;
}

}  // namespace

Status Tokenizer::encode_pair(std::string_view first, std::string_view second, bool parse_special,
                              size_t max_tokens, Array<int32_t>& ids, TokenPair* pair) const {
  const TokenizerParts& p = *parts_;
  if (!knows_pairs()) {
    return Status::error(MOE_ERR_UNSUPPORTED,
                         "the model file does not say how two texts are encoded together; moe "
                         "convert writes it for encoders with a head of classes or spans whose "
                         "tokenizer has a template for pairs");
  }
  Array<int32_t> a(*p.allocator), b(*p.allocator);
  MOE_TRY(encode_text(p, first, parse_special, {}, a));
  MOE_TRY(encode_text(p, second, parse_special, {}, b));
  const size_t n_around = p.prefix.size() + p.between.size() + p.suffix.size();
  const size_t n_texts = a.size() + b.size();
  size_t n_a = a.size(), n_b = b.size();
  if (max_tokens > 0) {
    const size_t room = max_tokens > n_around ? max_tokens - n_around : 0;
    if (n_around > max_tokens || (n_texts > room && room < 2)) {
      return Status::error(MOE_ERR_TOO_LONG,
                           "a pair of texts has %zu tokens around them: %zu leave none for each",
                           n_around, max_tokens);
    }
    share_room(room, &n_a, &n_b);
  }
  const size_t n = ids.size();
  const auto append_all = [&]() -> Status {
    MOE_TRY(ids.reserve(n + n_around + n_a + n_b));
    MOE_TRY(ids.append(p.prefix.data(), p.prefix.size()));
    MOE_TRY(ids.append(a.data(), n_a));
    MOE_TRY(ids.append(p.between.data(), p.between.size()));
    MOE_TRY(ids.append(b.data(), n_b));
    return ids.append(p.suffix.data(), p.suffix.size());
  };
  const Status status = append_all();
  if (!status.ok()) {
    (void)ids.resize(n);
    return status;
  }
  const size_t second_at = p.prefix.size() + n_a + p.between.size();
  const bool has_second = p.second_type && second_at < n_around + n_a + n_b;
  pair->second = has_second ? second_at : 0;
  pair->n_cut = n_texts - n_a - n_b;
  return {};
}

Status Tokenizer::encode_marked(std::string_view text, std::span<const uint8_t> marks,
                                Array<int32_t>& ids) const {
  const size_t n = ids.size();
  const Status status = encode_text(*parts_, text, true, marks, ids);
  if (!status.ok()) (void)ids.resize(n);
  return status;
}

Status Tokenizer::decode(std::span<const int32_t> ids, bool skip_special, String& text) const {
  StreamDecoder decoder(*this, skip_special, *parts_->allocator);
  String decoded(*parts_->allocator);
  for (const int32_t id : ids) MOE_TRY(decoder.push(id, decoded));
  MOE_TRY(decoder.finish(decoded));
  return text.append(decoded.view());
}

Status Tokenizer::token_bytes(int32_t id, String& bytes) const {
  if (id < 0 || id >= parts_->n_ids) {
    return Status::error(MOE_ERR_RANGE, "token %d: expected 0 to %d", id, parts_->n_ids - 1);
  }
  if (id >= n_vocab()) return {};
  std::string_view token = parts_->decoded_piece(static_cast<uint32_t>(id));
  String scratch[2] = {String(*parts_->allocator), String(*parts_->allocator)};
  const size_t n_at_first = token.size();
  size_t next = 0;
  for (const DecoderStep& step : parts_->decoder.steps()) {
    if (step.kind == DecoderStep::kStrip) continue;
    if (step.kind == DecoderStep::kByteFallback && fallback_byte(token) >= 0) {
      const char byte = static_cast<char>(fallback_byte(token));
      return bytes.append({&byte, 1});
    }
    MOE_TRY(decode_step(step, false, scratch[next], &token));
    MOE_TRY(check_growth(token.size(), n_at_first));
    if (token.data() == scratch[next].c_str()) next ^= 1;
  }
  return bytes.append(token);
}

std::string_view Tokenizer::piece(int32_t id) const {
  if (id < 0 || id >= n_vocab()) return "";
  return parts_->vocabulary.piece(static_cast<uint32_t>(id));
}

int32_t Tokenizer::token_id(std::string_view piece) const { return parts_->vocabulary.find(piece); }

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < n_vocab() &&
         (parts_->vocabulary.flags(static_cast<uint32_t>(id)) & kAddedSpecial) != 0;
}

std::span<const int32_t> Tokenizer::prefix() const { return parts_->prefix.span(); }

int32_t Tokenizer::bos_id() const { return parts_->bos_id; }
int32_t Tokenizer::eos_id() const { return parts_->eos_id; }
int32_t Tokenizer::unk_id() const { return parts_->unk_id; }
int32_t Tokenizer::pad_id() const { return parts_->pad_id; }

}  // namespace moe
