// SPDX-License-Identifier: MIT
// Files of statistics that are of another model, damaged or none: refused before anything is
// written.
#include <cmath>

#include "tests/convert/statistics_case.h"

namespace moe {
namespace {

using test::kSphinx;
using test::StatisticsTest;

TEST_F(StatisticsTest, OfAnotherModelAreRefused) {
  save();
  for (const bool last : {false, true}) {  // a value at either end of a tensor
    test::RawTensors other = tensors_;
    auto& bytes = other["layers.1.attention.q.weight"].bytes;
    bytes[last ? bytes.size() - 2 : 2] ^= 1;
    test::write_checkpoint(source_, config_, other);
    expect_refused(MOE_ERR_ARGUMENT, "saved for another checkpoint");
  }
  test::write_checkpoint(
      source_, patched(R"({"norm": {"kind": "rms", "eps": 2e-3}})", config_.c_str()), tensors_);
  expect_refused(MOE_ERR_ARGUMENT, "saved for another checkpoint");
  const std::pair<const char*, const char*> kChanges[] = {{"\"d_ff\":28", "\"d_ff\":36"},
                                                          {R"("n_experts":4)", R"("n_experts":5)"},
                                                          {R"("n_experts":4)", R"("n_experts":3)"}};
  for (const auto& [from, to] : kChanges) {
    std::string config = config_;
    for (size_t at = 0; (at = config.find(from, at)) != std::string::npos; ++at) {
      config.replace(at, std::strlen(from), to);
    }
    test::write_checkpoint(source_, config, test::random_tensors(config));
    expect_refused(MOE_ERR_ARGUMENT, "saved for another checkpoint");
  }
}

TEST_F(StatisticsTest, ThatAreNoneAreRefused) {
  target_.write("s", kSphinx);
  expect_refused(MOE_ERR_FORMAT, "not a safetensors file");
  target_.write("s", "");
  expect_refused(MOE_ERR_FORMAT, "not a safetensors file");
  target_.write("s", test::safetensors_text(tensors_));
  expect_refused(MOE_ERR_FORMAT, "expected statistics that a conversion saved");
  target_.write("s", test::safetensors_text("{}", ""));
  expect_refused(MOE_ERR_FORMAT, "expected statistics that a conversion saved");
  EXPECT_EQ(run("int4", nullptr, "none").code(), MOE_ERR_NOT_FOUND);
}

// A saved file in parts that a test changes.
struct Parts {
  explicit Parts(const std::string& file) {
    uint64_t n = 0;
    std::memcpy(&n, file.data(), sizeof n);
    const Json header = parse_json(file.substr(8, n), "test");
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        metadata = value;
        continue;
      }
      const auto at = value.at("data_offsets").get<std::vector<size_t>>();
      tensors[name] = {value.at("dtype").text(), value.at("shape").get<std::vector<int64_t>>(),
                       file.substr(8 + n + at[0], at[1] - at[0])};
    }
  }
  std::string text() const {
    std::string out = test::safetensors_text(tensors);
    uint64_t n = 0;
    std::memcpy(&n, out.data(), sizeof n);
    const std::string old = R"({"__metadata__":{"format":"pt"})";
    return test::safetensors_text(
        R"({"__metadata__":)" + metadata.dump() + out.substr(8 + old.size(), n - old.size()),
        out.substr(8 + n));
  }
  void put(const std::string& name, size_t at, float value) {
    std::memcpy(tensors.at(name).bytes.data() + at * sizeof value, &value, sizeof value);
  }
  void put(const std::string& name, int64_t value) {
    std::memcpy(tensors.at(name).bytes.data(), &value, sizeof value);
  }

  Json metadata;
  test::RawTensors tensors;
};

