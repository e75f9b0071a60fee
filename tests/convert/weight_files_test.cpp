// SPDX-License-Identifier: MIT
// Files of weights under other names, missing and damaged ones.

#include "formats/import/weight_files.h"

#include <gtest/gtest.h>

#include "formats/import/checkpoint.h"
#include "formats/import/failure.h"
#include "formats/import/shell_quoted.h"
#include "tests/convert/checkpoint_builder.h"

namespace moe {
namespace {

using test::f32_tensor;
using test::RawTensors;
using test::safetensors_text;

class WeightFilesTest : public testing::Test {
 protected:
  // A file with one tensor.
  void write(const std::string& file, const std::string& tensor) {
    folder_.write(file, safetensors_text({{tensor, f32_tensor({2}, {1, 2})}}));
  }
  std::vector<std::string> tensors(size_t n_warnings) {
    const Checkpoint checkpoint(folder_.path());
    EXPECT_EQ(checkpoint.warnings().size(), n_warnings);
    std::vector<std::string> out;
    for (const auto& [name, tensor] : checkpoint.tensors()) out.push_back(name);
    return out;
  }
  void expect(moe_status code, const std::string& text, const std::string& path = "") {
    const Status status =
        guarded([&] { Checkpoint(path.empty() ? folder_.path() : folder_.file(path)); });
    EXPECT_EQ(status.code(), code) << status.text();
    EXPECT_NE(std::string(status.text()).find(text), std::string::npos) << status.text();
  }
  void clear() {
    for (const std::string& name : folder_.names()) std::filesystem::remove(folder_.file(name));
  }

