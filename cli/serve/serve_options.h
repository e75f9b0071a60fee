// SPDX-License-Identifier: MIT
#pragma once
// The options of moe serve.

#include <string>
#include <vector>

#include "cli/common.h"

namespace moe_cli {

struct ServeOptions {
  ModelOptions model;
  std::string chat_template;        // a name or a file; empty: the model's own
  std::string name;                 // of the model; empty: the file's
  std::vector<std::string> models;  // "NAME=FILE", in place of model.path
  int max_open = 0;                 // of them at the same time; 0: any number
  int close_seconds = 300;          // after the last request; 0: never
  std::string host = "127.0.0.1";
  int port = 8080;
  std::string unix_path;  // in place of host and port
  std::string key_file;
  int n_slots = 0;  // 0: 8, or what a cap leaves room for
  int slice = 16;
  int draft = 0;  // tokens at once, where a request does not say
  bool no_reuse = false;
  std::string cache_folder;  // empty: none
  std::string cache_size = "10G";
  std::string receipts;  // a file; empty: none
  int max_waiting = 64;
  int max_prompt = 0;  // 0: the context
  int max_seconds = 600;
  std::string max_body = "4M";
  int max_connections = 256;
  int idle_seconds = 60;
  bool open_metrics = false;
};

}  // namespace moe_cli
