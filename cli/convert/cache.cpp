// SPDX-License-Identifier: MIT
// moe cache: lists and removes the checkpoints that commands converted for themselves.

#include <iomanip>
#include <iostream>

#include "cli/common.h"
#include "cli/convert/model_cache.h"
#include "cli/help/help.h"
#include "cli/io/terminal.h"
#include "cli/io/units.h"

namespace moe_cli {
namespace {

struct CacheOptions {
  std::vector<std::string> sources;
  bool clear = false;
  bool json = false;
};

bool is_chosen(const CacheOptions& o, const CachedModel& model) {
  if (o.sources.empty()) return true;
  for (const std::string& source : o.sources) {
    if (is_of(model, source)) return true;
  }
  return false;
}

void show(const CacheOptions& o, const std::vector<CachedModel>& models) {
  uint64_t all = 0;
  for (const CachedModel& m : models) {
    all += m.bytes;
    std::cout << std::setw(10) << format_bytes(m.bytes) << "  " << format_time(m.used) << "  "
              << (m.source.empty() ? m.key : one_line(m.source)) << "\n";
  }
  std::cout << cache_folder() << ": " << counted(models.size(), "model") << ", "
            << format_bytes(all) << (o.clear ? " removed" : "") << "\n";
}

void show_json(const CacheOptions& o, const std::vector<CachedModel>& models) {
  Json list = Json::array();
  for (const CachedModel& m : models) {
    list.push_back({{"file", cache_folder() + "/" + m.key + ".moe"},
                    {"source", m.source},
                    {"bytes", m.bytes},
                    {"used", m.used}});
  }
  print_json({{"folder", cache_folder()}, {"removed", o.clear}, {"models", list}});
}

void run_cache(const CacheOptions& o) {
  std::vector<CachedModel> models;
  for (CachedModel& model : cached_models()) {
    if (is_chosen(o, model)) models.push_back(std::move(model));
  }
  if (models.empty() && !o.sources.empty()) {
    throw CallError(MOE_ERR_ARGUMENT, o.sources[0] + ": no conversion of it is kept");
  }
  if (o.clear) {
    if (o.sources.empty()) clear_leftovers();
    for (const CachedModel& model : models) remove_cached(model);
  }
  o.json ? show_json(o, models) : show(o, models);
}

}  // namespace

void add_cache(CLI::App& app) {
  auto o = std::make_shared<CacheOptions>();
  CLI::App* c = app.add_subcommand(
      "cache", "List or remove conversions of checkpoints that were run directly");
  example(*c, "moe cache --clear");
  c->add_option("SRC", o->sources, "Only those of this checkpoint folder or GGUF file")
      ->check(not_empty());
  c->add_flag("--clear", o->clear, "Remove them");
  c->add_flag("--json", o->json, "Print the result as JSON")->group(kOutputGroup);
  c->callback([o] { run_cache(*o); });
}

}  // namespace moe_cli
