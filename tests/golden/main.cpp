// SPDX-License-Identifier: MIT
// Runs every golden case of a folder: MOE_VECTORS_DIR, or the argument.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/golden/golden.h"

namespace moe::golden {
namespace {

struct Tolerance {
  double rtol;
  double atol;
};

bool near(double found, double expected, const Tolerance& tol) {
  if (std::isnan(expected)) return std::isnan(found);
  if (std::isinf(expected)) return found == expected;
  return std::fabs(found - expected) <= tol.atol + tol.rtol * std::fabs(expected);
}

std::string compare_tensor(const Json& expected, const Json& found, const Tolerance& tol) {
  const Tensor e = tensor(expected);
  const Tensor f = tensor(found);
  if (e.shape != f.shape) return "shape " + found.at("shape").dump();
  const bool exact = expected.at("type") != "float";
  for (size_t i = 0; i < e.data.size(); ++i) {
    if (exact ? e.data[i] == f.data[i] : near(f.data[i], e.data[i], tol)) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(f.data[i]) + ", expected " +
           std::to_string(e.data[i]);
  }
  return {};
}

std::string compare(const std::string& name, const Json& expected, const Json& found,
                    const Tolerance& tol) {
  if (expected.is_object()) return compare_tensor(expected, found, tol);
  if (name == "scale") {
    return near(number(found), number(expected), tol) ? "" : "is " + found.dump();
  }
  return expected == found ? "" : "is " + found.dump() + ", expected " + expected.dump();
}

moe_status expected_code(const std::string& error) {
  if (error == "non_finite") return MOE_ERR_NON_FINITE;
  if (error == "shape") return MOE_ERR_SHAPE;
  if (error == "range") return MOE_ERR_RANGE;
  throw std::runtime_error("unknown class of error: " + error);
}

/// The reason why a case fails; empty if it passes.
std::string judge(const Json& c, const Json& file_tol, const Outcome& outcome) {
  if (!outcome.problem.empty()) return outcome.problem;
  if (c.contains("error")) {
    const std::string error = c.at("error");
    if (outcome.status.code() == expected_code(error)) return {};
    return "expected the error " + error + ", got status " + std::to_string(outcome.status.code()) +
           " '" + outcome.status.text() + "'";
  }
  if (!outcome.status.ok()) return std::string("error: ") + outcome.status.text();
  const Json& t = c.contains("tol") && !c.at("tol").is_null() ? c.at("tol") : file_tol;
  const Tolerance tol{t.at("rtol").get<double>(), t.at("atol").get<double>()};
  for (const auto& [name, expected] : c.at("out").items()) {
    const auto found = outcome.out.find(name);
    if (found == outcome.out.end()) return "output " + name + " is not produced";
    const std::string difference = compare(name, expected, found->second, tol);
    if (!difference.empty()) return "output " + name + ": " + difference;
  }
  return {};
}

std::string run_case(const Json& c, const Json& tol, const Runners& runners, Devices& devices) {
  const std::string fn = c.at("fn");
  const auto runner = runners.find(fn);
  if (runner == runners.end()) return "unknown function " + fn;
  static const Json kNothing = Json::object();
  Outcome outcome;
  const Case given{c.contains("in") ? c.at("in") : kNothing,
                   c.contains("par") ? c.at("par") : kNothing};
  try {
    runner->second(given, devices, outcome);
    // A case that ends in an error may end before all parameters are read.
    const std::string ignored = outcome.status.ok() ? given.ignored() : "";
    if (!ignored.empty()) return "unknown parameter " + ignored;
    return judge(c, tol, outcome);
  } catch (const std::exception& e) {
    return std::string("the case cannot be read: ") + e.what();
  }
}

int run_folder(const std::filesystem::path& folder) {
  Runners runners;
  add_pointwise(runners);
  add_quant(runners);
  add_routers(runners);
  add_layers(runners);
  add_encoders(runners);
  add_translation(runners);
  add_mixers(runners);
  Devices devices;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    // Losses belong to the trainer; examples/train/check_losses.py runs these cases.
    if (entry.path().filename() == "11_losses.json") continue;
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  int passed = 0;
  int failed = 0;
  for (const auto& path : files) {
    std::ifstream stream(path);
    const Json file = Json::parse(stream);
    if (!file.contains("cases")) continue;  // the plan from which a set of cases was made
    for (const Json& c : file.at("cases")) {
      const std::string fault = run_case(c, file.at("tol"), runners, devices);
      ++(fault.empty() ? passed : failed);
      if (fault.empty()) continue;
      std::printf("FAILED %s %s (%s): %s\n", path.filename().c_str(),
                  c.at("id").get<std::string>().c_str(), c.at("fn").get<std::string>().c_str(),
                  fault.c_str());
    }
  }
  std::string isas;
  for (const CpuKernels* k : devices.kernels()) isas += std::string(" ") + k->name;
  std::printf("%d golden cases passed, %d failed, from %s on%s\n", passed, failed, folder.c_str(),
              isas.c_str());
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace moe::golden

int main(int argc, char** argv) {
  const char* folder = std::getenv("MOE_VECTORS_DIR");
  if (folder == nullptr || *folder == '\0') folder = argc > 1 ? argv[1] : nullptr;
  if (folder == nullptr) {
    std::fprintf(stderr, "usage: golden_vectors FOLDER (or set MOE_VECTORS_DIR)\n");
    return 2;
  }
  try {
    return moe::golden::run_folder(folder);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "golden_vectors: %s\n", e.what());
    return 1;
  }
}
