// SPDX-License-Identifier: MIT
// Creates services as the options of moe serve and moe verify say.
#include "cli/serve/open_service.h"

#include <filesystem>

#include "cli/chat/chat_template.h"
#include "cli/help/help.h"
#include "cli/io/units.h"

namespace moe_cli {

std::string name_of_file(const std::string& file) {
  std::filesystem::path path = std::filesystem::path(file).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string extension = path.extension().string();
  const bool known = extension == ".moe" || extension == ".gguf";
  return known ? path.stem().string() : path.filename().string();
}

void check_servable(const ModelOptions& o, const moe_model* model) {
  if (model_info(model).is_encoder == 0) check_decoder(o, model, "serve");
}

Service create_service(const ServeOptions& o, moe_model* model, const std::string& name,
                       ReceiptTaker taker) {
  const moe_session_params session = session_params(o.model);
  const std::string chat_template = o.chat_template.empty() ? "" : read_template(o.chat_template);
  moe_router router{};
  auto p = MOE_INIT(moe_service_params);
  p.n_slots = o.n_slots;
  p.session = &session;
  if (!o.model.router.empty()) {
    router = parse_router(o.model.router);
    p.router = &router;
  }
  p.name = name.c_str();
  p.chat_template = chat_template.empty() ? nullptr : chat_template.c_str();
  p.max_waiting = o.max_waiting;
  p.max_prompt = o.max_prompt;
  p.slice = o.slice;
  p.max_draft = o.draft;
  p.no_reuse = o.no_reuse ? 1 : 0;
  p.cache_folder = o.cache_folder.empty() ? nullptr : o.cache_folder.c_str();
  p.cache_bytes = parse_bytes("--cache-size", o.cache_size);
  p.max_seconds = o.max_seconds;
  p.receipt = taker.function;
  p.receipt_user = taker.user;
  moe_service* raw = nullptr;
  moe_error error;
  check(moe_service_create(model, &p, &raw, &error), error);
  return Service(raw);
}

moe_service_stats stats_of(moe_service* service) {
  auto stats = MOE_INIT(moe_service_stats);
  moe_error error;
  check(moe_service_get_stats(service, &stats, &error), error);
  return stats;
}

void add_template_option(CLI::App& c, ServeOptions& o) {
  c.add_option("--template", o.chat_template,
               "A file with a Jinja template, or a name: " + listed_names(moe_chat_template_name) +
                   " (default the model's own)")
      ->check(not_empty())
      ->check(suggest(listed_names(moe_chat_template_name)))
      ->option_text("FILE|NAME");
}

void add_slots_option(CLI::App& c, ServeOptions& o) {
  c.add_option("--slots", o.n_slots,
               "Texts generated at the same time (default 8; fewer under --memory, so that three "
               "quarters of it are for the weights)")
      ->transform(integer_in(1, 1024))
      ->option_text("N");
}

}  // namespace moe_cli
