// SPDX-License-Identifier: MIT
// moe verify: makes the answers of receipts again and compares them.

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <fstream>
#include <iostream>
#include <mutex>
#include <set>

#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/terminal.h"
#include "cli/io/text_input.h"
#include "cli/io/units.h"
#include "cli/model/memory.h"
#include "cli/serve/endpoints.h"
#include "cli/serve/open_service.h"
#include "cli/serve/receipt.h"

namespace moe_cli {
namespace {

struct VerifyOptions {
  ServeOptions serve;
  std::vector<std::string> files;
};

/// A receipt, and the one of the answer that was made again.
struct Rerun {
  std::string where;  // "receipts.jsonl:3"
  Json receipt;
  Json found;
  bool done = false;
};

/// Has a service answer the requests of receipts, several at a time, and reports in their order.
class Verifier {
 public:
  explicit Verifier(const ServeOptions& o, moe_model* model) : o_(o), model_(model) {}

  void add(const std::string& where, Json receipt);
  /// Waits for the rest.
  void finish() { report_until(0); }

  size_t n_receipts() const { return n_receipts_; }
  size_t n_different() const { return n_different_; }
  const Json& differences() const { return differences_; }

 private:
  struct Ticket {
    Verifier* verifier;
    Rerun* rerun;
  };
  static void take_event(void* user, const moe_service_event* event);
  moe_service* service_for(const std::string& name);
  void submit(Rerun& rerun);
  void report_until(size_t n_open);
  void report(const Rerun& rerun);
  void say_settings(const Rerun& rerun);

  const ServeOptions& o_;
  moe_model* const model_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Rerun> open_;  // in order
  std::set<std::string> said_;
  size_t n_receipts_ = 0;
  size_t n_different_ = 0;
  Json differences_ = Json::array();
  std::string name_;
  Service service_;  // the last member: it calls the others
};

// Requests name their model: the service must have the same name.
moe_service* Verifier::service_for(const std::string& name) {
  if (service_ != nullptr && name == name_) return service_.get();
  report_until(0);
  service_.reset();
  service_ = create_service(o_, model_, name);
  name_ = name;
  return service_.get();
}

void Verifier::take_event(void* user, const moe_service_event* event) {
  if (event->last == 0) return;
  const std::unique_ptr<Ticket> ticket(static_cast<Ticket*>(user));
  Json found;
  try {
    found = receipt_of_answer(std::string(event->json, event->n_bytes), event->status);
  } catch (const std::exception& e) {  // of memory; nothing may be thrown through the library
    found = nullptr;
  }
  const std::lock_guard lock(ticket->verifier->mutex_);
  ticket->rerun->found = std::move(found);
  ticket->rerun->done = true;
  ticket->verifier->changed_.notify_all();
}

void Verifier::submit(Rerun& rerun) {
  const std::string body = request_text(rerun.receipt);
  const moe_endpoint endpoint =
      endpoint_of(rerun.receipt["endpoint"].get_ref<const std::string&>());
  moe_service* const service = service_for(rerun.receipt["model"]);
  auto ticket = std::make_unique<Ticket>(Ticket{this, &rerun});
  moe_error error;
  check(moe_service_submit(service, endpoint, body.data(), body.size(), take_event, ticket.get(),
                           nullptr, &error),
        error);
  (void)ticket.release();  // the last event's
}

void Verifier::add(const std::string& where, Json receipt) {
  constexpr size_t kMostOpen = 64;
  ++n_receipts_;
  Rerun rerun{.where = where, .receipt = std::move(receipt), .found = {}};
  const std::string problem = receipt_problem(rerun.receipt);
  if (!problem.empty()) throw CallError(MOE_ERR_FORMAT, where + ": " + problem);
  (void)service_for(rerun.receipt["model"]);
  report_until(kMostOpen - 1);
  {
    const std::lock_guard lock(mutex_);
    open_.push_back(std::move(rerun));
  }
  submit(open_.back());
}

void Verifier::report_until(size_t n_open) {
  while (open_.size() > n_open) {
    {
      std::unique_lock lock(mutex_);
      while (!changed_.wait_for(lock, std::chrono::milliseconds(100),
                                [this] { return open_.front().done; })) {
        stop_if_interrupted();
      }
    }
    report(open_.front());
    open_.pop_front();
  }
}

void Verifier::report(const Rerun& rerun) {
  say_settings(rerun);
  const std::string difference = difference_of(rerun.receipt, rerun.found);
  if (difference.empty()) return;
  ++n_different_;
  differences_.push_back({{"receipt", rerun.where}, {"difference", difference}});
  if (!o_.model.json) std::cout << visible(rerun.where + ": " + difference) << std::endl;
}

// Once for each kind of receipt: a note, as the answers may be the same nevertheless.
void Verifier::say_settings(const Rerun& rerun) {
  for (const std::string& text : different_settings(rerun.receipt, rerun.found)) {
    if (!said_.insert(text).second) continue;
    std::cerr << "moe: note: " << visible(rerun.where + ": made with " + text) << "\n";
  }
}

void verify_file(const std::string& path, Verifier& verifier) {
  std::ifstream file;
  const bool from_stdin = path == "-";
  if (!from_stdin) {
    file.open(path);
    if (!file) throw CallError(MOE_ERR_IO, path + ": cannot be read: " + std::strerror(errno));
  }
  std::istream& in = from_stdin ? std::cin : file;
  std::string line;
  for (size_t number = 1; next_line(in, &line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = (from_stdin ? "stdin" : path) + ":" + std::to_string(number);
    verifier.add(where, read_receipt(where, line));
  }
  if (in.bad()) throw CallError(MOE_ERR_IO, path + ": cannot be read");
}

void run_verify(const VerifyOptions& o) {
  const Env env = open_env(o.serve.model);
  const Model model =
      open_model_to_run(o.serve.model, env.get(), o.serve.n_slots > 0 ? o.serve.n_slots : 8);
  check_servable(o.serve.model, model.get());
  Verifier verifier(o.serve, model.get());
  for (const std::string& file : o.files) verify_file(file, verifier);
  verifier.finish();
  const size_t n = verifier.n_receipts();
  const size_t n_different = verifier.n_different();
  if (o.serve.model.json) {
    print_json({{"receipts", n},
                {"same", n - n_different},
                {"different", n_different},
                {"differences", verifier.differences()}});
  } else {
    std::cout << counted(n, "receipt") << ": " << n - n_different << " the same, " << n_different
              << " different\n";
  }
  if (n_different == 0) return;
  throw CallError(MOE_ERR_CORRUPT, counted(n_different, "answer") + " of " + std::to_string(n) +
                                       (n_different == 1 ? " differs" : " differ"));
}

}  // namespace

void add_verify(CLI::App& app) {
  auto o = std::make_shared<VerifyOptions>();
  CLI::App* c = app.add_subcommand("verify", "Make the answers of receipts again and compare them");
  add_model_options(*c, o->serve.model);
  c->add_option("RECEIPTS", o->files,
                "Files with a receipt, or an answer that has one, in each line; -: stdin")
      ->required()
      ->option_text("FILE ...");
  add_template_option(*c, o->serve);
  add_slots_option(*c, o->serve);
  add_session_options(*c, o->serve.model);
  c->footer(
      "Receipts are those of 'moe serve --log-receipts', or of requests with \"receipt\": true. "
      "Give the --template, --context, --kv and --router that the server had.");
  example(*c, "moe verify model.moe receipts.jsonl");
  o->serve.max_waiting = 65536;
  o->serve.max_seconds = 0;
  c->callback([o] { run_verify(*o); });
}

}  // namespace moe_cli