  test::TempFolder folder_;
  const std::vector<std::string> ab_ = {"a", "b"};
};

TEST_F(WeightFilesTest, ShardsWithoutAnIndex) {
  for (const char* end : {"model-0000%d-of-00002", "pytorch_model-0000%d-of-00002",
                          "consolidated.0%d", "my model_%d", "x-0000%d-of-00002"}) {
    for (const int first : {0, 1}) {
      if (first == 0 && std::string(end).find("-of-") != std::string::npos) continue;
      clear();
      char name[64];
      std::snprintf(name, sizeof name, end, first);
      write(std::string(name) + ".safetensors", "a");
      std::snprintf(name, sizeof name, end, first + 1);
      write(std::string(name) + ".safetensors", "b");
      EXPECT_EQ(tensors(1), ab_) << end;
    }
  }
}

TEST_F(WeightFilesTest, NamesTheMissingShards) {
  write("model-00002-of-00004.safetensors", "a");
  write("model-00003-of-00004.safetensors", "b");
  expect(MOE_ERR_NOT_FOUND,
         ": model-00001-of-00004.safetensors, model-00004-of-00004.safetensors are missing (2 of 4 "
         "files that their names say); download them");
  clear();
  write("consolidated.00.safetensors", "a");
  write("consolidated.02.safetensors", "b");
  expect(MOE_ERR_NOT_FOUND, ": consolidated.01.safetensors is missing (1 of 3 files");
  clear();
  folder_.write("model.safetensors.index.json",
                R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  write("two.safetensors", "b");
  expect(MOE_ERR_NOT_FOUND, ": one.safetensors is missing (1 of 2 files that the index names); ");
  clear();
  for (int i = 0; i < 2; ++i)
    write("model-0000" + std::to_string(i + 1) + "-of-00400.safetensors", "a");
  expect(MOE_ERR_NOT_FOUND, " more are missing (398 of 400 files that their names say); download");
  clear();
  write("model-00001-of-00002.safetensors", "a");
  write("model-00001-of-00003.safetensors", "a");
  expect(MOE_ERR_FORMAT, "holds shards of two sets, model-00001-of-00002.safetensors and ");
}

TEST_F(WeightFilesTest, OtherNames) {
  write("tiny llama.safetensors", "a");
  write("._tiny llama.safetensors", "x");  // of another system
  write("optimizer.safetensors", "y");
  EXPECT_EQ(tensors(1), std::vector<std::string>{"a"});
  write("more.safetensors", "b");
  EXPECT_EQ(tensors(1), ab_);
  write("more.safetensors", "a");
  expect(MOE_ERR_FORMAT, "tensor a is in ");
  // A copy in another layout beside numbered shards.
  write("model-00001-of-00001.safetensors", "c");
  EXPECT_EQ(tensors(1), std::vector<std::string>{"c"});
  clear();
  folder_.write("model.safetensors.index.fp16.json", R"({"weight_map": {"a": "m.safetensors"}})");
  write("m.safetensors", "a");
  write("other.safetensors", "a");
  EXPECT_EQ(tensors(1), std::vector<std::string>{"a"});
}

TEST_F(WeightFilesTest, TwoNamesOfOneNumber) {
  write("part-1.safetensors", "a");
  write("part-01.safetensors", "b");
  expect(MOE_ERR_FORMAT, ": part-01.safetensors and part-1.safetensors have the same number");
}

TEST_F(WeightFilesTest, NamesThePickleOfTheWeights) {
  const auto without = [&](std::initializer_list<const char*> names, const std::string& found) {
    clear();
    for (const char* name : names) folder_.write(name, "PK");
    if (!found.empty()) return expect(MOE_ERR_UNSUPPORTED, found);
    expect(MOE_ERR_NOT_FOUND, "found neither model.safetensors");
  };
  without({"a.bin", "optimizer.pt", "pytorch_model.bin", "training_args.bin"},
          "pytorch_model.bin: a pickle can run code");
  without({"a.bin", "consolidated.00.pth", "mp_rank_00_model_states.pt"}, "consolidated.00.pth: ");
  without({"a.bin", "consolidated.00.pth", "model.pt"}, "model.pt: pickles can run code");
  without({"a.pt", "mp_rank_00.pt"}, "mp_rank_00.pt: ");
  without({"rng_state.pth", "weights.pt"}, "weights.pt: ");
  without({"optimizer.pt", "rng_state_0.pth", "scheduler.pt", "training_args.bin"}, "");
}

TEST_F(WeightFilesTest, DownloadsThatHaveNotEnded) {
  for (const char* name :
       {"model.safetensors.part", "a.safetensors.crdownload", "model.gguf.incomplete"}) {
    clear();
    folder_.write(name, "x");
    expect(MOE_ERR_NOT_FOUND, std::string("model.safetensors.index.json, but ") + name +
                                  ": its download has not ended");
  }
  clear();
  folder_.write("notes.part", "x");
  expect(MOE_ERR_NOT_FOUND, "nor model.safetensors.index.json");
  // aria2 reserves the whole file and fills it in several places at once.
  const std::string ended = ": its download has not ended, as the file .aria2 beside it says";
  write("model.safetensors", "a");
  folder_.write("model.safetensors.aria2", "x");
  expect(MOE_ERR_FORMAT, "model.safetensors" + ended);
  folder_.write("m.gguf", "GGUF");
  folder_.write("m.gguf.aria2", "x");
  expect(MOE_ERR_FORMAT, "m.gguf" + ended, "m.gguf");
}

TEST_F(WeightFilesTest, ArchivesAreToBeUnpacked) {
  const std::string rest(40, '\x01');  // in no text
  for (const auto& [start, kind] : {std::pair{"\x1F\x8B\x08\x08", "gzip-compressed"},
                                    {"PK\x03\x04", "a zip archive"},
                                    {"\x28\xB5\x2F\xFD", "zstd-compressed"}}) {
    for (const char* name : {"model.safetensors", "m.gguf"}) {
      clear();
      folder_.write(name, start + rest);
      expect(MOE_ERR_FORMAT, std::string(name) + " is " + kind + ": unpack it first",
             name[1] == '.' ? name : "");
    }
  }
}

TEST_F(WeightFilesTest, OneTensorUnderTwoNames) {
  folder_.write("model.safetensors", safetensors_text({{"_orig_mod.a", f32_tensor({2}, {1, 2})},
                                                       {"a", f32_tensor({2}, {3, 4})}}));
  expect(MOE_ERR_FORMAT,
         "model.safetensors: two tensors are a, one of them inside a module such as _orig_mod");
}

TEST_F(WeightFilesTest, Adapters) {
  write("adapter_model.safetensors", "base_model.model.x.lora_A.weight");
  expect(MOE_ERR_UNSUPPORTED, "adapter_model.safetensors is an adapter (PEFT), not a model");
  write("model.safetensors", "a");
  EXPECT_EQ(tensors(1), std::vector<std::string>{"a"});
  clear();
  folder_.write("adapter_model.bin", "");
  expect(MOE_ERR_UNSUPPORTED, "merge_and_unload()");
  for (const char* part : {"lora_A.default.weight", "base_layer.weight", "lora_magnitude_vector"}) {
    clear();
    write("model.safetensors", std::string("base_model.model.model.layers.0.q_proj.") + part);
    expect(MOE_ERR_UNSUPPORTED, "belongs to an adapter that is not merged (PEFT)");
  }
}

TEST_F(WeightFilesTest, DanglingLinks) {
  const auto link = [&](const char* name) {
    clear();
    std::filesystem::create_symlink("../blobs/4f2c", folder_.file(name));
  };
  const std::string gone = " is a link to ../blobs/4f2c, which is not there";
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "m.safetensors",
                           "model-00001-of-00001.safetensors"}) {
    link(name);
    expect(MOE_ERR_NOT_FOUND, name + gone);
  }
  link("m.gguf");
  expect(MOE_ERR_NOT_FOUND, "m.gguf" + gone, "m.gguf");
  link("folder");
  expect(MOE_ERR_NOT_FOUND, "folder" + gone, "folder");
  link("tokenizer.json");
  write("model.safetensors", "a");
  const Status status =
      guarded([&] { (void)Checkpoint(folder_.path()).has_document("tokenizer.json"); });
  EXPECT_EQ(status.code(), MOE_ERR_NOT_FOUND) << status.text();
}

TEST_F(WeightFilesTest, FilesThatAreNotTheFile) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "model.safetensors is empty (0 bytes): the download is incomplete"},
      {"<!DOCTYPE html>\n<html>", "is text that begins with \"<!DOCTYPE html>\": a web page"},
      {"Entry not found", "is text that begins with \"Entry not found\": a web page or an error"},
      {"{\"error\": \"none\"}", "is text that begins with \"{\"error\": \"none\"}\""},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0", "is a Git LFS pointer, not"}};
  for (const auto& [text, expected] : cases) {
    folder_.write("model.safetensors", text);
    expect(MOE_ERR_FORMAT, expected);
  }
  write("model.safetensors", "a");
  const std::string whole = folder_.text("model.safetensors");
  folder_.write("model.safetensors", whole.substr(0, whole.size() - 3));
  expect(MOE_ERR_FORMAT, "model.safetensors: cut off: 3 of its " + std::to_string(whole.size()) +
                             " bytes are missing");
  folder_.write("model.safetensors", std::string(100, '\0'));
  expect(MOE_ERR_FORMAT, "it begins with zeros (an incomplete download?)");
  folder_.write("model.safetensors", whole.substr(0, 5));
  expect(MOE_ERR_FORMAT, "cut off, or not a safetensors file: 5 bytes");
  folder_.write("model.safetensors", whole.substr(0, 20));
  expect(MOE_ERR_FORMAT, "cut off, or not a safetensors file");
  write("model.safetensors", "a");
  folder_.write("config.json", "");
  const auto document = [&] {
    return guarded([&] { (void)Checkpoint(folder_.path()).document("config.json"); });
  };
  EXPECT_NE(std::string(document().text()).find("config.json is empty (0 bytes)"),
            std::string::npos);
  folder_.write("config.json", "Entry not found");
  EXPECT_NE(std::string(document().text()).find("an error message"), std::string::npos);
  folder_.write("config.json", "\n<html><head>");
  EXPECT_NE(std::string(document().text()).find("a web page"), std::string::npos);
  folder_.write("config.json", R"({"a": [1, 2)");
  EXPECT_NE(std::string(document().text()).find("cut off at byte 11"), std::string::npos)
      << document().text();
}

TEST(ShellQuoted, IsOneWord) {
  EXPECT_EQ(shell_quoted("model-1.bin"), "model-1.bin");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("$(id>pwn).bin"), "'$(id>pwn).bin'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quoted("a b;c"), "'a b;c'");
}

}  // namespace
}  // namespace moe
