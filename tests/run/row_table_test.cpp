// SPDX-License-Identifier: MIT
// Tables of embeddings that stay in the file under a memory cap: bits, memory, reads that fail,
// damaged rows.

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "src/run/generate.h"
#include "tests/run/capped_model.h"

namespace moe {
namespace {

constexpr int32_t kVocab = 500;  // the last tile has 4 rows
constexpr size_t kTableText = 60;

// Both tables stay in the file.
TinyKind with_tables(const TinyKind& kind) {
  return two_moe_layers({kind.name, [kind](ModelConfig& c, TinyOptions& o) {
                           c.vocab_size = kVocab;
                           c.tie_embeddings = false;
                           c.layer_input = {.width = 32,
                                            .act = Activation::kGeluTanh,
                                            .multiplier = 1.3f,
                                            .projection_multiplier = 0.6f};
                           kind.change(c, o);
                         }});
}

std::vector<TinyKind> formats_of_tables() {
  std::vector<TinyKind> kinds;
  for (const TinyKind& kind : tiny_formats()) kinds.push_back(with_tables(kind));
  return kinds;
}

class TablesTest {
 protected:
  explicit TablesTest(const TinyKind& kind)
      : bytes_(build_tiny_kind(kind)),
        file_{*bytes_, {}},
        text_(random_tokens(kTableText, kVocab)) {
    text_[7] = kVocab - 1;
    Machine machine(*bytes_);
    EXPECT_TRUE(machine.status().ok()) << machine.status().text();
    expected_ = eval_all(*machine.session(), text_);
    for (const FileSegment& s : machine.model().file().segments()) {
      if (s.part == Part::kEmbedding) embedding_ = s;
      if (s.part == Part::kLayerInputs) inputs_ = s;
    }
  }
  static bool within(const FileSegment& s, uint64_t offset) {
    return offset >= s.offset && offset < s.offset + s.stored;
  }
  bool of_table(uint64_t offset) const {
    return within(embedding_, offset) || within(inputs_, offset);
  }

