// SPDX-License-Identifier: MIT
// Text of moe --version, for reports of faults, and the name of this build.

#include "cli/version.h"

#include "cli/commit.h"
#include "cli/common.h"

namespace moe_cli {
namespace {

constexpr const char* kCompiler =
#ifdef __clang__
    "clang " __clang_version__;
#else
    "gcc " __VERSION__;
#endif

std::string isa_of_this_machine() {
  ModelOptions cpu;
  cpu.device = "cpu";
  cpu.threads = 1;
  const Env env = open_env(cpu);
  return env_info(env.get()).isa;
}

}  // namespace

std::string build_name() {
  const std::string version = moe_version_string(), commit = built_commit();
  return commit.empty() ? version : version + "+" + commit;
}

std::string version_text() {
  std::string text = std::string("moe ") + moe_version_string() + "\n";
  if (*built_commit() != 0) text += std::string("commit ") + built_commit() + "\n";
  text += std::string("compiled by ") + kCompiler + "\ninstruction sets ";
  text += listed_names(moe_isa_name);
  return text + "; this machine runs " + isa_of_this_machine();
}

}  // namespace moe_cli
