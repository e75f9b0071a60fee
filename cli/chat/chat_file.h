// SPDX-License-Identifier: MIT
#pragma once
// Conversation files: a line of JSON with the messages, then the saved session.

#include <optional>

#include "cli/common.h"
#include "cli/io/output_file.h"

namespace moe_cli {

struct SavedMessage {
  std::string role, content;
  Json members;  // an object: calls of tools, the id of the call that is answered
};

struct ChatFile {
  std::string path;
  std::string system;
  std::vector<SavedMessage> messages;
  int context = 0;          // of the session; 0: not given
  uint64_t session_at = 0;  // its first byte in the file
  uint64_t session_bytes = 0;
};

/// Locks the file, which need not exist, for the whole conversation: a second one would replace
/// what this one saves. Throws if no file can be written there, and for a pipe or a device. From
/// now on a closed stdout is an error of writing, after which the conversation is saved.
std::unique_ptr<ReplacedFile> lock_chat_file(const std::string& path);
/// Empty if there is no such file. Throws if it is not a conversation. Lock it first.
std::optional<ChatFile> read_chat_file(const std::string& path);
/// Loads the session, if the file has one. Throws if it is damaged or of another model.
void load_chat_session(const ChatFile& file, moe_session* session);
/// Replaces the file, `to`, when complete. Messages and system text come from `file`. If the
/// session cannot be saved (no memory, no room on the disk, a device fault) only these are written.
void write_chat_file(const ChatFile& file, moe_session* session, ReplacedFile& to);

}  // namespace moe_cli
