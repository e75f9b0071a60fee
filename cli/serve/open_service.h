// SPDX-License-Identifier: MIT
#pragma once
// Opens the service of a model with the options of a command.

#include <memory>
#include <string>

#include "cli/serve/serve_options.h"

namespace moe_cli {

struct FreeService {
  void operator()(moe_service* p) const { moe_service_free(p); }
};
using Service = std::unique_ptr<moe_service, FreeService>;

/// "models/stories.moe" and "models/stories" are "stories".
std::string name_of_file(const std::string& path);
/// Throws CallError for a model that a service cannot have.
void check_servable(const ModelOptions& o, const moe_model* model);

struct ReceiptTaker {
  moe_service_receipt_fn function = nullptr;
  void* user = nullptr;
};
Service create_service(const ServeOptions& o, moe_model* model, const std::string& name,
                       ReceiptTaker taker = {});
moe_service_stats stats_of(moe_service* service);

/// The options that answers depend on, but for those of the session.
void add_template_option(CLI::App& c, ServeOptions& o);
void add_slots_option(CLI::App& c, ServeOptions& o);

}  // namespace moe_cli
