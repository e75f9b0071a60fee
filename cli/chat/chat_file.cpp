// SPDX-License-Identifier: MIT
// Reads and writes conversation files; a file is locked while a chat uses it and replaced at the
// end.
#include "cli/chat/chat_file.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "cli/io/json_limits.h"
#include "cli/io/text_input.h"

namespace moe_cli {
namespace {

constexpr int kChatFileVersion = 1;
constexpr int kVersionWithTools = 2;  // messages with members

[[noreturn]] void no_conversation(const std::string& path, const std::string& why) {
  throw CallError(MOE_ERR_FORMAT, path + ": not a conversation of moe chat: " + why);
}

std::string text_in(const std::string& path, const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_string()) {
    no_conversation(path, std::string("'") + key + "' is missing or not a string");
  }
  return it->get<std::string>();
}

ChatFile parse_head(const std::string& path, const std::string& line) {
  const std::string why = beyond_limits(line);
  if (!why.empty()) no_conversation(path, "its first line: " + why);
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) no_conversation(path, "its first line is not a JSON object");
  const auto version = json.find("moe_chat");
  if (version == json.end() || !version->is_number_integer()) {
    no_conversation(path, "'moe_chat' is missing or not a number");
  }
  if (*version != kChatFileVersion && *version != kVersionWithTools) {
    throw CallError(
        MOE_ERR_VERSION,
        path + ": this program reads versions 1 and 2 of conversations, found " + version->dump());
  }
  ChatFile file;
  file.path = path;
  file.system = text_in(path, json, "system");
  const auto context = json.find("context");
  if (context != json.end()) {
    if (!context->is_number_unsigned()) no_conversation(path, "'context' is not a number");
    file.context = static_cast<int>(std::min<uint64_t>(context->get<uint64_t>(), INT_MAX));
  }
  const auto messages = json.find("messages");
  if (messages == json.end() || !messages->is_array()) {
    no_conversation(path, "'messages' is missing or not a list");
  }
  for (const Json& m : *messages) {
    if (!m.is_object()) no_conversation(path, "a message is not a JSON object");
    const Json members = m.value("members", Json::object());
    if (!members.is_object()) no_conversation(path, "'members' is not a JSON object");
    file.messages.push_back({text_in(path, m, "role"), text_in(path, m, "content"), members});
  }
  return file;
}

bool read_chat_bytes(void* user, uint64_t offset, void* to, size_t n) {
  auto& in = *static_cast<std::pair<std::ifstream, uint64_t>*>(user);
  in.first.clear();
  in.first.seekg(static_cast<std::streamoff>(in.second + offset));
  in.first.read(static_cast<char*>(to), static_cast<std::streamsize>(n));
  return in.first.good();
}

bool write_chat_bytes(void* user, const void* bytes, size_t n) {
  auto& out = *static_cast<std::ostream*>(user);
  out.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(n));
  return static_cast<bool>(out);
}

std::string head_of(const ChatFile& file, moe_session* session) {
  Json messages = Json::array();
  int version = kChatFileVersion;
  for (const auto& [role, content, members] : file.messages) {
    messages.push_back({{"role", role}, {"content", content}});
    if (members.empty()) continue;
    messages.back()["members"] = members;
    version = kVersionWithTools;
  }
  const Json head = {{"moe_chat", version},
                     {"system", file.system},
                     {"context", session == nullptr ? 0 : moe_session_context(session)},
                     {"messages", messages}};
  return head.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

// Omits the session if it is null. Throws if something cannot be written.
void write_parts(const ChatFile& file, moe_session* session, ReplacedFile& to) {
  std::ostream& out = to.begin();
  out << head_of(file, session);
  const moe_writer writer = {.struct_size = sizeof writer, .write = write_chat_bytes, .user = &out};
  moe_error error;
  const moe_status status =
      session == nullptr ? MOE_OK : moe_session_save(session, &writer, &error);
  if (status != MOE_OK && out) check(status, error);
  to.commit();
}

}  // namespace

std::unique_ptr<ReplacedFile> lock_chat_file(const std::string& path) {
  signal(SIGPIPE, SIG_IGN);
  return std::make_unique<ReplacedFile>(path);
}

std::optional<ChatFile> read_chat_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  const uint64_t size = std::filesystem::file_size(path, error);
  if (!in || error) {
    throw CallError(MOE_ERR_IO, path + ": " + (error ? error.message() : std::strerror(errno)));
  }
  std::string line;
  for (char c = 0; in.get(c) && c != '\n';) {
    line += c;
    if (line.size() > kMostPromptBytes) no_conversation(path, "its first line does not end");
  }
  if (!in) no_conversation(path, "its first line does not end");
  ChatFile file = parse_head(path, line);
  file.session_at = line.size() + 1;
  file.session_bytes = size - file.session_at;
  return file;
}

void load_chat_session(const ChatFile& file, moe_session* session) {
  if (file.session_bytes == 0) return;
  std::pair<std::ifstream, uint64_t> in(std::ifstream(file.path, std::ios::binary),
                                        file.session_at);
  const moe_reader reader = {.struct_size = sizeof reader,
                             .size = file.session_bytes,
                             .read = read_chat_bytes,
                             .user = &in};
  moe_error error;
  const moe_status status = moe_session_load(session, &reader, &error);
  if (status != MOE_OK) throw CallError(status, file.path + ": " + error.text);
}

void write_chat_file(const ChatFile& file, moe_session* session, ReplacedFile& to) {
  try {
    return write_parts(file, session, to);
  } catch (const CallError& e) {
    std::cerr << "moe: " << file.path << " will contain only the messages: " << e.what() << "\n";
  }
  write_parts(file, nullptr, to);
}

}  // namespace moe_cli
