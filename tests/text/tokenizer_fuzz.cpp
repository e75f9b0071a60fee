// SPDX-License-Identifier: MIT
// The first byte gives the kind of the rest:
//   F  a FlatBuffer with a tokenizer, verified and loaded as from a model file
//   J  a tokenizer.json, converted, written, loaded
//   0 to 9  text for one of several valid tokenizers
// A tokenizer that loads must encode and decode; all decoded text must be UTF-8.

#include <cstdlib>
#include <iterator>

#include "src/text/characters/utf8.h"
#include "src/text/stream_decoder.h"
#include "tests/text/tokenizer_support.h"

namespace moe {
namespace {

constexpr size_t kMemory = size_t{512} << 20;
size_t used = 0;

void* limited(void*, size_t bytes, size_t align) {
  if (bytes > kMemory || used + bytes > kMemory) return nullptr;
  void* p = nullptr;
  if (posix_memalign(&p, align < 16 ? 16 : align, bytes + 1) != 0) return nullptr;
  used += bytes;
  return p;
}
void release(void*, void* p, size_t bytes) {
  used -= bytes;
  std::free(p);
}
constexpr Allocator kLimited = {limited, release, nullptr};

void require(bool condition) {
  if (!condition) __builtin_trap();
}

void use(const Tokenizer& t, std::string_view text) {
  Array<int32_t> ids(kLimited);
  const Status status = t.encode(text, true, text.size() % 2 == 0, ids);
  require(status.ok() || ids.empty());
  for (const int32_t id : ids) require(id >= 0 && id < t.n_vocab());
  for (const char c : slice(text, 0, 64)) (void)ids.push((c * 7919) & 0xFFFF);  // any id
  String decoded(kLimited);
  StreamDecoder decoder(t, false, kLimited);
  for (const int32_t id : ids) {
    (void)decoder.push(id, decoded);
    require(decoded.size() > (size_t{1} << 24) || utf8_is_valid(decoded.view()));
    if (decoded.size() > 4096) decoded.clear();
  }
  (void)decoder.finish(decoded);
  require(utf8_is_valid(decoded.view()));
  String bytes(kLimited);
  (void)t.token_bytes(static_cast<int32_t>(text.size()) % 300, bytes);
}

constexpr std::string_view kText =
    "The cat's 123 hats, e\xCC\x81\xC3\xA9 \xE2\x96\x81 <s>\r\n  \xF0\x9F\x98\x80\xFF end";

void use_table(const uint8_t* bytes, size_t n, std::string_view text) {
  flatbuffers::Verifier verifier(bytes, n, 16, 100000);
  if (!verifier.VerifyBuffer<fbs::Tokenizer>(nullptr)) return;
  auto loaded = load_tokenizer(*flatbuffers::GetRoot<fbs::Tokenizer>(bytes), 0, kLimited);
  if (!loaded.ok()) return;
  use(*loaded.value(), text);
  use(*loaded.value(), kText);
}

void use_json(std::string_view text) {
  TokenizerData data;
  const Status status = guarded([&] { data = parse_tokenizer(parse_json(text, "fuzz"), "fuzz"); });
  if (!status.ok()) {
    require(status.code() == MOE_ERR_FORMAT || status.code() == MOE_ERR_UNSUPPORTED);
    return;
  }
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(write_tokenizer(builder, data));
  use_table(builder.GetBufferPointer(), builder.GetSize(), slice(text, 0, 200));
}

const Tokenizer& sound(size_t i) {
  static const char* const kNames[] = {"gpt2",   "llama3",        "qwen2", "o200k",
                                       "llama2", "unigram_bytes", "added", "bert"};
  static std::unique_ptr<LoadedTokenizer> loaded[std::size(kNames)];
  i %= std::size(kNames);
  if (loaded[i] == nullptr) {
    const std::string path = std::string(MOE_TEXT_DATA "/") + kNames[i] + ".json";
    loaded[i] = load(parse_tokenizer(read_json_file(path).at("tokenizer"), path));
  }
  return *loaded[i]->tokenizer;
}

}  // namespace
}  // namespace moe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'F') {
    // FlatBuffers are read in place and must be aligned.
    moe::Array<uint8_t> aligned;
    if (!aligned.append(data + 1, size - 1).ok()) return 0;
    moe::use_table(aligned.data(), aligned.size(), rest);
  } else if (data[0] == 'J') {
    moe::use_json(rest);
  } else if (data[0] >= '0' && data[0] <= '9') {
    moe::use(moe::sound(static_cast<size_t>(data[0] - '0')), rest);
  }
  return 0;
}