  std::unique_ptr<MemorySink> bytes_;
  WatchedFile file_;
  Tokens text_;
  Floats expected_;
  FileSegment embedding_;
  FileSegment inputs_;
};

class RowTables : public TablesTest, public testing::TestWithParam<TinyKind> {
 protected:
  RowTables() : TablesTest(GetParam()) {}
};

TEST_P(RowTables, GiveTheSameBitsWithinTheCap) {
  for (const int32_t chunk : {0, 7}) {
    const LeastCap least = least_cap(*bytes_, chunks_of(chunk));
    FailingAllocator memory;
    CappedModel model(file_, {least.bytes}, memory.get());
    ASSERT_TRUE(model.status().ok()) << model.status().text();
    const size_t opened = memory.live_bytes();
    const Box<Session> session = model.session(chunks_of(chunk));
    ASSERT_TRUE(session);
    size_t n_reads = 0, most = 0;
    file_.before = [&](uint64_t offset, size_t n) {
      if (!of_table(offset)) return 0;
      ++n_reads;
      most = std::max(most, n);
      return 0;
    };
    EXPECT_TRUE(eval_all(*session, text_) == expected_) << "chunks of " << chunk;
    EXPECT_GE(n_reads, text_.size());
    EXPECT_LE(most, 16u * 64 * sizeof(float));  // a tile
    ASSERT_TRUE(session->reset().ok());
    EXPECT_TRUE(eval_all(*session, text_, 1) == expected_);
    file_.before = nullptr;
    EXPECT_LE(memory.peak_bytes() - opened, least.bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RowTables, testing::ValuesIn(formats_of_tables()),
                         [](const auto& kind) { return kind.param.name; });

class TablesInTheFile : public TablesTest, public testing::Test {
 protected:
  TablesInTheFile() : TablesTest(with_tables({"f32", [](ModelConfig&, TinyOptions&) {}})) {}
};

uint64_t embedding_line(const MemoryAccount& account) {
  return line_of(account, "embedding, final norm and head weights");
}

TEST_F(TablesInTheFile, LeaveTheAccount) {
  Machine resident(*bytes_);
  MemoryAccount all;
  ASSERT_TRUE(account_memory(resident.model(), {}, {}, &all).ok());
  CappedModel capped(file_, {1});
  const MemoryAccount least = capped.account();
  EXPECT_EQ(embedding_line(all) - embedding_line(least), embedding_.raw + inputs_.raw);
  EXPECT_EQ(line_of(all, "rows of tables in the file"), 0u);
  // For each table a tile with room around it, and the same for scales; the projection and its
  // norm.
  const uint64_t tile[] = {2 * 8192, 2 * 8192};
  const uint64_t rest = 64 * 32 * sizeof(float) + 32 * sizeof(float);
  EXPECT_EQ(line_of(least, "rows of tables in the file"), tile[0] + tile[1] + rest);
  EXPECT_LT(least.total + inputs_.raw, all.total);
  EXPECT_EQ(resident.model().spare_bytes(), 0u);  // its file is in memory
  const Allocator& memory = system_allocator();
  auto opened = MoeFile::open(file_.source(), memory);
  ASSERT_TRUE(opened.ok());
  auto model = Model::open(std::move(*opened), {}, resident.model().device(), Logger(), memory);
  ASSERT_TRUE(model.ok());
  EXPECT_GE((*model)->spare_bytes(),
            embedding_.raw + inputs_.raw - line_of(least, "rows of tables in the file"));
}

TEST_F(TablesInTheFile, CompressedTablesAreInMemory) {
  const TinyKind kind = with_tables({"zstd", [](ModelConfig&, TinyOptions& o) {
                                       o.weights = FormatId::kTernary2;
                                       o.compress = true;
                                     }});
  const auto bytes = build_tiny_kind(kind);
  WatchedFile file{*bytes, {}};
  Machine machine(*bytes);
  const Floats expected = eval_all(*machine.session(), text_);
  CappedModel model(file, {least_cap(*bytes).bytes});
  EXPECT_TRUE(eval_all(*model.session(), text_) == expected);
  for (const FileSegment& s : model.model().file().segments()) {
    if (s.part != Part::kLayerInputs) continue;
    EXPECT_EQ(s.codec, Codec::kZstd);
  }
  EXPECT_EQ(line_of(model.account(), "rows of tables in the file"), 0u);
}

TEST_F(TablesInTheFile, ServeSessionsTogether) {
  constexpr size_t kSessions = 3;
  const Tokens prompts[kSessions] = {Tokens(text_.begin(), text_.begin() + 20),
                                     Tokens(text_.begin() + 20, text_.begin() + 21),
                                     Tokens(text_.begin() + 21, text_.end())};
  Tokens joined;
  Floats expected;
  size_t n[kSessions];
  Machine machine(*bytes_);
  for (size_t i = 0; i < kSessions; ++i) {
    n[i] = prompts[i].size();
    joined.insert(joined.end(), prompts[i].begin(), prompts[i].end());
    const Floats alone = eval_all(*machine.session(), prompts[i]);
    expected.insert(expected.end(), alone.end() - kVocab, alone.end());
  }
  const LeastCap least = least_cap(*bytes_, chunks_of(16));
  CappedModel model(file_, {least.bytes + 2 * least.session});
  Box<Session> sessions[kSessions];
  Session* together[kSessions];
  for (size_t i = 0; i < kSessions; ++i) {
    sessions[i] = model.session(chunks_of(16));
    ASSERT_TRUE(sessions[i]);
    together[i] = sessions[i].get();
  }
  Floats logits(expected.size());
  ASSERT_TRUE(sessions_eval({together, kSessions}, joined.data(), n, logits.data()).ok());
  EXPECT_TRUE(logits == expected);
}

TEST_F(TablesInTheFile, DraftsGiveTheSameTokens) {
  GenerateOptions options;
  options.max_tokens = 40;
  options.ignore_eos = true;
  GenerateResult result;
  const Tokens prompt = {3, 1, 4, 1, 5, 3, 1, 4, 1, 5, 3, 1, 4};
  const auto generated = [&](Session& session) {
    const Status status = generate(session, nullptr, span(prompt), options, &result);
    EXPECT_TRUE(status.ok()) << status.text();
    return Tokens(session.tokens().begin(), session.tokens().end());
  };
  Machine machine(*bytes_);
  const Tokens plain = generated(*machine.session());
  options.max_draft = 8;
  CappedModel model(file_, {least_cap(*bytes_).bytes});
  EXPECT_EQ(generated(*model.session()), plain);
}

// Each read of a row may fail: the call says so, and the next one has the right answer.
TEST_F(TablesInTheFile, AReadThatFailsIsAnErrorOfTheCall) {
  const LeastCap least = least_cap(*bytes_, chunks_of(16));
  CappedModel model(file_, {least.bytes, 0});
  const Box<Session> session = model.session(chunks_of(16));
  ASSERT_TRUE(session);
  for (const FileSegment* table : {&embedding_, &inputs_}) {
    for (const size_t fail_at : {0, 1, 30}) {
      size_t n = 0;
      file_.before = [&](uint64_t offset, size_t) {
        return within(*table, offset) && n++ == fail_at ? 5 : 0;
      };
      ASSERT_TRUE(session->reset().ok());
      const Status s = session->eval(span(text_), LogitRows::kNone, nullptr);
      EXPECT_EQ(s.code(), MOE_ERR_IO) << s.text();
      const char* name = table == &inputs_ ? "segment layer_inputs: " : "segment embedding: ";
      EXPECT_NE(std::strstr(s.text(), name), nullptr) << s.text();
      EXPECT_EQ(session->position(), fail_at == 30 ? 16 : 0);
      file_.before = nullptr;
      const auto done = static_cast<size_t>(session->position());
      Floats rest =
          eval_all(*session, Tokens(text_.begin() + static_cast<ptrdiff_t>(done), text_.end()));
      EXPECT_TRUE(std::equal(rest.begin(), rest.end(),
                             expected_.begin() + static_cast<ptrdiff_t>(done) * kVocab));
    }
  }
}

TEST_F(TablesInTheFile, ADamagedTableIsRefusedWhenItIsOpened) {
  auto* damaged = const_cast<uint8_t*>(bytes_->data()) + inputs_.offset + 12345;
  *damaged ^= 1;
  const LeastCap least = least_cap(*bytes_);
  CappedModel model(file_, {least.bytes});
  const Status s = model.try_session().status();
  EXPECT_EQ(s.code(), MOE_ERR_CORRUPT);
  EXPECT_NE(std::strstr(s.text(), "segment layer_inputs: its checksum"), nullptr) << s.text();
  EXPECT_EQ(model.model().verify().code(), MOE_ERR_CORRUPT);
  EXPECT_EQ(model.try_session().status().code(), MOE_ERR_CORRUPT);  // verify() has loaded nothing
  *damaged ^= 1;
  EXPECT_TRUE(eval_all(*model.session(), text_) == expected_);
}

// A session's pass waits for a part of a table that is being verified, not for all parts.
TEST_F(TablesInTheFile, AreReadWhileTheyAreVerified) {
  const LeastCap least = least_cap(*bytes_);
  CappedModel model(file_, {least.bytes + kVocab * 32 * sizeof(float) + 4096});
  const Box<Session> session = model.session();
  ASSERT_TRUE(session);
  std::atomic<bool> verified{false};
  Status status;
  file_.before = [&](uint64_t offset, size_t) {
    if (of_table(offset)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return 0;
  };
  std::thread other([&] {
    status = model.model().verify();
    verified = true;
  });
  int n_passes = 0;
  while (!verified) {
    EXPECT_TRUE(session->reset().ok());
    Floats logits(kVocab);
    EXPECT_TRUE(session->eval({text_.data(), 1}, LogitRows::kLast, logits.data()).ok());
    EXPECT_TRUE(std::equal(logits.begin(), logits.end(), expected_.begin()));
    n_passes += verified ? 0 : 1;
  }
  other.join();
  file_.before = nullptr;
  EXPECT_TRUE(status.ok()) << status.text();
  EXPECT_GE(n_passes, 4);
}

TEST_F(TablesInTheFile, AreVerifiedWithTheRest) {
  const LeastCap least = least_cap(*bytes_);
  for (const bool session_first : {false, true}) {
    FailingAllocator memory;
    // The head, which is read beside a session.
    const uint64_t cap = least.bytes + (session_first ? kVocab * 32 * sizeof(float) + 4096 : 0);
    CappedModel model(file_, {cap}, memory.get());
    const size_t opened = memory.live_bytes();
    const Box<Session> session = session_first ? model.session() : Box<Session>();
    size_t n_read = 0;
    file_.before = [&](uint64_t offset, size_t n) {
      n_read += within(inputs_, offset) ? n : 0;
      return 0;
    };
    const Status s = model.model().verify();
    file_.before = nullptr;
    EXPECT_TRUE(s.ok()) << s.text();
    EXPECT_GE(n_read, inputs_.stored);
    EXPECT_LE(memory.peak_bytes() - opened, cap);
    EXPECT_TRUE(eval_all(session_first ? *session : *model.session(), text_) == expected_);
    auto* value = reinterpret_cast<float*>(const_cast<uint8_t*>(bytes_->data()) + inputs_.offset);
    const float before = value[3];
    value[3] = 1 + before;
    EXPECT_EQ(model.model().verify().code(), MOE_ERR_CORRUPT);
    value[3] = before;
  }
}

TEST_F(TablesInTheFile, ARowThatIsNotFiniteIsAnErrorOfTheCall) {
  const LeastCap least = least_cap(*bytes_);
  CappedModel model(file_, {least.bytes + 16 * least.slot});
  const Box<Session> session = model.session();
  ASSERT_TRUE(session);
  // Rows of a tile are next to each other: row 17 is in the second tile of 64 columns.
  auto* value = reinterpret_cast<float*>(const_cast<uint8_t*>(bytes_->data()) + inputs_.offset +
                                         16 * 64 * sizeof(float));
  const float before = value[1];
  value[1] = NAN;
  const int32_t bad[] = {40, 17}, good[] = {40, 8};
  const Status s = session->eval(bad, LogitRows::kNone, nullptr);
  EXPECT_EQ(s.code(), MOE_ERR_NON_FINITE);
  EXPECT_NE(std::strstr(s.text(), "tensor layer_inputs.weight from row 16 on"), nullptr)
      << s.text();
  EXPECT_TRUE(session->eval(good, LogitRows::kNone, nullptr).ok());
  value[1] = before;
  ASSERT_TRUE(session->reset().ok());
  EXPECT_TRUE(eval_all(*session, text_) == expected_);
}

TEST_F(TablesInTheFile, EveryFailedAllocationIsAStatus) {
  const LeastCap least = least_cap(*bytes_);
  try_every_allocation_failure([&](const Allocator& memory) {
    CappedModel model(file_, {least.with(6)}, memory);
    if (!model.status().ok()) return model.status().code();
    auto session = model.try_session();
    if (!session.ok()) return session.status().code();
    return (*session)->eval(span(text_), LogitRows::kNone, nullptr).code();
  });
}

}  // namespace
}  // namespace moe
