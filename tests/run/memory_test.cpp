// SPDX-License-Identifier: MIT
// Budgets, accounts, and running out of memory.

#include "src/run/memory.h"

#include <cstring>
#include <set>

#include "src/run/generate.h"
#include "src/run/perplexity.h"
#include "src/run/saved.h"
#include "src/run/workspace.h"
#include "tests/run/capped_model.h"

namespace moe {
namespace {

const TinyKind kPlain = {"mh_moe", [](ModelConfig& c, TinyOptions&) {
                           each_moe(c, [](FfnConfig& f) {
                             f.moe.n_subheads = 2;
                             f.moe.head = f.moe.merge = true;
                             f.moe.shared.d_ff = 12;
                           });
                         }};

TEST(MemoryTest, TheAccountIsWhatASessionHolds) {
  const auto bytes = build_tiny_kind(kPlain);
  for (const KvType kv : {KvType::kF16, KvType::kInt8}) {
    for (const int32_t context : {1, 65, kTinyContext}) {
      FailingAllocator memory;
      Machine machine(*bytes, 1, nullptr, memory.get());
      ASSERT_TRUE(machine.status().ok());
      SessionOptions options;
      options.kv = kv;
      options.context = context;
      { const Box<Session> first = machine.session(options); }  // loads the weights
      const size_t before = memory.live_bytes();
      const Box<Session> session = machine.session(options);
      const size_t held = memory.live_bytes() - before;
      memory.reset_peak();
      const Box<Session> another = machine.session(options);
      EXPECT_EQ(memory.peak_bytes(), memory.live_bytes()) << "nothing else while it is made";
      const size_t further = memory.live_bytes() - before - held;
      MemoryAccount account;
      ASSERT_TRUE(account_memory(machine.model(), options, &account).ok());
      EXPECT_EQ(session->bytes(), account.session_bytes);
      const uint64_t kept =
          session->bytes() - line_of(account, "temporary memory of calls") - kHandleBytes;
      EXPECT_EQ(further, kept);
      EXPECT_EQ(held, kept + account.pass_bytes - sizeof(WorkspacePool));
    }
  }
}

TEST(MemoryTest, CompressedWeightsNeedRoomToBeRead) {
  for (const bool compress : {false, true}) {
    const auto bytes = build_tiny_kind({"zstd", [&](ModelConfig&, TinyOptions& o) {
                                          o.weights = FormatId::kTernary2;
                                          o.compress = compress;
                                        }});
    FailingAllocator memory;
    Machine machine(*bytes, 1, nullptr, memory.get());
    ASSERT_TRUE(machine.status().ok());
    const size_t opened = memory.live_bytes();
    MemoryAccount account;
    ASSERT_TRUE(account_memory(machine.model(), {}, &account).ok());
    EXPECT_EQ(line_of(account, "read buffers") > 0, compress);
    const Box<Session> session = machine.session();
    (void)eval_all(*session, random_tokens(40, machine.vocab_size()));
    EXPECT_LE(memory.peak_bytes() - opened, account.total) << compress;
  }
}

TEST(MemoryTest, ATooSmallCapIsRefusedWithTheSum) {
  const auto bytes = build_tiny_kind(kPlain);
  FailingAllocator memory;
  Machine machine(*bytes, 1, nullptr, memory.get());
  ASSERT_TRUE(machine.status().ok());
  MemoryAccount account;
  SessionOptions options;
  options.chunk = 64;
  ASSERT_TRUE(account_memory(machine.model(), options, &account).ok());
  uint64_t sum = 0;
  for (int32_t i = 0; i < account.n_lines; ++i) sum += account.lines[i].bytes;
  EXPECT_EQ(sum, account.total);
  Machine small(*bytes, 1, nullptr, memory.get(), account.total - 1);
  const size_t n_before = memory.n_allocations();
  const Status s = small.try_session(options).status();
  EXPECT_EQ(s.code(), MOE_ERR_BUDGET);
  EXPECT_NE(std::strstr(s.text(), "KV cache"), nullptr) << s.text();
  EXPECT_NE(std::strstr(s.text(), std::to_string(account.total).c_str()), nullptr) << s.text();
  EXPECT_LE(memory.n_allocations(), n_before + 1) << "little is allocated for a refusal";
  Machine exact(*bytes, 1, nullptr, memory.get(), account.total);
  const Box<Session> session = exact.session(options);
  const Status second = exact.try_session(options).status();
  EXPECT_EQ(second.code(), MOE_ERR_BUDGET);
  EXPECT_NE(std::strstr(second.text(), "other sessions"), nullptr) << second.text();
}

TEST(MemoryTest, TheDefaultChunkFollowsTheCap) {
  const auto bytes = build_tiny_kind(kPlain);
  Machine machine(*bytes);
  ASSERT_TRUE(machine.status().ok());
  const auto bytes_at = [&](int32_t chunk) {
    SessionOptions options;
    options.chunk = chunk;
    MemoryAccount account;
    EXPECT_TRUE(account_memory(machine.model(), options, &account).ok());
    return account.total;
  };
  for (const int32_t chunk : {32, 64, 128}) {
    Machine capped(*bytes, 1, nullptr, system_allocator(), bytes_at(chunk));
    EXPECT_EQ(capped.session()->chunk(), chunk);
  }
  Machine capped(*bytes, 1, nullptr, system_allocator(), bytes_at(kLeastChunk) - 1);
  EXPECT_EQ(capped.try_session().status().code(), MOE_ERR_BUDGET);
}

// Each expert is read once per chunk, so a short prompt may take more of the cache than a long one.
TEST(MemoryTest, AnAutomaticChunkTakesItsShareOfTheExpertCache) {
  const auto bytes = build_tiny_kind(two_moe_layers({"many", [](ModelConfig& c, TinyOptions&) {
                                                       c.context_length = kMaxChunk;
                                                       for (LayerConfig& layer : c.layers) {
                                                         layer.ffn.moe.n_experts = 128;
                                                         layer.ffn.d_ff = 256;
                                                       }
                                                     }}));
  WatchedFile file{*bytes, {}};
  SessionOptions options;
  options.context = kMaxChunk;
  std::set<int32_t> seen;
  for (const uint64_t slots : {20, 60, 120, 250}) {
    CappedModel model(file, {least_cap(*bytes, options).with(slots)});
    ASSERT_TRUE(model.status().ok());
    const auto allowed = [&](int32_t chunk) {
      SessionOptions given = options;
      given.chunk = chunk;
      const MemoryAccount a = model.account(given);
      const uint64_t rest = a.total - a.cache_bytes - a.chunk_bytes;
      return a.chunk_bytes * (chunk > 512 ? 16 : 6) <= model.model().budget().cap() - rest;
    };
    const int32_t chunk = model.session(options)->chunk();
    seen.insert(chunk);
    EXPECT_TRUE(chunk == kLeastChunk || allowed(chunk)) << slots;
    for (int32_t more = 2 * chunk; more <= kMaxChunk; more *= 2)
      EXPECT_FALSE(allowed(more)) << more;
  }
  EXPECT_EQ(seen.size(), 4U);
}

TEST(MemoryTest, NothingIsAllocatedPerToken) {
  for (const TinyKind& kind : all_tiny_kinds()) {
    const auto bytes = build_tiny_kind(kind);
    FailingAllocator memory;
    Machine machine(*bytes, 2, nullptr, memory.get());
    ASSERT_TRUE(machine.status().ok());
    const Box<Session> session = machine.session();
    SamplingConfig config;
    config.temperature = 1;
    config.top_p = 0.9f;
    const Tokens text = random_tokens(30, machine.vocab_size());
    TokenLogprob out{};
    TokenLogprob top[5];
    const auto run = [&] {
      EXPECT_TRUE(session->reset().ok());
      EXPECT_TRUE(session->eval(span(text), LogitRows::kNone, nullptr).ok());
      for (int i = 0; i < 10; ++i) {
        EXPECT_TRUE(session->sample(config, &out, top, 5).ok());
        EXPECT_TRUE(session->eval({&out.token, 1}, LogitRows::kNone, nullptr).ok());
      }
    };
    run();
    const size_t warm = memory.n_allocations();
    run();
    EXPECT_EQ(memory.n_allocations(), warm) << kind.name;
  }
}

using Bytes = std::vector<uint8_t>;

Status append(void* user, const void* from, size_t n) {
  const auto* bytes = static_cast<const uint8_t*>(from);
  static_cast<Bytes*>(user)->insert(static_cast<Bytes*>(user)->end(), bytes, bytes + n);
  return {};
}

Status take(void* user, uint64_t offset, void* to, size_t n) {
  std::memcpy(to, static_cast<const Bytes*>(user)->data() + offset, n);
  return {};
}

// Each kind has its largest call: narrow heads and a large vocabulary, wide heads, a latent.
TEST(MemoryTest, CallsAllocateWhatTheAccountAllows) {
  const TinyKind wide = {"wide", [](ModelConfig& c, TinyOptions&) {
                           each_attention(c, [](AttentionConfig& a) { a.head_dim = 20; });
                         }};
  const TinyKind latent = {"latent", [](ModelConfig& c, TinyOptions& o) { set_latent(c, o); }};
  const auto try_kv = [](const TinyKind& kind, KvType kv) {
    const auto bytes = build_tiny_kind(kind);
    FailingAllocator memory;
    Machine machine(*bytes, 1, nullptr, memory.get());
    ASSERT_TRUE(machine.status().ok());
    SessionOptions options;
    options.kv = kv;
    options.chunk = 64;
    const Box<Session> session = machine.session(options);
    MemoryAccount account;
    ASSERT_TRUE(account_memory(machine.model(), options, &account).ok());
    const uint64_t allowed = line_of(account, "temporary memory of calls");
    const auto& header = machine.model().file().header();
    const ModelFileName name = {header.metadata_xxh64, header.file_bytes};
    const Tokens text = random_tokens(150, machine.vocab_size());
    Bytes saved;
    saved.reserve(1 << 20);
    uint64_t most = 0;
    const auto measure = [&](const char* what, uint64_t kept, auto&& call) {
      const size_t before = memory.live_bytes();
      memory.reset_peak();
      const Status status = call();
      EXPECT_TRUE(status.ok()) << what << ": " << status.text();
      const uint64_t used = memory.peak_bytes() - before;
      EXPECT_LE(used, kept + allowed) << kind.name << " " << what;
      most = std::max(most, used - std::min(used, kept));
    };
    measure("perplexity", 0, [&] {
      Perplexity found;
      return measure_perplexity(*session, span(text), {}, &found);
    });
    ASSERT_TRUE(session->eval(span(text), LogitRows::kNone, nullptr).ok());
    measure("pooled", 0, [&] {
      Floats pooled(static_cast<size_t>(machine.model().config().d_model));
      Encoding encoding;
      encoding.pooled = pooled.data();
      return session->encode(span(text).first(5), encoding);
    });
    const SaveSink sink = {append, &saved};
    measure("save", 0, [&] { return save_session(*session, name, sink); });
    measure("load", 0, [&] { return load_session(*session, name, {saved.size(), take, &saved}); });
    measure("fork", session->bytes() - allowed - kHandleBytes,
            [&] { return fork_session(*session, machine.model(), memory.get()).status(); });
    GenerateOptions changed;
    changed.max_tokens = 1;
    changed.change_logits = [](void*, std::span<const int32_t>, std::span<float>) { return true; };
    measure("generate", 0, [&] {
      GenerateResult result;
      return generate(*session, nullptr, {}, changed, &result);
    });
    EXPECT_EQ(most, allowed) << kind.name;
  };
  for (const KvType kv : {KvType::kF16, KvType::kInt8, KvType::kF32}) {
    try_kv(kPlain, kv);
    try_kv(wide, kv);
  }
  try_kv(latent, KvType::kLatent);
}

TEST(MemoryTest, EveryFailedAllocationIsAStatus) {
  const auto bytes = build_tiny_kind(kPlain);
  const Tokens text = random_tokens(20, 64);
  const size_t failures = try_every_allocation_failure([&](const Allocator& memory) {
    Machine machine(*bytes, 1, nullptr, memory);
    if (!machine.status().ok()) return machine.status().code();
    auto session = machine.try_session();
    if (!session.ok()) return session.status().code();
    Session& s = *session.value();
    Status status = s.eval(span(text), LogitRows::kNone, nullptr);
    const int32_t position = s.position();
    EXPECT_EQ(position, status.ok() ? 20 : 0);
    if (!status.ok()) {
      // The next attempt succeeds with the same session.
      EXPECT_TRUE(s.eval(span(text), LogitRows::kNone, nullptr).ok());
    }
    return status.code();
  });
  EXPECT_GT(failures, 10u);
}

}  // namespace
}  // namespace moe
