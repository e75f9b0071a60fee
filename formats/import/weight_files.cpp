// SPDX-License-Identifier: MIT
// Chooses the files with the weights by their names, checks that numbered sets are complete, and
// says how to rewrite a format that is not read.
#include "formats/import/weight_files.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "formats/import/failure.h"
#include "formats/import/file.h"
#include "formats/import/shell_quoted.h"
#include "formats/import/unfinished.h"
#include "src/base/number.h"

namespace moe {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::string_view kWeightsEnd = ".safetensors";
constexpr int kMaxCount = 100'000;

// Wide enough for names of trainers, and not more than an error's text has room for.
constexpr size_t kMaxNameInLine = 24;

// "model-00001-of-00003.safetensors": files of one set differ in `number` alone.
struct Shard {
  std::string before, number, after;
  int count = 0;  // of the set; 0: the name does not say

  std::string with(int n) const {
    std::string digits = std::to_string(n);
    if (digits.size() < number.size()) digits.insert(0, number.size() - digits.size(), '0');
    return before + digits + after;
  }
};

// The number in front of `end`; empty if there is none.
std::string digits_before(const std::string& text, size_t end) {
  size_t first = end;
  while (first > 0 && end - first < 6 && is_digit(text[first - 1])) --first;
  return text.substr(first, end - first);
}

Shard read_shard(const std::string& name) {
  constexpr std::string_view kCounted = "-of-";
  const size_t stem = name.size() - kWeightsEnd.size();
  const std::string last = digits_before(name, stem);
  const size_t of = stem - last.size();
  if (last.empty()) return {name, "", "", 0};
  if (of >= kCounted.size() && name.compare(of - kCounted.size(), kCounted.size(), kCounted) == 0) {
    const size_t end = of - kCounted.size();
    const std::string number = digits_before(name, end);
    if (!number.empty()) {
      return {name.substr(0, end - number.size()), number, name.substr(end), std::stoi(last)};
    }
  }
  const bool apart = of > 0 && std::string_view(".-_").find(name[of - 1]) != std::string_view::npos;
  if (!apart) return {name, "", "", 0};
  return {name.substr(0, of), last, name.substr(stem), 0};
}

using Sets = std::map<std::pair<std::string, std::string>, std::map<int, std::string>>;

bool is_adapter(const std::string& name) { return name.starts_with("adapter_"); }

bool is_weights(const std::string& name) {
  return name.ends_with(kWeightsEnd) && name[0] != '.' && !is_adapter(name) &&
         !name.starts_with("optimizer");
}

// Numbers run from 0 or from 1 to the count that the names say, or else to the highest.
void check_complete(const std::string& folder, const std::map<int, std::string>& set) {
  const Shard shard = read_shard(set.begin()->second);
  if (shard.number.empty() || (shard.count == 0 && set.begin()->first > 1)) return;
  if (shard.count > kMaxCount) {
    fail(MOE_ERR_FORMAT, "%.150s/%.100s: %d shards", folder.c_str(), set.begin()->second.c_str(),
         shard.count);
  }
  const int first = set.contains(0) ? 0 : 1;
  const int end = shard.count == 0 ? set.rbegin()->first + 1 : first + shard.count;
  std::vector<std::string> missing;
  for (int n = first; n < end; ++n) {
    if (!set.contains(n)) missing.push_back(shard.with(n));
  }
  check_none_missing(folder, missing, static_cast<size_t>(end - first), "their names say");
}

Sets sets_in(const std::vector<std::string>& names) {
  Sets sets;
  for (const std::string& name : names) {
    if (!is_weights(name)) continue;
    const Shard shard = read_shard(name);
    const int number = shard.number.empty() ? 0 : std::stoi(shard.number);
    sets[{shard.before, shard.after}].emplace(number, name);
  }
  return sets;
}

// "a-1.safetensors" and "a-01.safetensors": a set has room for one of them.
void check_numbers(const std::string& folder, const std::vector<std::string>& names,
                   const Sets& sets) {
  for (const std::string& name : names) {
    if (!is_weights(name)) continue;
    const Shard shard = read_shard(name);
    const auto set = sets.find({shard.before, shard.after});
    if (set == sets.end() || shard.number.empty()) continue;
    const std::string& taken = set->second.at(std::stoi(shard.number));
    if (taken == name) continue;
    fail(MOE_ERR_FORMAT, "%.150s: %.100s and %.100s have the same number; expected one of them",
         folder.c_str(), taken.c_str(), name.c_str());
  }
}

// Other files may be copies of the weights in another layout, or further parts of the model that
// are not read.
void keep_usual_names(const std::string& folder, Sets* sets) {
  for (const char* usual : {"model-", "model.", "model_", "pytorch_model"}) {
    Sets chosen;
    for (const auto& [key, set] : *sets) {
      const std::string& name = set.begin()->second;
      const Shard shard = read_shard(name);
      if (name.starts_with(usual) && !shard.number.empty()) chosen.emplace(key, set);
    }
    if (chosen.size() > 1) {
      fail(MOE_ERR_FORMAT, "%.100s: holds shards of two sets, %.100s and %.100s; expected one",
           folder.c_str(), chosen.begin()->second.begin()->second.c_str(),
           std::next(chosen.begin())->second.begin()->second.c_str());
    }
    if (chosen.size() != 1) continue;
    *sets = std::move(chosen);
    return;
  }
}

std::optional<WeightFiles> find_other_names(const std::string& folder,
                                            const std::vector<std::string>& names) {
  Sets sets = sets_in(names);
  if (sets.empty()) return std::nullopt;
  if (sets.size() > 1) keep_usual_names(folder, &sets);
  check_numbers(folder, names, sets);
  WeightFiles out;
  for (const auto& [key, set] : sets) {
    check_complete(folder, set);
    for (const auto& [number, name] : set) out.names.push_back(name);
  }
  const std::string rest = out.names.size() == 1 ? ""
                                                 : " to " + out.names.back() + " (" +
                                                       std::to_string(out.names.size()) + " files)";
  out.warnings.push_back(folder + ": there is neither " + kSingle +
                         " nor an index of shards; read " + out.names[0] + rest);
  return out;
}

[[noreturn]] void fail_adapter(const std::string& folder, const std::string& name) {
  fail(MOE_ERR_UNSUPPORTED,
       "%.150s: %.60s is an adapter (PEFT), not a model. In Python, AutoPeftModelForCausalLM."
       "from_pretrained(FOLDER).merge_and_unload().save_pretrained(NEW) joins it with its base "
       "model; convert NEW",
       folder.c_str(), name.c_str());
}

// The line must fit in an error's text. Trainers wrap the weights in "model" or "module", and
// Megatron nests them; `transformers` writes flat files, possibly several. The file's name stands
// behind the program, as a word of its own: inside, it would be code.
[[noreturn]] void fail_pickle(const std::string& name) {
  if (name.starts_with("pytorch_model")) {
    fail(MOE_ERR_UNSUPPORTED,
         "%.60s: a pickle can run code and is not read. In its folder run: python -c \"import glob,"
         "torch,safetensors.torch as s;s.save_file({k:v.contiguous().clone() for x in glob.glob("
         "'pytorch_model*.bin') for k,v in torch.load(x,weights_only=True).items()},"
         "'model.safetensors')\"",
         name.c_str());
  }
  const std::string word = shell_quoted(name);
  fail(MOE_ERR_UNSUPPORTED,
       "%.24s: pickles can run code. In its folder run: python -c \"import sys,torch as t,"
       "safetensors.torch as s;d=t.load(sys.argv[1],weights_only=True);f=lambda d,p='':{p[1:]:"
       "d.contiguous().clone()}if t.is_tensor(d)else{a:b for k in getattr(d,'keys',list)()for a,b "
       "in f(d[k],p+'.'+k).items()};s.save_file(f(d.get('module',d.get('model',d))),"
       "'model.safetensors')\" %s",
       name.c_str(), word.size() <= kMaxNameInLine ? word.c_str() : "FILE");
}

// The pickle that is likeliest to hold the weights; empty if there is none. What a trainer saves
// beside them is never one.
std::string likeliest_pickle(const std::vector<std::string>& names) {
  constexpr std::string_view kBeside[] = {"optimizer", "scheduler", "rng_state", "training_args"};
  constexpr std::string_view kUsual[] = {"pytorch_model", "model", "consolidated", "mp_rank"};
  std::string found;
  size_t best = std::size(kUsual) + 1;
  for (const std::string& name : names) {
    const auto begins = [&](std::string_view with) { return name.starts_with(with); };
    const bool pickle = name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth");
    if (!pickle || std::any_of(std::begin(kBeside), std::end(kBeside), begins)) continue;
    const auto* const usual = std::find_if(std::begin(kUsual), std::end(kUsual), begins);
    const auto rank = static_cast<size_t>(usual - std::begin(kUsual));
    if (rank >= best) continue;
    best = rank;
    found = name;
  }
  return found;
}

[[noreturn]] void fail_without_weights(const std::string& folder,
                                       const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name == "adapter_config.json" || name.starts_with("adapter_model")) {
      fail_adapter(folder, name);
    }
  }
  const std::string pickle = likeliest_pickle(names);
  for (const std::string& name : names) {
    if (name == pickle) fail_pickle(name);
    if (name.ends_with(".gguf")) {
      fail(MOE_ERR_NOT_FOUND, "%s: found neither %s nor %s, but %.100s: convert that file",
           folder.c_str(), kSingle, kIndex, name.c_str());
    }
  }
  const std::string unfinished = unfinished_name(names);
  fail(MOE_ERR_NOT_FOUND, "%.150s: found neither %s nor %s%s%.100s%s", folder.c_str(), kSingle,
       kIndex, unfinished.empty() ? "" : ", but ", unfinished.c_str(),
       unfinished.empty() ? "" : ": its download has not ended");
}