TEST_F(StatisticsTest, DamagedOnesAreRefusedByName) {
  save();
  const Parts whole(target_.text("s"));
  const std::string up = "layers.2.moe.experts.0.up.";
  const auto expect = [&](moe_status code, const std::string& why, auto&& change) {
    Parts parts = whole;
    change(parts);
    target_.write("s", parts.text());
    expect_refused(code, why.c_str());
  };
  target_.write("s", whole.text());  // other tools may order tensors by name
  ASSERT_TRUE(run("int4", nullptr, "s").ok());
  std::filesystem::remove(target_.file("m.moe"));
  const float nan = std::nanf(""), infinite = HUGE_VALF;
  expect(MOE_ERR_NON_FINITE, up + "mean_squares: expected finite numbers, found nan at 3",
         [&](Parts& p) { p.put(up + "mean_squares", 3, nan); });
  expect(MOE_ERR_NON_FINITE, up + "second_moments: expected finite numbers, found inf at 40",
         [&](Parts& p) { p.put(up + "second_moments", 40, infinite); });
  expect(MOE_ERR_RANGE, up + "mean_squares: expected 0 or more, found -2 at 3",
         [&](Parts& p) { p.put(up + "mean_squares", 3, -2); });
  expect(MOE_ERR_RANGE, up + "second_moments: expected a mean square of 0 or more, input 2 has -2",
         [&](Parts& p) { p.put(up + "second_moments", 5, -2); });
  expect(MOE_ERR_CORRUPT, "checksum", [&](Parts& p) { p.put(up + "second_moments", 4, -2); });
  expect(MOE_ERR_CORRUPT, "checksum", [&](Parts& p) { p.put(up + "tokens", 1); });
  expect(MOE_ERR_RANGE, up + "tokens", [&](Parts& p) { p.put(up + "tokens", -1); });
  expect(MOE_ERR_FORMAT, "no token reached it", [&](Parts& p) { p.put(up + "tokens", 0); });
  expect(MOE_ERR_FORMAT, "layers.1.moe.experts.1.up.mean_squares is missing",
         [&](Parts& p) { p.put("layers.1.moe.experts.1.up.tokens", 1); });
  expect(MOE_ERR_FORMAT, up + "tokens is missing",
         [&](Parts& p) { p.tensors.erase(up + "tokens"); });
  expect(MOE_ERR_CORRUPT, "checksum", [&](Parts& p) { p.tensors.erase(up + "second_moments"); });
  expect(MOE_ERR_FORMAT, "x.tokens: the model has no such input",
         [&](Parts& p) { p.tensors["x.tokens"] = p.tensors[up + "tokens"]; });
  expect(MOE_ERR_FORMAT, "I64 (1), the file has I64 ()",
         [&](Parts& p) { p.tensors[up + "tokens"].shape.clear(); });
  expect(MOE_ERR_FORMAT, "the model needs F32 (24), the file has I32 (24)",
         [&](Parts& p) { p.tensors[up + "mean_squares"].dtype = "I32"; });
  expect(MOE_ERR_VERSION, "expected version 2, found 1",
         [](Parts& p) { p.metadata["version"] = "1"; });
  expect(MOE_ERR_CORRUPT, "checksum: expected 12", [](Parts& p) { p.metadata["xxh64"] = "12"; });
  for (const char* key : {"format", "version", "model", "tokens", "perplexity", "xxh64"}) {
    expect(MOE_ERR_FORMAT, key[0] == 'f' ? "other tensors" : key,
           [&](Parts& p) { p.metadata.erase(key); });
    expect(MOE_ERR_FORMAT, key[0] == 'f' ? "other tensors" : key,
           [&](Parts& p) { p.metadata[key] = 1; });
  }
  for (const char* tokens : {"", "0", "-1", "1.5", "9007199254740993", "1e999", "[1]"}) {
    expect(MOE_ERR_FORMAT, "__metadata__: tokens",
           [&](Parts& p) { p.metadata["tokens"] = tokens; });
  }
  for (const char* perplexity : {"", "-1", "nan", "1e999", "nul", "[null]"}) {
    expect(MOE_ERR_FORMAT, "__metadata__: perplexity",
           [&](Parts& p) { p.metadata["perplexity"] = perplexity; });
  }
  for (const char* perplexity : {"3", "null"}) {
    expect(MOE_ERR_CORRUPT, "checksum", [&](Parts& p) { p.metadata["perplexity"] = perplexity; });
  }
}

TEST_F(StatisticsTest, EveryCutAndChangedByteIsNoticed) {
  config_ = patched(R"({"tokenizer": "bytes", "vocab_size": 256, "add_bos": false, "n_layers": 1,
      "layers": []})");
  test::write_checkpoint(source_, config_, test::random_tensors(config_));
  save();
  const std::string whole = target_.text("s");
  for (size_t n = 0; n < whole.size(); n += 101) {
    target_.write("s", whole.substr(0, n));
    const Status status = refusal();
    EXPECT_EQ(status.code(), MOE_ERR_FORMAT) << n << ": " << status.text();
    std::string changed = whole;
    changed[n] ^= 4;
    target_.write("s", changed);
    EXPECT_FALSE(refusal().ok()) << n;
    EXPECT_NE(refusal().code(), MOE_ERR_INTERNAL) << n;
  }
  target_.write("s", whole + "\n");
  expect_refused(MOE_ERR_FORMAT, "belong to no tensor");
}

}  // namespace
}  // namespace moe
