// SPDX-License-Identifier: MIT
// Replaces convert.cpp, synthetic.cpp and the cache of conversions in a command without
// libmoe_convert.

#include "cli/bench/synthetic.h"
#include "cli/convert/model_cache.h"

namespace moe_cli {
namespace {

[[noreturn]] void refuse_to_convert() {
  throw CallError(MOE_ERR_UNSUPPORTED,
                  "this build of moe has no converter; convert with a build that has one");
}

}  // namespace

void add_convert(CLI::App& app) {
  CLI::App* c = app.add_subcommand("convert", "Not in this build, which has no converter");
  c->allow_extras();
  c->callback(refuse_to_convert);
}

void add_cache(CLI::App&) {}

std::string runnable_file(const std::string& path, CachedWeights) { return path; }

void add_synthetic_options(CLI::App& c, BenchOptions&) { c.get_option("MODEL")->required(); }

void save_synthetic(const BenchOptions&) { refuse_to_convert(); }

Loaded load_synthetic(const BenchOptions&, moe_env*) { refuse_to_convert(); }

}  // namespace moe_cli
