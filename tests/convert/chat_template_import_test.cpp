// SPDX-License-Identifier: MIT
// The files that a checkpoint's chat template is read from, and its copy in the model file.

#include <gtest/gtest.h>

#include "formats/import/failure.h"
#include "src/convert/tokenizer/tokenizer_json.h"
#include "tests/convert/checkpoint_builder.h"
#include "tests/convert/converted_model.h"

namespace moe {
namespace {

const char* const kFolder = "tests/data/chat/script";

class ChatTemplateImport : public testing::Test {
 protected:
  ChatTemplateImport() {
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
      std::filesystem::copy_file(std::string(kFolder) + "/" + name, folder_.file(name));
    }
  }
  std::string read() {
    return read_tokenizer(Checkpoint(folder_.path()), "tokenizer.json").chat_template;
  }
  std::string error() {
    const Status status = guarded([&] { read(); });
    EXPECT_FALSE(status.ok());
    return status.text();
  }
  test::TempFolder folder_;
};

TEST_F(ChatTemplateImport, None) {
  EXPECT_EQ(read(), "");
  folder_.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>", "chat_template": null})");
  EXPECT_EQ(read(), "");
}

TEST_F(ChatTemplateImport, OneText) {
  folder_.write("tokenizer_config.json", R"({"chat_template": "{{ 'a\n' }}"})");
  EXPECT_EQ(read(), "{{ 'a\n' }}");
}

TEST_F(ChatTemplateImport, TheDefaultOfSeveral) {
  folder_.write("tokenizer_config.json", R"({"chat_template": [
    {"name": "rag", "template": "with documents"}, {"name": "default", "template": "{{ 1 }}"}]})");
  EXPECT_EQ(read(), "{{ 1 }}");
  folder_.write("tokenizer_config.json",
                R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_EQ(read(), "");
  folder_.write("tokenizer_config.json", R"({"chat_template": [1, {"name": "default"}, {}]})");
  EXPECT_EQ(read(), "");
}

TEST_F(ChatTemplateImport, AFileOfItsOwnComesFirst) {
  folder_.write("tokenizer_config.json", R"({"chat_template": "of the configuration"})");
  folder_.write("chat_template.json", R"({"chat_template": "of a file"})");
  EXPECT_EQ(read(), "of a file");
  folder_.write("chat_template.jinja", "{# of another #}\n{{ 'a' }}\n");
  EXPECT_EQ(read(), "{# of another #}\n{{ 'a' }}\n");
}

TEST_F(ChatTemplateImport, TooLong) {
  folder_.write("chat_template.jinja", std::string((1 << 20) + 1, 'x'));
  EXPECT_NE(error().find("chat_template.jinja"), std::string::npos);
  std::filesystem::remove(folder_.file("chat_template.jinja"));
  folder_.write("tokenizer_config.json",
                R"({"chat_template": ")" + std::string((1 << 20) + 1, 'x') + "\"}");
  EXPECT_NE(error().find("chat_template"), std::string::npos);
}

// A template that cannot be run does not prevent conversion, since generating text does not need
// it.
TEST_F(ChatTemplateImport, GoesIntoTheFileAsItIs) {
  folder_.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  folder_.write("chat_template.jinja", "{% include 'nothing' %}");
  const std::string out = folder_.file("out.moe");
  ConvertReport report;
  check(convert(folder_.path(), out, {}, &report));
  const test::ConvertedModel model(out);
  const auto* tokenizer = model.file().metadata().tokenizer();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->chat_template()->str(), "{% include 'nothing' %}");
  EXPECT_EQ(tokenizer->eos_id(), 259);
}

}  // namespace
}  // namespace moe
