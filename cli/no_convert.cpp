// Instead of convert.cpp and synthetic.cpp, in a command without libmoe_convert.

#include "cli/synthetic.h"

namespace moe_cli {
namespace {

[[noreturn]] void refuse() {
  throw UsageError("this moe has no converter; model files are made by one that has it");
}

}  // namespace

void add_convert(CLI::App& app) {
  CLI::App* c = app.add_subcommand("convert", "Not in this build: needs a moe with the converter");
  c->allow_extras();
  c->callback(refuse);
}

void add_synthetic_options(CLI::App& c, BenchOptions&) { c.get_option("MODEL")->required(); }

void save_synthetic(const BenchOptions&) { refuse(); }

Loaded load_synthetic(const BenchOptions&, moe_env*) { refuse(); }

}  // namespace moe_cli
