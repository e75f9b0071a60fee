#pragma once
// Conversations in files: a line of JSON with the messages, then the saved session.

#include <optional>

#include "cli/common.h"

namespace moe_cli {

struct ChatFile {
  std::string path;
  std::string system;
  std::vector<std::pair<std::string, std::string>> messages;  // role and content
  int context = 0;                                            // of the session; 0: not said
  uint64_t session_at = 0;                                    // its first byte in the file
  uint64_t session_bytes = 0;
};

/// Nothing where there is no such file. Throws for one that is no conversation.
std::optional<ChatFile> read_chat_file(const std::string& path);
/// Brings the session in, if the file has one. Throws when it is damaged or of another model.
void load_chat_session(const ChatFile& file, moe_session* session);
/// Replaces the file when it is complete. The messages and the system text are taken from `file`.
/// When the session cannot be saved (no memory, a fault of the device) they are written without it.
void write_chat_file(const ChatFile& file, moe_session* session);

}  // namespace moe_cli
