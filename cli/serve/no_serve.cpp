// SPDX-License-Identifier: MIT
// Replaces the rest of this folder in a command without libmicrohttpd or libmoe_serve.

#include "cli/common.h"

namespace moe_cli {

namespace {

void add_missing(CLI::App& app, const char* name) {
  CLI::App* c = app.add_subcommand(name, "Not in this build, which has no libmicrohttpd");
  c->allow_extras();
  c->callback([] {
    throw CallError(MOE_ERR_UNSUPPORTED,
                    "this build of moe has no server: it was built without libmicrohttpd "
                    "(libmicrohttpd-dev on Debian) or without libmoe_serve");
  });
}

}  // namespace

void add_serve(CLI::App& app) { add_missing(app, "serve"); }
void add_verify(CLI::App& app) { add_missing(app, "verify"); }

}  // namespace moe_cli
