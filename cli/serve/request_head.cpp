// SPDX-License-Identifier: MIT
// Reads headers strictly where libmicrohttpd takes the first of several readings.
#include "cli/serve/request_head.h"

#include <arpa/inet.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "cli/serve/exchange.h"

namespace moe_cli {
namespace {

// Those that may stand in a request once.
constexpr std::array kSingle = {"Content-Length", "Transfer-Encoding", "Host",
                                "Content-Type",   "Authorization",     "X-Api-Key"};
constexpr size_t kFraming = 2;  // the first of these say where a body ends

bool same_name(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";

bool is_token(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

bool has_control(std::string_view value) {
  return std::any_of(value.begin(), value.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f;
  });
}

struct Headers {
  std::array<int, kSingle.size()> count{};  // of kSingle
  const char* problem = nullptr;
};

// libmicrohttpd appends a line that continues a header to the header's name.
bool is_folded(std::string_view name) {
  return std::any_of(kSingle.begin(), kSingle.begin() + kFraming, [&](std::string_view framing) {
    return name.size() > framing.size() && same_name(name.substr(0, framing.size()), framing);
  });
}

MHD_Result look_at(void* user, MHD_ValueKind, const char* name, size_t n_name, const char* value,
                   size_t n_value) {
  auto& headers = *static_cast<Headers*>(user);
  const std::string_view key(name, n_name);
  for (size_t i = 0; i < kSingle.size(); ++i)
    headers.count[i] += same_name(key, kSingle[i]) ? 1 : 0;
  if (!is_token(key) || is_folded(key)) {
    headers.problem = "a header's name has a space, or its value goes on in the next line";
  }
  if (value != nullptr && has_control({value, n_value})) {
    headers.problem = "a header's value has a control character";
  }
  return MHD_YES;
}

Refusal malformed(const std::string& text) {
  return {.status = 400, .text = text, .code = "malformed_request"};
}

bool is_number(std::string_view text) {
  return text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

const char* header_of(MHD_Connection* connection, const char* name) {
  return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

bool has_body(MHD_Connection* connection) {
  return declared_length(connection) > 0 || header_of(connection, "Transfer-Encoding") != nullptr;
}

uint64_t declared_length(MHD_Connection* connection) {
  const char* text = header_of(connection, "Content-Length");
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

std::optional<Refusal> check_framing(MHD_Connection* connection, const std::string& version) {
  Headers headers;
  MHD_get_connection_values_n(connection, MHD_HEADER_KIND, look_at, &headers);
  if (headers.problem != nullptr) return malformed(headers.problem);
  for (size_t i = 0; i < kSingle.size(); ++i) {
    if (headers.count[i] > 1) return malformed(std::string("'") + kSingle[i] + "' is repeated");
  }
  const bool newer = version != "HTTP/1.0";
  if (newer && header_of(connection, "Host") == nullptr) return malformed("'Host' is missing");
  const char* coding = header_of(connection, "Transfer-Encoding");
  if (coding == nullptr) return {};
  if (header_of(connection, "Content-Length") != nullptr) {
    return malformed("expected 'Content-Length' or 'Transfer-Encoding', found both");
  }
  if (!newer || !same_name(coding, "chunked")) {
    return malformed("'Transfer-Encoding': expected chunked, in HTTP/1.1");
  }
  return {};
}

bool names_a_machine(const std::string& host) {
  const size_t colon = host.find(':', host.starts_with("[") ? host.find(']') : 0);
  std::string name = host.substr(0, colon);
  if (colon != std::string::npos && !is_number(host.substr(colon + 1))) return false;
  if (name.starts_with("[")) {
    in6_addr address{};
    return name.ends_with("]") &&
           inet_pton(AF_INET6, name.substr(1, name.size() - 2).c_str(), &address) == 1;
  }
  if (name.ends_with(".")) name.pop_back();
  return same_name(name, "localhost") || name.find_first_not_of("0123456789.") == std::string::npos;
}

bool is_json(const char* type) {
  if (type == nullptr) return false;
  std::string_view name(type);
  name = name.substr(0, name.find(';'));
  const size_t end = name.find_last_not_of(" \t");
  return end != std::string_view::npos && same_name(name.substr(0, end + 1), kJsonType);
}

}  // namespace moe_cli
