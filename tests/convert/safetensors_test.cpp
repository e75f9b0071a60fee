// SPDX-License-Identifier: MIT
#include "formats/import/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>

#include "formats/import/checkpoint.h"
#include "formats/import/failure.h"
#include "tests/convert/checkpoint_builder.h"

namespace moe {
namespace {

using test::safetensors_text;

class SafetensorsTest : public testing::Test {
 protected:
  // The error of a folder whose model.safetensors is `text`.
  std::string error_of(const std::string& text, moe_status code = MOE_ERR_FORMAT) {
    folder_.write("model.safetensors", text);
    return error(code);
  }
  std::string error(moe_status code = MOE_ERR_FORMAT) {
    const Status status = guarded([&] { Checkpoint checkpoint(folder_.path()); });
    EXPECT_EQ(status.code(), code) << status.text();
    const std::string text = status.text();
    const std::string prefix = folder_.path() + "/";
    const size_t at = text.find(prefix);
    return at == std::string::npos ? text : text.substr(0, at) + text.substr(at + prefix.size());
  }
  std::string header_error(const std::string& header, size_t data_bytes) {
    return error_of(safetensors_text(header, std::string(data_bytes, '\0')));
  }

  test::TempFolder folder_;
};

TEST_F(SafetensorsTest, ReadsEveryTypeAtAnyOffset) {
  // "a" has one byte, so that all later tensors are unaligned.
  folder_.write("model.safetensors",
                safetensors_text({
                    {"a", {"U8", {1}, "\x07"}},
                    {"b", test::f32_tensor({2, 2}, {1.5f, -2, 0, 3e38f})},
                    {"c", test::bf16_tensor({3}, {1, -0.5f, 96})},
                    {"d",
                     {"F16",
                      {6},
                      test::as_bytes<uint16_t>({0x3C00, 0xC000, 0x0001, 0x7C00, 0x83FF, 0x7BFF})}},
                    {"e", {"I64", {2}, test::as_bytes<int64_t>({-5, INT64_C(1) << 40})}},
                    {"f", {"I8", {2}, test::as_bytes<int8_t>({-128, 127})}},
                    {"g", {"F64", {}, test::as_bytes<double>({0.25})}},
                    {"h", {"I32", {0, 4}, ""}},
                }));
  const Checkpoint c(folder_.path());
  const auto floats = [&](const char* name) {
    const SourceTensor& t = *c.find(name);
    std::vector<float> out(t.n_elements);
    c.read(t, 0, out.size(), out.data());
    return out;
  };
  EXPECT_EQ(floats("a"), (std::vector<float>{7}));
  EXPECT_EQ(floats("b"), (std::vector<float>{1.5f, -2, 0, 3e38f}));
  EXPECT_EQ(floats("c"), (std::vector<float>{1, -0.5f, 96}));
  EXPECT_EQ(floats("d"), (std::vector<float>{1, -2, 0x1p-24f, INFINITY, -1023 * 0x1p-24f, 65504}));
  EXPECT_EQ(floats("f"), (std::vector<float>{-128, 127}));
  EXPECT_EQ(floats("g"), (std::vector<float>{0.25f}));
  EXPECT_TRUE(floats("h").empty());
  std::vector<int64_t> whole(2);
  c.read(*c.find("e"), 0, 2, whole.data());
  EXPECT_EQ(whole, (std::vector<int64_t>{-5, INT64_C(1) << 40}));
  float one = 0;
  c.read(*c.find("b"), 3, 1, &one);
  EXPECT_EQ(one, 3e38f);
  EXPECT_EQ(c.find("nothing"), nullptr);
  EXPECT_EQ(guarded([&] { c.read(*c.find("b"), 3, 2, whole.data()); }).code(), MOE_ERR_INTERNAL);
  EXPECT_EQ(guarded([&] { c.read(*c.find("b"), 0, 1, whole.data()); }).code(), MOE_ERR_UNSUPPORTED);
}

TEST_F(SafetensorsTest, ReadsLongTensorsInPieces) {
  std::vector<float> values(200'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  folder_.write("model.safetensors",
                safetensors_text({{"x", test::f32_tensor({200, 1000}, values)}}));
  const Checkpoint c(folder_.path());
  std::vector<float> out(150'000);
  c.read(*c.find("x"), 30'000, out.size(), out.data());
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], values[i + 30'000]);
}

TEST_F(SafetensorsTest, RefusesADamagedContainer) {
  error_of("");
  error_of("1234567");
  error_of(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10));
  error_of(std::string("\x00\x00\x00\x80\x00\x00\x00\x00{}", 10));  // 2 GiB of header
  EXPECT_EQ(
      error_of(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
      "model.safetensors: cut off, or not a safetensors file: a header of 3 bytes in a file of "
      "10; at least 1 bytes are missing");
  error_of(std::string("\0\0\0\0\0\0\0\0", 8));
  header_error("[]", 0);
  header_error("{\"a\"", 0);
  header_error("{\"a\":{\"dtype\":\"F32\",\"shape\":[[[[1]]]],\"data_offsets\":[0,4]}}", 4);
}

TEST_F(SafetensorsTest, RefusesTensorsOfTheWrongSize) {
  const auto entry = [](const char* name, const char* dtype, const char* shape, const char* range) {
    return std::string("\"") + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
           ",\"data_offsets\":" + range + "}";
  };
  const auto one = [&](const char* dtype, const char* shape, const char* range, size_t bytes) {
    return header_error("{" + entry("w", dtype, shape, range) + "}", bytes);
  };
  EXPECT_EQ(
      one("F32", "[2,3]", "[0,20]", 20),
      "model.safetensors: tensor w: expected 24 bytes for F32 (2, 3), data_offsets are [0, 20]");
  EXPECT_EQ(one("F99", "[2]", "[0,8]", 8), "model.safetensors: tensor w: unknown dtype \"F99\"");
  EXPECT_EQ(one("F32", "[2]", "[0,8]", 4).substr(0, 45),
            "model.safetensors: cut off: 4 of its 70 bytes");
  one("F32", "[-2]", "[0,8]", 8);
  one("F32", "[2.0]", "[0,8]", 8);
  one("F32", "[4294967296,4294967296]", "[0,0]", 0);
  one("F32", "[4611686018427387905]", "[0,4]", 4);
  one("F32", "[9223372036854775807,2]", "[0,8]", 8);
  one("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]", 8);
  one("F32", "[2]", "[8,0]", 8);
  one("F32", "[2]", "[0]", 8);
  one("F32", "[2]", "[18446744073709551608,0]", 8);
  EXPECT_EQ(one("F32", "[1]", "[0,4]", 8),
            "model.safetensors: the last 4 bytes belong to no tensor (more than one file in it?); "
            "download it again");
  EXPECT_EQ(one("F32", "[1]", "[4,8]", 8),
            "model.safetensors: 4 bytes before tensor w belong to no tensor");
  header_error("{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4);
  header_error("{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4);
  header_error("{\"w\":7}", 4);
  EXPECT_EQ(header_error("{" + entry("a", "F32", "[2]", "[0,8]") + "," +
                             entry("b", "F32", "[2]", "[4,12]") + "}",
                         12),
            "model.safetensors: tensors a and b overlap");
  EXPECT_EQ(header_error("{" + entry("a", "F32", "[1]", "[0,4]") + "," +
                             entry("a", "F32", "[1]", "[4,8]") + "}",
                         8),
            "model.safetensors: key \"a\" is given twice");
}

class ShardsTest : public SafetensorsTest {
 protected:
  void index(const std::string& map) {
    folder_.write("model.safetensors.index.json",
                  "{\"metadata\": {}, \"weight_map\": " + map + "}");
  }
  void SetUp() override {
    folder_.write("one.safetensors", safetensors_text({{"a", test::f32_tensor({1}, {1})}}));
    folder_.write("two.safetensors", safetensors_text({{"b", test::f32_tensor({1}, {2})}}));
  }
};

TEST_F(ShardsTest, ReadsTensorsOfEveryShard) {
  index(R"({"a": "one.safetensors", "b": "two.safetensors"})");
  const Checkpoint c(folder_.path());
  float value = 0;
  c.read(*c.find("b"), 0, 1, &value);
  EXPECT_EQ(value, 2);
  EXPECT_EQ(c.tensors().size(), 2u);
}

TEST_F(ShardsTest, RefusesAnIndexThatLeadsElsewhere) {
  for (const char* name :
       {"../one.safetensors", "/etc/one.safetensors", "", ".safetensors", "sub/one.safetensors",
        "..\\\\one.safetensors", "one.txt", "one\\u0000.safetensors", "../../../../etc/passwd"}) {
    index(std::string("{\"a\": \"") + name + "\"}");
    EXPECT_NE(error().find("is not the name of a .safetensors file in the same folder"),
              std::string::npos)
        << name;
  }
}

TEST_F(ShardsTest, RefusesAnIndexThatContradictsTheShards) {
  index(R"({"a": "two.safetensors", "b": "two.safetensors"})");
  EXPECT_EQ(error(), "tensor a: the index says it is in two.safetensors, where it is not");
  index(R"({"a": "one.safetensors", "c": "two.safetensors"})");
  error();
  index(R"({"a": "gone.safetensors"})");
  error(MOE_ERR_NOT_FOUND);
  index("[]");
  error();
  index(R"({"a": 7})");
  error();
  folder_.write("two.safetensors", safetensors_text({{"a", test::f32_tensor({1}, {2})}}));
  index(R"({"a": "one.safetensors", "b": "two.safetensors"})");
  EXPECT_NE(error().find("tensor a is in "), std::string::npos);
}

TEST_F(SafetensorsTest, SaysWhatIsMissing) {
  error(MOE_ERR_NOT_FOUND);
  EXPECT_EQ(guarded([] { Checkpoint c("/nowhere/at/all"); }).code(), MOE_ERR_NOT_FOUND);
  folder_.write("pytorch_model.bin", "PK");
  const std::string text = error(MOE_ERR_UNSUPPORTED);
  EXPECT_NE(text.find("glob.glob('pytorch_model*.bin')"), std::string::npos) << text;
  EXPECT_NE(text.find("weights_only=True"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("'model.safetensors')\"")) << text;
  std::filesystem::remove(folder_.file("pytorch_model.bin"));
  for (const size_t n : {21, 22, 90}) {
    const std::string name = std::string(n, 'b') + ".pt";
    folder_.write(name, "PK");
    const std::string line = error(MOE_ERR_UNSUPPORTED);
    EXPECT_TRUE(line.ends_with("'model.safetensors')\" " + (n == 21 ? name : "FILE"))) << line;
    std::filesystem::remove(folder_.file(name));
  }
}

TEST_F(SafetensorsTest, MoreThanTheFileIsRefused) {
  const std::string text = safetensors_text({{"a", test::f32_tensor({1}, {1})}});
  EXPECT_EQ(error_of(text + text),
            "model.safetensors: the last " + std::to_string(text.size()) +
                " bytes belong to no tensor (more than one file in it?); download it again");
}

TEST_F(SafetensorsTest, RefusesLongNames) {
  const auto named = [](size_t n) {
    return safetensors_text({{std::string(n, 'n'), test::f32_tensor({1}, {1})}});
  };
  const std::string text = error_of(named(1025));
  EXPECT_TRUE(text.ends_with("n...: a name of 1025 bytes, at most 1024 are accepted")) << text;
  folder_.write("model.safetensors", named(1024));
  EXPECT_EQ(Checkpoint(folder_.path()).tensors().size(), 1u);
}

TEST_F(SafetensorsTest, AFileThatShrinksIsAnError) {
  const std::string text =
      safetensors_text({{"a", test::f32_tensor({100}, std::vector<float>(100))}});
  folder_.write("model.safetensors", text);
  const Checkpoint c(folder_.path());
  std::filesystem::resize_file(folder_.file("model.safetensors"), text.size() - 8);
  float out[100];
  EXPECT_EQ(guarded([&] { c.read(*c.find("a"), 0, 100, out); }).code(), MOE_ERR_IO);
}

}  // namespace
}  // namespace moe
