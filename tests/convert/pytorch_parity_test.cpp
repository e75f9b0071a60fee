// SPDX-License-Identifier: MIT
// Checkpoints written by PyTorch, through converter, file, model and session: the logits must be
// PyTorch's (tests/data/pytorch, written by examples/train/golden.py).
//
// Bounds, as |difference| / |expected| over all logits of a sequence:
//
// Float models. The session keeps K and V as float16. Against PyTorch with K and V rounded the same
// way, only the order of float32 sums differs: sums of at most a few hundred terms have errors of
// about 1e-6, and a K or V near a rounding boundary of float16 may round the other way, 2^-11 of
// one element among dozens. 1e-4 covers both. The bound against PyTorch with float32 K and V is
// 1e-3.
//
// Integer activations. Our integer sums are exact; PyTorch's are float32 sums of integers times
// one scale. Inputs with equal codes therefore give results as close as above. A last-bit
// difference before rounding can change a code: one of d inputs moves by amax / 127, which is
// amax / (127 sqrt(d) rms) of that token's input: 0.4 % at d = 36 and amax = 3 rms. The residual
// stream carries at most four such sublayers. If half of all tokens had one changed code, the total
// error (the root of the sum of squares) would be 0.4 % sqrt(1/2): the bound is 3e-3. A wrong
// scale, code or order gives errors of several percent.

#include "src/convert/convert.h"
#include "tests/convert/golden_logits.h"

namespace moe {
namespace {

using test::relative;

const char* const kPytorchFolder = "tests/data/pytorch";

std::vector<std::string> pytorch_names() { return test::folder_names(kPytorchFolder); }

struct Golden {
  std::vector<Tokens> sequences;
  std::vector<Floats> logits;       // K and V in float32
  std::vector<Floats> logits_kv16;  // in float16
  bool integer = false;
};

Golden read_golden(const std::string& name) {
  const std::string folder = std::string(kPytorchFolder) + "/" + name;
  const Json json = read_json_file(folder + "/golden.json");
  const InputFile file(folder + "/golden.safetensors");
  const std::vector<SourceTensor> tensors = read_safetensors_header(file, 0);
  Golden golden;
  golden.sequences = json.at("sequences").get<std::vector<Tokens>>();
  golden.integer = json.at("integer_activations").get<bool>();
  for (size_t s = 0; s < golden.sequences.size(); ++s) {
    golden.logits.push_back(test::read_tensor(file, tensors, "logits." + std::to_string(s)));
    golden.logits_kv16.push_back(
        test::read_tensor(file, tensors, "logits_kv16." + std::to_string(s)));
  }
  return golden;
}

std::unique_ptr<MemorySink> converted(const std::string& name, const ConvertOptions& options = {}) {
  auto sink = std::make_unique<MemorySink>();
  ConvertReport report;
  const Status status =
      convert_to_sink(std::string(kPytorchFolder) + "/" + name, *sink, options, &report);
  EXPECT_TRUE(status.ok()) << status.text();
  return sink;
}

Floats run(Machine& machine, const Tokens& tokens) {
  const Box<Session> session = machine.session();
  return eval_all(*session, tokens);
}

class PytorchParity : public testing::TestWithParam<std::string> {};

TEST_P(PytorchParity, LogitsAgree) {
  const Golden golden = read_golden(GetParam());
  const auto sink = converted(GetParam());
  Machine machine(*sink);
  ASSERT_TRUE(machine.status().ok()) << machine.status().text();
  for (size_t s = 0; s < golden.sequences.size(); ++s) {
    const Floats found = run(machine, golden.sequences[s]);
    const double kv16 = relative(found, golden.logits_kv16[s]);
    const double kv32 = relative(found, golden.logits[s]);
    RecordProperty("kv16_" + std::to_string(s), std::to_string(kv16));
    RecordProperty("kv32_" + std::to_string(s), std::to_string(kv32));
    EXPECT_LE(kv16, golden.integer ? 3e-3 : 1e-4) << "sequence " << s;
    if (golden.integer) continue;
    EXPECT_LE(kv32, 1e-3) << "sequence " << s;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, PytorchParity, testing::ValuesIn(pytorch_names()),
                         [](const auto& name) { return name.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PytorchParity);

TEST(PytorchCases, FilesExist) { EXPECT_GE(pytorch_names().size(), 40u); }

// Storing the same codes in another layout, compressed, gives the same bits.
TEST(PytorchCases, StorageDoesNotChangeTernaryModels) {
  const Golden golden = read_golden("ternary_a8");
  const auto plain = converted("ternary_a8");
  ConvertOptions options;
  options.weights = "ternary3";
  options.overrides = {"embedding=f32"};
  options.compress = true;
  const auto packed = converted("ternary_a8", options);
  Machine a(*plain), b(*packed);
  ASSERT_TRUE(a.status().ok() && b.status().ok()) << b.status().text();
  EXPECT_EQ(run(a, golden.sequences[0]), run(b, golden.sequences[0]));
}

// int8, bf16 and f16 weights of a model trained in float32: the logits are close.
TEST(PytorchCases, RoundedWeightsStayNear) {
  const Golden golden = read_golden("softmax_raw");
  for (const auto& [weights, bound] : {std::pair{"int8", 0.05}, {"bf16", 0.02}, {"f16", 0.003}}) {
    ConvertOptions options;
    options.weights = weights;
    const auto sink = converted("softmax_raw", options);
    Machine machine(*sink);
    ASSERT_TRUE(machine.status().ok()) << machine.status().text();
    EXPECT_LT(relative(run(machine, golden.sequences[0]), golden.logits[0]), bound) << weights;
  }
}

}  // namespace
}  // namespace moe
