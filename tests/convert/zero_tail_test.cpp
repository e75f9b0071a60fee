// SPDX-License-Identifier: MIT
// Files that end in zeros: a download that was cut off after its space was reserved, or zeros that
// are meant.

#include <algorithm>

#include "formats/import/failure.h"
#include "src/convert/gguf/gguf_source.h"
#include "tests/convert/convert_fixture.h"
#include "tests/convert/gguf_builder.h"

namespace moe {
namespace {

using test::as_bytes;
using test::f32_tensor;
using test::RawTensor;
using test::RawTensors;

// Normal numbers; `n_zero` of them, the last, are zero.
std::vector<float> values(size_t n, size_t n_zero = 0) {
  std::vector<float> out(n, 0);
  for (size_t i = 0; i + n_zero < n; ++i) out[i] = 0.25f + static_cast<float>(i % 5);
  return out;
}

class ZeroTail : public test::ConvertTest {
 protected:
  // Safetensors files of `tensors`; opens them as the converter does.
  Status open(const std::vector<RawTensors>& shards, bool allow_zeros = false) {
    std::string map;
    for (size_t i = 0; i < shards.size(); ++i) {
      const std::string name = "model-" + std::to_string(i + 1) + ".safetensors";
      source_.write(name, test::safetensors_text(shards[i]));
      for (const auto& [tensor, raw] : shards[i]) {
        map += (map.empty() ? "\"" : ",\"") + tensor + "\":\"" + name + "\"";
      }
    }
    source_.write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
    return guarded(
        [&] { (void)open_checkpoint(source_.path(), [] {}, {.allow_zeros = allow_zeros}); });
  }
  void expect_cut(const std::vector<RawTensors>& shards, std::initializer_list<const char*> parts) {
    const Status status = open(shards);
    EXPECT_EQ(status.code(), MOE_ERR_CORRUPT) << status.text();
    const std::string text = status.text();
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_NE(text.find("--allow-zeros"), std::string::npos) << text;
    EXPECT_TRUE(open(shards, true).ok());
  }
  void expect_fine(const RawTensors& tensors) {
    const Status status = open({tensors});
    EXPECT_TRUE(status.ok()) << status.text();
  }
  // A matrix of 40 x 32 at the end of a file, whose last `n` floats are zero.
  static RawTensors matrix(size_t n, const char* name = "z.weight") {
    return {{name, f32_tensor({40, 32}, values(40 * 32, n))}};
  }
};

TEST_F(ZeroTail, TheFirstTensorOfZerosIsNamed) {
  RawTensors tensors = {{"a.weight", f32_tensor({4, 8}, values(32))},
                        {"b.bias", f32_tensor({8}, values(8, 8))},
                        {"c.weight", f32_tensor({4, 8}, values(32, 32))},
                        {"d.norm", f32_tensor({8}, values(8, 8))}};
  const std::string file = test::safetensors_text(tensors);
  const std::string at = std::to_string(file.size() - 4 * (8 + 32 + 8));
  expect_cut({tensors}, {"model-1.safetensors: only zeros from byte ", "3 tensors, first b.bias",
                         ("at byte " + at).c_str(), "download"});
  tensors["e.weight"] = f32_tensor({1}, {1});
  expect_fine(tensors);
}

TEST_F(ZeroTail, EachShardHasItsOwnEnd) {
  const RawTensors whole = {{"a.weight", f32_tensor({4, 8}, values(32))}};
  const RawTensors cut = {{"b.weight", f32_tensor({4, 8}, values(32, 32))}};
  RawTensors last = {{"c.weight", f32_tensor({4, 8}, values(32))}};
  expect_cut({whole, cut, last}, {"model-2.safetensors", "tensor b.weight"});
}

TEST_F(ZeroTail, ZerosThatAreMeant) {
  const auto with = [](const char* name, std::vector<int64_t> shape, const char* dtype = "F32") {
    size_t n = 1;
    for (const int64_t axis : shape) n *= static_cast<size_t>(axis);
    return RawTensors{
        {"a.weight", f32_tensor({4, 8}, values(32))},
        {name, RawTensor{dtype, shape, std::string(n * (dtype[0] == 'F' ? 4 : 1), '\0')}}};
  };
  expect_fine(with("z.bias", {64}));
  expect_fine(with("z.norm.weight", {64}));
  expect_fine(with("z.experts.down_proj_bias", {8, 64}));
  expect_fine(with("z.q_norm.weight", {8, 64}));
  expect_fine(with("z.token_type_embeddings.weight", {1, 64}));
  expect_fine(with("z.weight_zero_point", {8, 4}, "I8"));
  expect_cut({with("z.weight", {2, 64})}, {"tensor z.weight"});
  expect_cut({with("z.experts", {4, 8, 8})}, {"tensor z.experts"});
  expect_cut({with("z.qweight", {8, 64}, "I8")}, {"tensor z.qweight"});
  expect_cut({with("z.weight", {512, 1}, "U8")}, {"tensor z.weight"});  // bitsandbytes
}

TEST_F(ZeroTail, PartOfAMatrix) {
  for (const size_t n : {1, 20, 31}) expect_fine(matrix(n));  // in the last row
  for (const size_t n : {32, 3 * 32, 9 * 32, 9 * 32 + 3}) expect_fine(matrix(n));  // rows
  for (const size_t n : {32 + 20, 5 * 32 + 16, 10 * 32, 20 * 32, 40 * 32 - 1}) {
    expect_cut({matrix(n)}, {"z.weight", "is cut off"});
  }
  // Rows that pad a vocabulary.
  for (const size_t n : {10 * 32, 19 * 32}) expect_fine(matrix(n, "model.embed_tokens.weight"));
  for (const size_t n : {10 * 32 + 16, 20 * 32}) {
    expect_cut({matrix(n, "lm_head.weight")}, {"lm_head.weight"});
  }
  // Columns and rows of padding.
  std::vector<float> padded = values(40 * 32);
  for (size_t i = 0; i < padded.size(); ++i) {
    if (i % 32 >= 20 || i >= 35 * 32) padded[i] = 0;
  }
  expect_fine({{"z.weight", f32_tensor({40, 32}, padded)}});
}

TEST_F(ZeroTail, PartOfAStackOfExperts) {
  const auto stack = [](size_t n) {
    return RawTensors{{"experts.down_proj", f32_tensor({4, 16, 8}, values(512, n))}};
  };
  for (const size_t n : {5, 8, 24}) expect_fine(stack(n));
  for (const size_t n : {4 * 8, 20, 16 * 8, 300}) expect_cut({stack(n)}, {"experts.down_proj"});
}

TEST_F(ZeroTail, OfAGgufFile) {
  for (const uint32_t type : {0u, 1u, 8u, 30u}) {
    const uint64_t bytes[] = {4 * 64 * 64, 2 * 64 * 64, 64 * 64 / 32 * 34, 2 * 64 * 64};
    const uint64_t n = bytes[type == 0 ? 0 : type == 1 ? 1 : type == 8 ? 2 : 3];
    test::GgufBuilder b;
    b.string("general.architecture", "llama");
    b.tensor("blk.0.ffn_up.weight", type, {64, 64}, std::string(n, '\x2c'));
    b.f32_tensor("blk.0.ffn_norm.weight", {8}, 0);
    b.tensor("blk.0.ffn_down.weight", type, {64, 64}, std::string(n, '\0'));
    source_.write("m.gguf", b.file());
    const Status status = convert(source_.file("m.gguf"), path(), {}, &report_);
    EXPECT_EQ(status.code(), MOE_ERR_CORRUPT) << status.text();
    const std::string text = status.text();
    EXPECT_NE(text.find("2 tensors, first blk.0.ffn_norm.weight"), std::string::npos) << text;
  }
}

// Its second half is zero, as in a preallocated file.
TEST_F(ZeroTail, ConversionSucceedsOnlyIfZerosAreMeant) {
  test::write_checkpoint(source_, config_, tensors_);
  std::string file = source_.text("model.safetensors");
  std::fill(file.begin() + static_cast<ptrdiff_t>(file.size() / 2), file.end(), '\0');
  source_.write("model.safetensors", file);
  options_.on_matrix = [this](const MatrixReport& r) { matrices_[r.name] = r; };
  EXPECT_EQ(convert(source_.path(), path(), options_, &report_).code(), MOE_ERR_CORRUPT);
  EXPECT_TRUE(target_.names().empty());
  options_.allow_zeros = true;
  const Status status = convert(source_.path(), path(), options_, &report_);
  ASSERT_TRUE(status.ok()) << status.text();
  const auto n_zero = std::count_if(matrices_.begin(), matrices_.end(),
                                    [](const auto& m) { return m.second.zeros; });
  EXPECT_GT(n_zero, 0);
  EXPECT_LT(n_zero, std::ssize(matrices_));
}

}  // namespace
}  // namespace moe
