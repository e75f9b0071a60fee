// SPDX-License-Identifier: MIT
// moe trace: records the experts that a text uses, and replays them with expert caches.

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iomanip>
#include <iostream>

#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/output_file.h"
#include "cli/io/text_input.h"
#include "cli/io/units.h"
#include "cli/model/context.h"
#include "cli/model/memory.h"
#include "cli/model/routing_stats.h"
#include "cli/trace/trace_curves.h"
#include "cli/trace/trace_replay.h"

namespace moe_cli {
namespace {

struct TraceOptions {
  ModelOptions model;
  TextInput input;
  std::string output;
  int n_generate = 128;
  bool no_bos = false;
  bool budgets = false;
  std::string curves;
};

// Records the routing of a session's layers.
class Recorder {
 public:
  Recorder(moe_session* session, int32_t n_prompt, const std::vector<int32_t>& subheads)
      : session_(session), n_prompt_(n_prompt), subheads_(subheads) {
    moe_error error;
    check(moe_session_watch_routing(session, take, this, &error), error);
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder() { moe_session_watch_routing(session_, nullptr, nullptr, nullptr); }

  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }
  std::vector<TraceUse> uses;

 private:
  static bool take(void* user, moe_routing_choices* choices) {
    auto* recorder = static_cast<Recorder*>(user);
    try {
      recorder->add(*choices);
    } catch (...) {  // nothing may be thrown through the library
      recorder->thrown_ = std::current_exception();
      return false;
    }
    return true;
  }

  // Merges the sub-tokens of a token: each expert once, with the sum of its weights.
  void add(const moe_routing_choices& c) {
    const int32_t n_sub = subheads_[static_cast<size_t>(c.layer)];
    for (int32_t token = 0; token * n_sub < c.n_tokens; ++token) {
      chosen_.clear();
      for (int32_t t = token * n_sub; t < (token + 1) * n_sub; ++t) {
        for (int32_t j = 0; j < c.counts[t]; ++j) {
          const auto at =
              static_cast<size_t>(t) * static_cast<size_t>(c.n_slots) + static_cast<size_t>(j);
          add_chosen(c.experts[at], c.weights[at]);
        }
      }
      if (n_sub > 1) {
        std::stable_sort(chosen_.begin(), chosen_.end(),
                         [](const TraceUse& a, const TraceUse& b) { return a.weight > b.weight; });
      }
      const int32_t step = c.position + token;
      int32_t slot = 0;
      for (const TraceUse& use : chosen_) {
        uses.push_back({step >= n_prompt_, step, c.layer, slot++, use.expert, use.weight});
      }
    }
  }

  void add_chosen(int32_t expert, float weight) {
    const auto same = std::find_if(chosen_.begin(), chosen_.end(),
                                   [&](const TraceUse& use) { return use.expert == expert; });
    if (same != chosen_.end()) {
      same->weight += weight;
    } else {
      chosen_.push_back({false, 0, 0, 0, expert, weight});
    }
  }

