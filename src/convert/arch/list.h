#pragma once
// Every architecture that can be imported: one line each.

#include "src/convert/importer.h"

namespace moe {

Imported import_research(const JsonNode& config, const Checkpoint& checkpoint);  // research.cpp

inline constexpr Importer kImporters[] = {
    {"moe_research", import_research},
};

}  // namespace moe
