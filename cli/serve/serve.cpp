// SPDX-License-Identifier: MIT
// moe serve: a model for programs that speak HTTP.

#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "cli/help/help.h"
#include "cli/io/terminal.h"
#include "cli/io/units.h"
#include "cli/model/memory.h"
#include "cli/model/sampling.h"
#include "cli/serve/http_server.h"
#include "cli/serve/open_files.h"
#include "cli/serve/open_service.h"
#include "cli/serve/receipt_log.h"
#include "cli/serve/serve_options.h"
#include "cli/serve/served_models.h"
#include "cli/serve/stop_signals.h"

namespace moe_cli {
namespace {

void check_options(const ServeOptions& o, const ListeningSocket& socket) {
  if (o.model.path.empty() && o.models.empty()) {
    throw UsageError("MODEL is missing; or give several as --model NAME=FILE");
  }
  if (socket.is_local() || !o.key_file.empty()) return;
  throw UsageError("--host " + o.host +
                   ": other machines can reach it; --api-key-file names a file with the keys that "
                   "clients need");
}

void say_model(const ServeOptions& o, const ServedModel& model) {
  const moe_service_stats stats = stats_of(model.service());
  const moe_memory_plan plan = memory_plan(o.model, model.model(), stats.n_slots);
  std::fprintf(stderr, "moe: %s of %d tokens, %s of memory",
               counted(static_cast<uint64_t>(stats.n_slots), "slot").c_str(), stats.context,
               format_bytes(plan.needed_bytes).c_str());
  if (plan.cap_bytes != 0) {
    std::fprintf(stderr, "; the cap is %s, with %llu of %llu experts in memory",
                 format_bytes(plan.cap_bytes).c_str(),
                 static_cast<unsigned long long>(plan.n_in_memory),
                 static_cast<unsigned long long>(plan.n_experts));
  }
  std::fprintf(stderr, "\nmoe: defaults for requests: %s\n",
               sampling_text(ModelSampling(model.model()).settings).c_str());
}

void say_start(const ServeOptions& o, ServedModels& models, const std::string& url) {
  std::string all;
  for (const std::string& name : models.names()) all += (all.empty() ? "" : ", ") + name;
  std::fprintf(stderr, "moe: serving %s at %s\n", visible(all).c_str(), visible(url).c_str());
  if (const ServedModels::Open open = models.open_one(models.names()[0])) {
    say_model(o, *open);
  } else {
    std::fprintf(stderr, "moe: each model is opened by the first request that names it\n");
  }
}

// Until the answers are sent. Clients that take nothing of theirs lose their connection after
// --idle-seconds, as always. After a second signal there is a second for short answers.
void wait_for_answers(HttpServer& server, const StopSignals& signals) {
  int n_left = 50;
  bool cancelled = false;
  while (server.n_open() > 0 && (!signals.again() || --n_left > 0)) {
    if (signals.again() && !std::exchange(cancelled, true)) server.cancel_all();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// After the first signal.
void finish(HttpServer& server, const StopSignals& signals, ServedModels& models) {
  server.stop_listening();
  bool empty = models.drain(0);
  const int n = models.n_left();
  if (n > 0) {
    std::fprintf(stderr, "moe: finishing %s; a second signal ends at once\n",
                 counted(static_cast<uint64_t>(n), "text").c_str());
  }
  bool cancelled = false;
  while (!empty) {
    if (signals.again() && !std::exchange(cancelled, true)) server.cancel_all();
    empty = models.drain(0.05);
    if (cancelled && models.n_left() == 0) break;  // without writing to --cache
  }
  wait_for_answers(server, signals);
}

void run_serve(const ServeOptions& o) {
  const ApiKeys keys(o.key_file);
  HttpLimits limits;
  limits.max_body = parse_bytes("--max-body", o.max_body);
  limits.idle_seconds = o.idle_seconds;
  limits.open_metrics = o.open_metrics;
  ListeningSocket socket(o);
  check_options(o, socket);
  const Env env = open_env(o.model);
  ReceiptLog log(o.receipts);
  ServedModels models(o, env.get(), log.taker());
  const StopSignals signals;
  limits.max_connections = make_room_for_connections(o.max_connections);
  HttpServer server(models, keys, limits, socket);
  say_start(o, models, socket.url());
  signals.wait();
  finish(server, signals, models);
}

void add_several_options(CLI::App& c, ServeOptions& o) {
  auto* model = c.add_option("MODEL", o.model.path, kModelText)->check(not_empty());
  auto* name =
      c.add_option("--name", o.name, "What clients call the model (default the file's name)")
          ->check(not_empty())
          ->option_text("NAME");
  auto* several =
      c.add_option("--model", o.models,
                   "In place of MODEL, one of several, which is opened by the first request that "
                   "names it; can be given several times")
          ->option_text("NAME=FILE")
          ->excludes(model)
          ->excludes(name);
  c.add_option("--max-open", o.max_open,
               "Most of these models in memory at the same time (default as many as fit); one that "
               "nobody uses makes room")
      ->transform(integer_in(1, 1024))
      ->option_text("N")
      ->needs(several);
  c.add_option("--close-seconds", o.close_seconds,
               "Close one of these models so long after its last request; 0: never")
      ->transform(integer_in(0, 86400))
      ->capture_default_str()
      ->needs(several);
}

void add_http_options(CLI::App& c, ServeOptions& o) {
  auto* host = c.add_option("--host", o.host,
                            "IP address to listen at; one that other machines can reach needs "
                            "--api-key-file")
                   ->capture_default_str();
  auto* port = c.add_option("--port", o.port, "Port; 0: any that is free")
                   ->transform(integer_in(0, 65535))
                   ->capture_default_str();
  auto* local = c.add_option("--unix", o.unix_path, "Listen at a socket in the file system instead")
                    ->check(not_empty())
                    ->option_text("PATH");
  local->excludes(host)->excludes(port);
  auto* keys = c.add_option("--api-key-file", o.key_file,
                            "A file with a key in each line; clients send one as 'Authorization: "
                            "Bearer KEY' or 'x-api-key: KEY'")
                   ->check(not_empty())
                   ->option_text("FILE");
  auto* metrics = c.add_flag("--open-metrics", o.open_metrics,
                             "Answer /metrics, which has counts alone, without a key")
                      ->needs(keys);
  auto* body =
      c.add_option("--max-body", o.max_body, "Most bytes of the body of a request, such as 4M")
          ->option_text("SIZE")
          ->capture_default_str();
  auto* connections = c.add_option("--max-connections", o.max_connections,
                                   "Most open connections; further ones wait")
                          ->transform(integer_in(2, 100000))
                          ->capture_default_str();
  auto* idle = c.add_option("--idle-seconds", o.idle_seconds,
                            "Close a connection that sends or takes nothing for so long, or takes "
                            "longer to send a request")
                   ->transform(integer_in(1, 86400))
                   ->capture_default_str();
  for (CLI::Option* option : {host, port, local, keys, metrics, body, connections, idle}) {
    option->group(kServerGroup);
  }
}

void add_queue_options(CLI::App& c, ServeOptions& o) {
  add_slots_option(c, o);
  c.add_option("--slice", o.slice,
               "Tokens of prompts read between two tokens of the texts that are being generated")
      ->transform(integer_in(1, 4096))
      ->capture_default_str();
  c.add_option("--draft", o.draft,
               "Draft up to N tokens at once for a text that is alone in the slots, where its "
               "request does not say: the same text; 0 to 16")
      ->transform(integer_in(0, 16))
      ->capture_default_str();
  c.add_flag("--no-reuse", o.no_reuse,
             "Evaluate every prompt whole, also one that begins as another text in the slots");
  c.add_option("--cache", o.cache_folder,
               "Keep evaluated texts in this folder, also for the next start; other users of the "
               "machine must not be able to write to it")
      ->check(not_empty())
      ->excludes("--no-reuse")
      ->option_text("DIR");
  c.add_option("--cache-size", o.cache_size, "Most bytes of the model's files in it")
      ->option_text("SIZE [10G]");
  c.add_option("--log-receipts", o.receipts,
               "Add the receipt of every answer to this file, with the request in it, for 'moe "
               "verify'")
      ->check(not_empty())
      ->option_text("FILE");
  c.add_option("--max-waiting", o.max_waiting, "Texts that wait for a slot; more get status 429")
      ->transform(integer_in(1, 65536))
      ->capture_default_str();
  c.add_option("--max-prompt", o.max_prompt, "Most tokens of a prompt (default the context)")
      ->transform(integer_in(1, INT32_MAX))
      ->option_text("N");
  c.add_option("--max-seconds", o.max_seconds,
               "Most seconds of a request, with waiting; 0: no limit")
      ->transform(integer_in(0, 86400))
      ->capture_default_str();
}

}  // namespace

void add_serve(CLI::App& app) {
  auto o = std::make_shared<ServeOptions>();
  CLI::App* c = app.add_subcommand("serve", "Answer over HTTP, many requests at once");
  add_model_options(*c, o->model, {.path = false, .json = false});
  add_several_options(*c, *o);
  add_template_option(*c, *o);
  add_queue_options(*c, *o);
  add_http_options(*c, *o);
  add_session_options(*c, o->model);
  c->footer(
      "Endpoints: /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, "
      "/v1/messages/count_tokens, /v1/embeddings, /v1/rerank, /v1/models, /tokenize, "
      "/health, /metrics, /statistics, and a page with a chat at /.\n"
      "SIGTERM or Ctrl-C finishes the answers and ends; a second one ends at once.\n"
      "Nothing of a request is written anywhere, except by --cache and --log-receipts.");
  example(*c, "moe serve model.moe --port 8080");
  c->callback([o] { run_serve(*o); });
}

}  // namespace moe_cli
