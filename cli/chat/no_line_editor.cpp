// SPDX-License-Identifier: MIT
// The command without libedit.

#include "cli/chat/line_editor.h"

namespace moe_cli {

std::unique_ptr<LineEditor> LineEditor::open(bool) { return nullptr; }

}  // namespace moe_cli