// An index of another name: those of variants, and of files called otherwise.
std::string other_index(const std::vector<std::string>& names) {
  std::string found;
  for (const std::string& name : names) {
    const bool index = name.ends_with(".json") && name[0] != '.' &&
                       name.find(".safetensors.index.") != std::string::npos;
    if (!index || is_adapter(name)) continue;
    if (!found.empty()) return "";
    found = name;
  }
  return found;
}

}  // namespace

void check_none_missing(const std::string& folder, const std::vector<std::string>& missing,
                        size_t of, const char* who) {
  constexpr size_t kRoom = 200;  // of an error's text
  if (missing.empty()) return;
  std::string list;
  size_t n = 0;
  for (const std::string& name : missing) {
    if (n > 0 && list.size() + name.size() > kRoom) break;
    list += (n++ == 0 ? "" : ", ") + name.substr(0, kRoom);
  }
  if (n < missing.size()) list += " and " + std::to_string(missing.size() - n) + " more";
  const bool one = missing.size() == 1;
  fail(MOE_ERR_NOT_FOUND, "%.80s: %s %s missing (%zu of %zu files that %s); download %s",
       folder.c_str(), list.c_str(), one ? "is" : "are", missing.size(), of, who,
       one ? "it" : "them");
}

WeightFiles find_weight_files(const std::string& folder) {
  WeightFiles out;
  const std::vector<std::string> names = names_in_folder(folder);
  if (path_exists(folder + "/" + kIndex)) {
    out.index = kIndex;
  } else if (path_exists(folder + "/" + kSingle)) {
    out.names = {kSingle};
  } else if (out.index = other_index(names); !out.index.empty()) {
    out.warnings.push_back(folder + ": there is no " + kIndex + "; read the shards of " +
                           out.index);
  } else if (std::optional<WeightFiles> others = find_other_names(folder, names)) {
    out = std::move(*others);
  } else {
    fail_without_weights(folder, names);
  }
  for (const std::string& name : names) {
    if (!name.starts_with("adapter_model")) continue;
    out.warnings.push_back(folder + ": " + name +
                           " is an adapter and not applied; the weights are those without it");
  }
  return out;
}

}  // namespace moe
