// SPDX-License-Identifier: MIT
#pragma once
// Checks of a request's first line and headers, before its body is read.

#include <microhttpd.h>

#include <cstdint>
#include <optional>
#include <string>

namespace moe_cli {

/// An error that is answered without the service.
struct Refusal {
  int status = 0;
  std::string text;
  const char* code = "";
  const char* header = nullptr;  // a further one, or null
  const char* value = nullptr;   // of it
};

/// Null if there is none. Names have no case.
const char* header_of(MHD_Connection* connection, const char* name);
/// Whether a body follows, and its length; 0 for one in chunks, whose length is not said.
bool has_body(MHD_Connection* connection);
uint64_t declared_length(MHD_Connection* connection);
/// Refuses a request whose end another program that reads the same bytes, such as a proxy, could
/// see elsewhere. Its connection must be closed.
std::optional<Refusal> check_framing(MHD_Connection* connection, const std::string& version);
/// Whether the value of "Host" is localhost, or an IP address, with or without a port.
bool names_a_machine(const std::string& host);
/// Whether the value of "Content-Type" is application/json, with or without parameters.
bool is_json(const char* type);

}  // namespace moe_cli