  moe_session* session_;
  int32_t n_prompt_;
  std::vector<int32_t> subheads_;
  std::vector<TraceUse> chosen_;
  std::exception_ptr thrown_;
};

// Sizes of the new trace, and the sub-heads of each layer.
Trace empty_trace(const moe_model* model, std::vector<int32_t>* subheads) {
  Trace trace;
  trace.n_layers = model_info(model).n_layers;
  for (int32_t l = 0; l < trace.n_layers; ++l) {
    const moe_model_layer_info layer = layer_info(model, l);
    trace.n_experts = std::max(trace.n_experts, layer.n_experts);
    subheads->push_back(std::max(1, layer.n_subheads));
  }
  if (trace.n_experts == 0) {
    throw CallError(MOE_ERR_UNSUPPORTED, "every layer of this model is dense: there is no routing");
  }
  return trace;
}

void write_trace(std::ostream& out, const Trace& trace) {
  out << "# n_layer=" << trace.n_layers << " n_expert=" << trace.n_experts
      << " n_expert_used=" << trace.n_used << "\nphase,step,layer,slot,expert,weight\n";
  char row[128];
  for (const TraceUse& u : trace.uses) {
    std::snprintf(row, sizeof row, "%d,%d,%d,%d,%d,%.6g\n", u.decode ? 1 : 0, u.step, u.layer,
                  u.slot, u.expert, static_cast<double>(u.weight));
    out << row;
  }
}

size_t count_steps(const Trace& trace, bool decode) {
  std::vector<int32_t> steps;
  for (const TraceUse& use : trace.uses) {
    if (use.decode == decode) steps.push_back(use.step);
  }
  std::sort(steps.begin(), steps.end());
  return static_cast<size_t>(std::unique(steps.begin(), steps.end()) - steps.begin());
}

void record(TraceOptions& o) {
  if (o.output.empty())
    throw UsageError("-o FILE is required to record a trace; --budgets and --curves read one");
  if (o.model.json) throw UsageError("--json requires --budgets");
  keep_input(o.output, o.model.path, "the model");
  o.input.keep_from(o.output);
  const std::string text = o.input.read();
  const Env env = open_env(o.model);
  Model model = open_model_for_text(o.model, env.get());
  check_decoder(o.model, model.get(), "trace");
  const auto tokens = encode(model.get(), text, encode_flags(o.no_bos));
  prepare_session(o.model, env.get(), model, tokens.size(), std::max(1, o.n_generate));
  std::vector<int32_t> subheads;
  Trace trace = empty_trace(model.get(), &subheads);
  const Session session = open_session(o.model, model.get());
  const CurrentSession current(session.get());
  const bool to_stdout = o.output == "-";
  OutputFile out(to_stdout ? "" : o.output);
  Recorder recorder(session.get(), static_cast<int32_t>(tokens.size()), subheads);
  moe_error error;
  moe_generate_params p{};
  p.struct_size = sizeof p;
  p.max_tokens = o.n_generate;
  p.ignore_eos = 1;
  moe_generate_result result{};
  result.struct_size = sizeof result;
  const moe_status status =
      o.n_generate == 0  // moe_session_generate treats it as no limit
          ? moe_session_eval(session.get(), tokens.data(), tokens.size(), MOE_ROWS_NONE, nullptr,
                             &error)
          : moe_session_generate(session.get(), tokens.data(), tokens.size(), &p, &result, &error);
  recorder.rethrow();
  check(status, error);
  trace.uses = std::move(recorder.uses);
  for (const TraceUse& use : trace.uses) trace.n_used = std::max(trace.n_used, use.slot + 1);
  write_trace(to_stdout ? std::cout : out.begin(), trace);
  if (!to_stdout) out.finish();
  std::fprintf(stderr, "moe: %s of experts by %s of the text and %zu decoded\n",
               counted(trace.uses.size(), "use").c_str(), counted(tokens.size(), "token").c_str(),
               count_steps(trace, true));
  report_skipped(o.model, model.get(), {session.get()});
}

void print_budgets(const Json& j) {
  std::cout << counted(j["n_layers"].get<uint64_t>(), "layer") << " of "
            << counted(j["n_experts"].get<uint64_t>(), "expert") << ", at most "
            << j["n_experts_used"] << " per token; a text of "
            << counted(j["prompt_tokens"].get<uint64_t>(), "token") << ", " << j["decoded_tokens"]
            << " decoded after it\n"
            << "cache hit rate while decoding:\n"
            << "  memory for   experts     LRU   best possible\n"
            << std::fixed;
  for (const Json& b : j["budgets"]) {
    std::cout << std::setw(11) << std::setprecision(2) << 100 * b["share"].get<double>() << " %"
              << std::setw(10) << b["experts"].get<size_t>() << std::setprecision(3) << std::setw(8)
              << b["lru"].get<double>() << std::setw(16) << b["best"].get<double>() << "\n";
  }
  std::cout << "  first uses, which miss in every cache: " << j["first_uses"].get<double>() << "\n";
}

void write_curves(const TraceOptions& o, const Trace& trace, const Json& budgets) {
  Json figures = {{"trace", o.model.path}};
  figures.update(budgets);
  add_trace_curves(trace, &figures);
  OutputFile out(o.curves);
  out.begin() << figures.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  out.finish();
}

void replay(const TraceOptions& o) {
  keep_input(o.curves, o.model.path, "the trace");
  const Trace trace = read_trace(o.model.path);
  const Replay all = replay_lru(trace, SIZE_MAX);
  if (all.n_uses == 0) {
    throw CallError(MOE_ERR_UNSUPPORTED, o.model.path + ": nothing was decoded in this trace");
  }
  const size_t n_experts =
      static_cast<size_t>(trace.n_layers) * static_cast<size_t>(trace.n_experts);
  Json j = {
      {"n_layers", trace.n_layers},
      {"n_experts", trace.n_experts},
      {"n_experts_used", trace.n_used},
      {"prompt_tokens", count_steps(trace, false)},
      {"decoded_tokens", count_steps(trace, true)},
      {"uses", all.n_uses},
      {"first_uses", static_cast<double>(first_uses(trace)) / static_cast<double>(all.n_uses)}};
  j["budgets"] = Json::array();
  for (const double share : {0.0625, 0.125, 0.25, 0.5, 0.75, 1.0}) {
    const auto room = static_cast<size_t>(share * static_cast<double>(n_experts));
    j["budgets"].push_back({{"share", share},
                            {"experts", room},
                            {"lru", replay_lru(trace, room).share()},
                            {"best", replay_best(trace, room).share()}});
  }
  if (!o.curves.empty()) write_curves(o, trace, j);
  if (!o.budgets) return;
  if (o.model.json) {
    print_json(j);
  } else {
    print_budgets(j);
  }
}

}  // namespace

void add_trace(CLI::App& app) {
  auto o = std::make_shared<TraceOptions>();
  CLI::App* c = app.add_subcommand("trace", "Record which experts a text uses, and replay it");
  example(*c, "moe trace model.moe -f book.txt -o book.csv && moe trace book.csv --budgets");
  c->add_option("MODEL", o->model.path,
                std::string(kModelText) + "; with --budgets or --curves a trace")
      ->required()
      ->check(not_empty());
  add_model_options(*c, o->model, {.path = false});
  o->input.add(*c, "Text to evaluate");
  c->add_option("-o,--output", o->output, "Write the trace to FILE (- is stdout), as CSV")
      ->option_text("FILE");
  c->add_option("-n,--max-tokens", o->n_generate, "Tokens decoded after the text")
      ->transform(integer_in(0, 1 << 24))
      ->capture_default_str();
  c->add_flag("--budgets", o->budgets, "Replay a trace: cache hit rate by cache size");
  c->add_option(
       "--curves", o->curves,
       "Write a trace's figures token by token as JSON, which 'python3 -m moe trace' draws")
      ->check(not_empty())
      ->check(no_stdout())
      ->option_text("FILE");
  add_no_bos(*c, o->no_bos);
  add_session_options(*c, o->model, "the length of the text plus -n");
  c->callback([o, c] {
    if (!o->budgets && o->curves.empty()) return record(*o);
    refuse_others(*c, {"MODEL", "--budgets", "--curves", "--json"},
                  "--budgets and --curves read a trace; record it first with -o FILE");
    if (o->model.json && !o->budgets) throw UsageError("--json requires --budgets");
    replay(*o);
  });
}

}  // namespace moe_cli
