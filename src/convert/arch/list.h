#pragma once
// Every architecture that can be imported: one line each.

#include "src/convert/importer.h"

namespace moe {

Imported import_research(const JsonNode& config, const Checkpoint& checkpoint);   // research.cpp
Imported import_llama(const JsonNode& config, const Checkpoint& checkpoint);      // llama.cpp
Imported import_mistral(const JsonNode& config, const Checkpoint& checkpoint);    // llama.cpp
Imported import_qwen2(const JsonNode& config, const Checkpoint& checkpoint);      // qwen.cpp
Imported import_qwen3(const JsonNode& config, const Checkpoint& checkpoint);      // qwen.cpp
Imported import_qwen2_moe(const JsonNode& config, const Checkpoint& checkpoint);  // qwen.cpp
Imported import_qwen3_moe(const JsonNode& config, const Checkpoint& checkpoint);  // qwen.cpp
Imported import_granite(const JsonNode& config, const Checkpoint& checkpoint);    // granite.cpp
Imported import_granitemoe(const JsonNode& config, const Checkpoint& checkpoint);
Imported import_granitemoeshared(const JsonNode& config, const Checkpoint& checkpoint);
Imported import_olmoe(const JsonNode& config, const Checkpoint& checkpoint);       // olmoe.cpp
Imported import_olmo2(const JsonNode& config, const Checkpoint& checkpoint);       // olmo2.cpp
Imported import_mixtral(const JsonNode& config, const Checkpoint& checkpoint);     // mixtral.cpp
Imported import_phimoe(const JsonNode& config, const Checkpoint& checkpoint);      // mixtral.cpp
Imported import_gpt_oss(const JsonNode& config, const Checkpoint& checkpoint);     // gpt_oss.cpp
Imported import_bitnet(const JsonNode& config, const Checkpoint& checkpoint);      // bitnet.cpp
Imported import_maple(const JsonNode& config, const Checkpoint& checkpoint);       // maple.cpp
Imported import_torchscale(const JsonNode& config, const Checkpoint& checkpoint);  // torchscale.cpp
Imported import_deepseek_v2(const JsonNode& config, const Checkpoint& checkpoint);  // deepseek.cpp
Imported import_xmoe_megatron(const JsonNode& config, const Checkpoint& checkpoint);  // xmoe.cpp
Imported import_xmoe_fairseq(const JsonNode& config, const Checkpoint& checkpoint);

inline constexpr Importer kImporters[] = {
    {"moe_research", import_research},
    {"llama", import_llama},
    {"mistral", import_mistral},
    {"qwen2", import_qwen2},
    {"qwen3", import_qwen3},
    {"qwen2_moe", import_qwen2_moe},
    {"qwen3_moe", import_qwen3_moe},
    {"granite", import_granite},
    {"granitemoe", import_granitemoe},
    {"granitemoeshared", import_granitemoeshared},
    {"olmoe", import_olmoe},
    {"olmo2", import_olmo2},
    {"mixtral", import_mixtral},
    {"phimoe", import_phimoe},
    {"gpt_oss", import_gpt_oss},
    {"bitnet", import_bitnet},
    {"maple", import_maple, "MapleForCausalLM"},
    {"torchscale", import_torchscale},
    {"xmoe_megatron", import_xmoe_megatron},
    {"xmoe_fairseq", import_xmoe_fairseq},
    {"deepseek_v2", import_deepseek_v2},
};

}  // namespace moe
