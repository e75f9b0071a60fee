// SPDX-License-Identifier: MIT
// moe inspect: describes a model file from its metadata.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iomanip>
#include <iostream>

#include "cli/help/help.h"
#include "cli/io/interrupt.h"
#include "cli/io/terminal.h"
#include "cli/io/units.h"
#include "cli/model/memory.h"
#include "cli/model/sampling.h"

namespace moe_cli {
namespace {

struct InspectOptions {
  ModelOptions model;
  bool tensors = false;
  bool verify = false;
};

// The settings of the file for vectors of texts.
Json vectors_json(const moe_model* model, const moe_model_info& i) {
  Json prompts = Json::object();
  Json chosen;
  for (int32_t n = 0; n < i.n_prompts; ++n) {
    const char *name = nullptr, *text = nullptr;
    moe_error error;
    check(moe_model_get_prompt(model, n, &name, &text, &error), error);
    prompts[name] = text;
    if (n == i.default_prompt) chosen = name;
  }
  return {{"pooling", i.pooling},
          {"normalized", i.normalized != 0},
          {"max_tokens", i.vector_tokens},
          {"prompts", prompts},
          {"default_prompt", chosen}};
}

Json info_json(const moe_model* model) {
  const moe_model_info i = model_info(model);
  Json j = {{"name", i.name},
            {"n_layers", i.n_layers},
            {"n_moe_layers", i.n_moe_layers},
            {"d_model", i.d_model},
            {"vocab_size", i.vocab_size},
            {"context_length", i.context_length},
            {"bos_token", i.bos_token},
            {"eos_tokens", std::vector<int32_t>(i.eos_tokens, i.eos_tokens + i.n_eos_tokens)},
            {"n_parameters", i.n_parameters},
            {"n_active_parameters", i.n_active_parameters},
            {"weight_bytes", i.weight_bytes},
            {"bytes_per_token", i.bytes_per_token},
            {"file_bytes", i.file_bytes},
            {"tokenizer", moe_model_tokenizer(model) != nullptr},
            {"encoder", i.is_encoder != 0},
            {"head", i.head},
            {"n_outputs", i.n_outputs},
            {"mask_token", i.mask_token}};
  if (i.is_encoder == 0 && i.is_encoder_decoder == 0) {
    const ModelSampling sampling(model);
    j["sampling"] = sampling_json(sampling.settings);
    j["sampling"]["in_file"] = sampling.in_file;
  }
  if (i.n_predictions > 0) j["n_predictions"] = i.n_predictions;
  if (*i.pooling != '\0') j["vectors"] = vectors_json(model, i);
  if (i.is_encoder_decoder == 0) return j;
  j["n_encoder_layers"] = i.n_encoder_layers;
  j["source_length"] = i.source_length;
  j["start_token"] = i.start_token;
  return j;
}

void add_router(const moe_model* model, int32_t layer, Json& j) {
  auto r = MOE_INIT(moe_router);
  moe_error error;
  char text[512];
  size_t n = 0;
  check(moe_model_get_router(model, layer, &r, &error), error);
  check(moe_router_format(&r, text, sizeof text, &n, &error), error);
  j["router"] = text;
  j["k"] = r.k;
  if (r.k == 0) j["threshold"] = r.threshold;
  if (r.tau != 0) j["tau"] = r.tau;
  if (r.weights != nullptr) j["weights"] = r.weights;
  if (r.gate != nullptr) j["gate"] = r.gate;
  if (r.gamma != 0) j["gamma"] = r.gamma;
}

Json layer_json(const moe_model* model, int32_t index) {
  const moe_model_layer_info l = layer_info(model, index);
  Json j = {{"n_heads", l.n_heads}, {"n_kv_heads", l.n_kv_heads}, {"head_dim", l.head_dim},
            {"window", l.window},   {"activation", l.activation}, {"d_ff", l.d_ff}};
  if (l.n_cross_heads > 0) j["n_cross_heads"] = l.n_cross_heads;
  if (l.kv_latent > 0) j["kv_latent"] = l.kv_latent;
  if (*l.mixer != '\0') {
    j["mixer"] = l.mixer;
    j["state_bytes"] = l.state_bytes;
  }
  if (l.n_experts > 0) {
    j["n_experts"] = l.n_experts;
    add_router(model, index, j);
    j["n_active"] = l.n_active;
    j["n_sublayers"] = l.n_sublayers;
    j["n_subheads"] = l.n_subheads;
    j["head"] = l.has_head != 0;
    j["merge"] = l.has_merge != 0;
    j["shared_d_ff"] = l.shared_d_ff;
  }
  return j;
}

Json tensor_json(const moe_model* model, size_t index) {
  moe_tensor_info t{};
  t.struct_size = sizeof t;
  moe_error error;
  check(moe_model_get_tensor_info(model, index, &t, &error), error);
  std::string name;
  if (t.layer >= 0) name = "layers." + std::to_string(t.layer) + ".";
  name += t.part;
  if (t.expert >= 0) name += "." + std::to_string(t.expert);
  if (*t.role != '\0') name += std::string(".") + t.role;
  return {{"name", name},       {"rows", t.rows},   {"cols", t.cols},
          {"format", t.format}, {"scale", t.scale}, {"activations", t.activations},
          {"codec", t.codec},   {"bytes", t.bytes}, {"file_offset", t.file_offset}};
}

std::string router_text(const Json& l) {
  std::string s = "router " + l["router"].get<std::string>();
  if (l["k"] == 0) s += ", at most " + std::to_string(l["n_active"].get<int>()) + " active";
  return s;
}

// MH-MoE has a head and a merge layer; mentions only deviations.
std::string subheads_text(const Json& l) {
  const bool many = l["n_subheads"] != 1, head = l["head"], merge = l["merge"];
  std::string s;
  if (many) s = ", " + std::to_string(l["n_subheads"].get<int>()) + " sub-heads";
  if (head && merge) return many ? s : ", head and merge layer";
  if (head) return s + ", head layer" + (many ? " alone" : "");
  if (merge) return s + ", merge layer" + (many ? " alone" : "");
  return many ? s + " without head and merge layer" : s;
}

std::string layer_line(const Json& l) {
  std::string s = "no attention";
  if (l.contains("mixer")) {
    s = l["mixer"].get<std::string>() + " with a state of " +
        format_bytes(l["state_bytes"].get<uint64_t>());
  }
  if (l["n_heads"] != 0) {
    s = (l.contains("mixer") ? s + " beside " : "") +
        counted(l["n_heads"].get<uint64_t>(), "head") + " / " +
        std::to_string(l["n_kv_heads"].get<int>()) + " KV of " +
        std::to_string(l["head_dim"].get<int>());
  }
  if (l.contains("kv_latent")) {
    s += ", " + std::to_string(l["kv_latent"].get<int>()) + " values per position with --kv latent";
  }
  if (l.contains("n_cross_heads")) {
    s += ", " + std::to_string(l["n_cross_heads"].get<int>()) + " to the source";
  }
  if (l["window"] != 0) s += ", window " + std::to_string(l["window"].get<int>());
  if (l["d_ff"] == 0) return s + "; no FFN";
  s +=
      "; " + l["activation"].get<std::string>() + " FFN of " + std::to_string(l["d_ff"].get<int>());
  if (!l.contains("router")) return s;
  s += " x " + counted(l["n_experts"].get<uint64_t>(), "expert");
  if (l["n_sublayers"] != 0) s += " of " + counted(l["n_sublayers"].get<uint64_t>(), "sub-layer");
  s += ", " + router_text(l);
  s += subheads_text(l);
  if (l["shared_d_ff"] != 0) {
    s += ", shared expert of " + std::to_string(l["shared_d_ff"].get<int>());
  }
  return s;
}

// True if tokens can use fewer parameters than the library reports, which is the maximum.
bool varies(const Json& layers) {
  return std::any_of(layers.begin(), layers.end(), [](const Json& l) {
    return l.contains("router") && (l["k"] == 0 || l["n_subheads"] != 1 || l.contains("gamma"));
  });
}

void print_memory(const Json& memory) {
  uint64_t total = 0;
  for (const Json& bytes : memory) total += bytes.get<uint64_t>();
  std::cout << "  memory with one session " << format_bytes(total)
            << ", all weights counted, read or mapped";
  const char* separator = ": ";
  for (const auto& [what, bytes] : memory.items()) {
    std::cout << separator << what << " " << format_bytes(bytes.get<uint64_t>());
    separator = "; ";
  }
  std::cout << "\n";
}

// Effect of the cap, before anything is read.
Json plan_json(const ModelOptions& o, const moe_model* model, const Json& layers) {
  const moe_memory_plan p = memory_plan(o, model);
  uint64_t n_token = 0;
  for (const Json& l : layers) {
    if (!l.contains("router")) continue;
    n_token += std::min(l["n_experts"].get<uint64_t>(),
                        l["n_active"].get<uint64_t>() * l["n_subheads"].get<uint64_t>());
  }
  const uint64_t mean = p.n_experts == 0 ? 0 : p.expert_bytes / p.n_experts;
  return {{"cap_bytes", p.cap_bytes},
          {"needed_bytes", p.needed_bytes},
          {"least_cap_bytes", p.least_bytes},
          {"session_bytes", p.session_bytes},
          {"chunk", p.chunk},
          {"n_experts", p.n_experts},
          {"n_experts_in_memory", p.n_in_memory},
          {"expert_bytes", p.expert_bytes},
          {"n_experts_per_token", n_token},
          {"expert_bytes_per_token", n_token * mean}};
}

void print_plan(const Json& plan) {
  auto number = [&](const char* key) { return plan[key].get<uint64_t>(); };
  auto bytes = [&](const char* key) { return format_bytes(number(key)); };
  std::cout << "  under the cap of " << bytes("cap_bytes") << ": " << bytes("needed_bytes")
            << " with one session, chunks of " << number("chunk");
  if (number("n_experts") > 0) {
    std::cout << "; " << number("n_experts_in_memory") << " of " << number("n_experts")
              << " experts in memory ("
              << std::lround(100 * static_cast<double>(number("n_experts_in_memory")) /
                             static_cast<double>(number("n_experts")))
              << " %), of which a token uses at most " << number("n_experts_per_token") << " ("
              << bytes("expert_bytes_per_token") << ")";
  }
  std::cout << "\n  the smallest possible cap is " << bytes("least_cap_bytes") << " ("
            << number("least_cap_bytes") << " bytes)\n";
}

void print_layers(const Json& layers) {
  for (size_t first = 0; first < layers.size();) {
    size_t last = first;
    while (last + 1 < layers.size() && layers[last + 1] == layers[first]) ++last;
    std::cout << "  "
              << (first == last ? "layer " + std::to_string(first)
                                : "layers " + std::to_string(first) + "-" + std::to_string(last))
              << ": " << layer_line(layers[first]) << "\n";
    first = last + 1;
  }
}

// Not for decoders, which have a token head.
std::string kind_note(const Json& j) {
  if (j.contains("n_encoder_layers")) {
    return ", an encoder-decoder (" +
           counted(j["n_encoder_layers"].get<uint64_t>(), "encoder layer") +
           ", sources of at most " + std::to_string(j["source_length"].get<int>()) + " tokens)";
  }
  if (j["encoder"] == false) return "";
  const std::string head = j["head"];
  const std::string n = std::to_string(j["n_outputs"].get<int>());
  if (head == "none") return ", an encoder without a head";
  if (head == "tokens") return ", an encoder with a token head";
  if (head == "span") return ", an encoder with a span head";
  if (n != "1") return ", an encoder with a head of " + n + " " + head;
  return std::string(", an encoder with a head for 1 ") + (head == "classes" ? "class" : "tag");
}

// The default context of a session (moe_session_params).
const char* context_note(uint64_t length) {
  return length <= 4096 ? "" : " (a session uses 4096 by default: --context)";
}

// Where the checkpoint says how to sample. Empty otherwise.
std::string sampling_line(const moe_model* model) {
  const ModelSampling sampling(model);
  if (!sampling.in_file) return "";
  return "  the checkpoint's sampling: " + sampling_text(sampling.settings) + "\n";
}

void print_vectors(const Json& v) {
  const std::string pooling = v["pooling"];
  std::cout << "  vectors of texts (moe embed): "
            << (pooling == "mean" ? "the mean over all tokens" : "of the " + pooling + " token");
  if (v["normalized"] == true) std::cout << ", of length 1";
  if (v["max_tokens"] != 0) {
    std::cout << ", texts of at most " << v["max_tokens"].get<int>() << " tokens";
  }
  const char* separator = "; prompts ";
  for (const auto& [name, text] : v["prompts"].items()) {
    std::cout << separator << one_line(name) << (v["default_prompt"] == name ? " (default)" : "");
    separator = ", ";
  }
  std::cout << "\n";
}

void print_text(const Json& j, const std::string& sampling) {
  auto number = [&](const char* key) { return j[key].get<uint64_t>(); };
  std::cout << (j["name"] == "" ? "unnamed model" : one_line(j["name"].get<std::string>()))
            << "\n  " << counted(number("n_layers"), "layer") << " (" << number("n_moe_layers")
            << " MoE), d_model " << number("d_model") << ", vocabulary " << number("vocab_size")
            << ", context " << number("context_length") << context_note(number("context_length"))
            << (j["tokenizer"] == true ? "" : ", no tokenizer") << kind_note(j) << "\n";
  print_layers(j["layers"]);
  if (j.contains("n_predictions")) {
    std::cout << "  and " << counted(number("n_predictions"), "layer")
              << " that guesses further tokens, for --draft\n";
  }
  const char* most = varies(j["layers"]) ? "at most " : "";
  std::cout << "  parameters: " << number("n_parameters") << ", active per token " << most
            << number("n_active_parameters") << "\n  file " << format_bytes(number("file_bytes"))
            << ", weights in memory " << format_bytes(number("weight_bytes")) << ", read per token "
            << most << format_bytes(number("bytes_per_token")) << "\n"
            << sampling;
  print_memory(j["memory"]);
  if (j.contains("vectors")) print_vectors(j["vectors"]);
  if (j.contains("plan")) print_plan(j["plan"]);
  if (!j.contains("tensors")) return;
  for (const Json& t : j["tensors"]) {
    std::cout << "  " << std::left << std::setw(36) << t["name"].get<std::string>() << std::right
              << std::setw(8) << t["rows"].get<int>() << " x " << std::left << std::setw(7)
              << t["cols"].get<int>() << " " << std::setw(10) << t["format"].get<std::string>()
              << " " << std::setw(7) << t["scale"].get<std::string>() << std::setw(9)
              << t["activations"].get<std::string>() << std::setw(5)
              << t["codec"].get<std::string>() << std::right << std::setw(12)
              << t["bytes"].get<uint64_t>() << "\n";
  }
}

void run_inspect(const InspectOptions& o) {
  const Env env = open_env(o.model);
  const Model model = open_model(o.model, env.get());
  if (!o.model.router.empty()) {  // reports an invalid one here too
    ModelOptions smallest = o.model;
    smallest.context = 1;
    open_session(smallest, model.get());
  }
  Json j = info_json(model.get());
  j["layers"] = Json::array();
  for (int32_t i = 0; i < j["n_layers"].get<int32_t>(); ++i)
    j["layers"].push_back(layer_json(model.get(), i));
  j["memory"] = memory_lines(o.model, model.get());
  if (!o.model.memory.empty()) j["plan"] = plan_json(o.model, model.get(), j["layers"]);
  if (o.tensors) {
    j["tensors"] = Json::array();
    for (size_t i = 0; i < moe_model_tensor_count(model.get()); ++i) {
      j["tensors"].push_back(tensor_json(model.get(), i));
    }
  }
  if (o.verify) {
    moe_error error;
    exit_on_interrupts();  // the call cannot be cancelled
    check(moe_model_verify(model.get(), &error), error);
    j["verified"] = true;
  }
  if (o.model.json) {
    print_json(j);
    return;
  }
  print_text(j, sampling_line(model.get()));
  if (o.verify) std::cout << "  every checksum, code and scale is valid\n";
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto o = std::make_shared<InspectOptions>();
  CLI::App* c = app.add_subcommand("inspect", "Show the contents of a model file");
  example(*c, "moe inspect model.moe --memory 2G");
  o->model.planning = true;
  add_model_options(*c, o->model, {.lazy = false});
  c->add_flag("--tensors", o->tensors, "List every stored matrix");
  c->add_flag("--verify", o->verify, "Read and check every weight");
  add_session_options(*c, o->model);
  c->callback([o] { run_inspect(*o); });
}

}  // namespace moe_cli
