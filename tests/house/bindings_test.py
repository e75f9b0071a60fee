#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the Rust crate and the Go and Node packages with include/moe_c.h, without a compiler: declarations
agree, and everything in the header is used or listed below with a reason. Usage: bindings_test.py ROOT

The Python package has its own test (bindings/python/tests/test_header.py). cgo and the C++ code for Node
include the header; for them this test reports new functions and fields that are not used, and for Node
names that differ between index.js, index.d.ts and the C++ code."""

import pathlib
import re
import sys
import unittest

import public_header

ROOT = pathlib.Path(sys.argv[1])
RUST, GO, NODE = (ROOT / "bindings" / name for name in ("rust", "go", "node"))

# The functions, structs and fields that a binding does not use, with the reason.
CONVERTER = "libmoe_convert is a library of its own; `moe convert` does the same"
MEMORY = "memory of the language cannot be lent to the library for its whole life"
BOTH = {
    **dict.fromkeys(("moe_convert", "moe_convert_params", "moe_synthetic_shapes", "moe_synthetic_save",
                     "moe_synthetic_create", "moe_synthetic_free", "moe_synthetic_params"), CONVERTER),
    "moe_allocator": MEMORY,
    "moe_env_params.allocator": MEMORY,
}
NOT_YET = "the Node package opens, tokenizes, generates, chats, scores, embeds and runs layers"
NODE_LACKS = {
    **dict.fromkeys(("moe_session_translate", "moe_session_read_source", "moe_translate_params", "moe_translation",
                     "moe_translate_result", "moe_session_params.max_beam", "MOE_BEAM_STOP_COUNT",
                     "MOE_BEAM_STOP_BOUND", "MOE_BEAM_STOP_STEP"), f"translation: {NOT_YET}"),
    **dict.fromkeys(("moe_session_set_router", "moe_session_get_routing", "moe_session_watch_routing",
                     "moe_routing_stats", "moe_routing_choices", "moe_session_routers"), f"routing: {NOT_YET}"),
    **dict.fromkeys(("moe_session_save", "moe_session_load", "moe_session_fork", "moe_writer", "moe_reader",
                     "moe_replacement_open", "moe_replacement_begin", "moe_replacement_commit", "moe_replacement_free",
                     "moe_model_open_memory", "moe_model_open_reader"), f"saved sessions, other sources: {NOT_YET}"),
    **dict.fromkeys(("moe_model_get_layer_info", "moe_model_layer_info", "moe_model_tensor_count",
                     "moe_model_get_tensor_info", "moe_tensor_info", "moe_model_get_memory", "moe_memory_line",
                     "moe_model_get_memory_plan", "moe_memory_plan", "moe_get_memory_info", "moe_memory_info",
                     "moe_model_suggest_memory", "moe_model_verify", "moe_session_get_memory_stats",
                     "moe_expert_stats", "moe_memory_stats"), f"`moe inspect` shows it: {NOT_YET}"),
    **dict.fromkeys(("moe_env_get_info", "moe_env_info", "moe_env_isas", "moe_weight_formats", "moe_env_params.log",
                     "moe_env_params.log_user", "MOE_LOG_ERROR", "MOE_LOG_WARNING", "MOE_LOG_INFO",
                     "MOE_LOG_DEBUG"), f"no environment of its own: {NOT_YET}"),
    **dict.fromkeys(("moe_session_sample", "moe_session_perplexity", "moe_perplexity",
                     "moe_generate_params.logits_callback", "moe_generate_params.logits_user",
                     "moe_encode_params.hidden", "moe_encode_params.outputs", "moe_encode_params.rows",
                     "moe_encode_params.n_rows"), f"evaluation in steps: {NOT_YET}"),
    **dict.fromkeys(("moe_model_chat_template", "moe_chat_template_names", "moe_chat_set_session",
                     "moe_chat_set_system", "moe_chat_tokens"), f"chat: {NOT_YET}"),
    **dict.fromkeys(("moe_model_get_prompt", "moe_model_info.n_prompts", "moe_model_info.default_prompt",
                     "MOE_NORMALIZE_ON"), f"prompts and lengths of vectors: {NOT_YET}"),
    "moe_sessions_step": "moe_sessions_eval with one token for each session does the same",
}
NOT_WRAPPED = {"Rust": {**BOTH}, "Go": {**BOTH}, "Node": {**BOTH, **NODE_LACKS}}
# Fields that no wrapper shows: the version of a struct, and reserved space.
UNSEEN = {"struct_size", "reserved", "reserved2"}

RUST_TYPES = {"int32_t": "i32", "uint32_t": "u32", "uint64_t": "u64", "size_t": "usize", "float": "f32",
              "double": "f64", "int": "c_int", "bool": "bool", "char": "c_char", "void": "c_void"}


def rust_type(c):
    """The Rust form of a C type."""
    pointer = re.fullmatch(r"(.*)\(\*\)\((.*)\)", c)
    if pointer:
        return rust_callback(public_header.Function(pointer[1], [p for p in pointer[2].split(", ") if p]))
    array = re.fullmatch(r"(.*)\[(\w+)\]", c)
    if array:
        return f"[{rust_type(array[1])}; {array[2]}]"
    words = re.findall(r"\w+|\*", c.replace("struct ", ""))
    const = words[0] == "const"
    result = words[const]
    result = RUST_TYPES.get(result, result)
    for word in words[const + 1:]:
        if word == "*":
            result, const = ("*const " if const else "*mut ") + result, False
        else:
            const = True  # applies to the pointer written so far
    return result


def rust_callback(function):
    return f"Option<unsafe extern \"C\" fn({', '.join(map(rust_type, function.parameters))}){rust_result(function)}>"


def rust_result(function):
    return "" if function.result == "void" else f" -> {rust_type(function.result)}"


def compact(text):
    """Rust code without parameter names and formatting."""
    text = re.sub(r"\b[a-z_]\w*: ", "", re.sub(r"\s+", " ", text))
    return re.sub(r",? ?\)", ")", text.replace("( ", "(")).strip()


def rust_declarations(text):
    """The functions, structs, callbacks and constants that sys.rs declares, each as {name: text}."""
    text = re.sub(r"//[^\n]*", "", text)
    extern = "".join(re.findall(r'^extern "C" \{(.*?)^\}', text, re.S | re.M))
    functions = {name: compact(f"({arguments}){result or ''}") for name, arguments, result in
                 re.findall(r"pub fn (\w+)\((.*?)\)( -> [^;]+)?;", extern, re.S)}
    structs = {name: [(field, compact(kind)) for field, kind in re.findall(r"pub (\w+): (.*?),\n", body + "\n", re.S)]
               for name, body in re.findall(r"#\[repr\(C\)\]\s*(?:#\[derive[^\n]*\s*)?pub struct (\w+) \{(.*?)^\}",
                                            text, re.S | re.M)}
    aliases = {name: compact(kind) for name, kind in re.findall(r"^pub type (\w+) =\s+(.*?);", text, re.S | re.M)}
    constants = {name: (kind, int(value)) for name, kind, value in
                 re.findall(r"pub const (\w+): (\w+) = (\d+);", text)}
    return functions, structs, aliases, constants


def differences(what, expected, found):
    """One line for each name whose declarations differ."""
    faults = []
    for name in sorted(set(expected) | set(found)):
        if name not in found:
            faults.append(f"{what} {name}: not declared; moe_c.h says {expected[name]}")
        elif name not in expected:
            faults.append(f"{what} {name}: not in moe_c.h")
        elif expected[name] != found[name]:
            faults.append(f"{what} {name}: expected {expected[name]}, found {found[name]}")
    return faults


def rust_expected(header):
    skipped = NOT_WRAPPED["Rust"]
    functions = {name: f"({', '.join(map(rust_type, f.parameters))}){rust_result(f)}"
                 for name, f in header.functions.items() if name not in skipped}
    structs = {name: [(field, rust_type(kind)) for field, kind in fields]
               for name, fields in header.structs.items() if name not in BOTH or name == "moe_allocator"}
    aliases = {name: rust_callback(f) for name, f in header.callbacks.items()}
    aliases.update((name, "c_int") for name in header.enums if name)
    constants = {c: (enum or "u32", value) for enum, members in header.enums.items() for c, value in members.items()}
    constants.update((name, ("usize" if name.endswith("BYTES") else "u32", value))
                     for name, value in header.macros.items())
    return functions, structs, aliases, constants


def rust_faults(header, text):
    kinds = ("function", "struct", "type", "constant")
    expected, found = rust_expected(header), rust_declarations(text)
    opaque = {name: body for name, body in found[1].items() if name in header.opaque}
    for name in opaque:
        del found[1][name]
    faults = [f"struct {name}: not declared" for name in sorted(header.opaque - set(opaque))]
    for kind, e, f in zip(kinds, expected, found):
        faults += differences(kind, e, f)
    return faults


def use_faults(header, language, files, function, field, constant, struct=lambda n: rf"(C\.|sys::|!\(){n}\b"):
    """The names of moe_c.h that the wrapper, a list of texts, does not use and that are not listed above.
    A field must be used in a file that names its struct."""
    skipped, seen = NOT_WRAPPED[language], set()

    def missing(name, pattern, struct=""):
        used = any(re.search(pattern, text) for text in files if re.search(struct, text))
        if name in skipped:
            seen.add(name)
            return [f"{name}: named as not wrapped, but used"] if used else []
        return [] if used else [f"{name}: neither wrapped nor named with a reason"]

    faults = []
    for name in header.functions:
        faults += missing(name, function(name))
    for name, fields in header.structs.items():
        if name in skipped:
            seen.add(name)
            continue
        for f, _ in fields:
            faults += [] if f in UNSEEN else missing(f"{name}.{f}", field(f), struct(name))
    for members in header.enums.values():
        for name in members:
            faults += missing(name, constant(name))
    faults += [f"{name}: named as not wrapped, but not in moe_c.h" for name in sorted(set(skipped) - seen)]
    return faults


def rust_use_faults(header, files):
    return use_faults(header, "Rust", files, lambda n: rf"\bsys::{n}\(", lambda f: rf"(\.{f}\b|\b{f}:)",
                      lambda n: rf"\bsys::{n}\b")


def go_use_faults(header, files):
    return use_faults(header, "Go", files, lambda n: rf"\bC\.{n}\(", lambda f: rf"(\.{f}\b|\b{f}:)",
                      lambda n: rf"\bC\.{n}\b")


def node_use_faults(header, files):
    return use_faults(header, "Node", files, lambda n: rf"\b{n}\b", lambda f: rf"(\.|->){f}\b",
                      lambda n: rf"\b{n}\b", lambda n: rf"\b{n}\b")


def node_declaration_faults(cpp, js, types):
    """Functions that only index.js or only the C++ code names, and options that only index.d.ts or only the C++ code names."""
    declared = set(re.findall(r'declare<\w+>\(js, exports, "(\w+)"\)', cpp))
    called = set(re.findall(r"\bnative\.(\w+)", js))
    read = set(re.findall(r'\b(?:get|int32|size|number|flag|text|array|set)\((?:[\w\[\]]+, )*"(\w+)"', cpp))
    types = re.sub(r"/\*.*?\*/", "", types, flags=re.S)
    typed = set(re.findall(r"^ *(?:readonly )?(\w+)\??: ", types, re.M))
    typed |= {name for line in re.findall(r"\{([^{}]*)\}", types) for name in re.findall(r"(\w+)\??: ", line)}
    return ([f"native.{n}: not declared in moe.cpp" for n in sorted(called - declared)] +
            [f"{n}: declared in moe.cpp, but not called" for n in sorted(declared - called)] +
            [f"{n}: in moe.cpp, but not in index.d.ts" for n in sorted(read - typed)] +
            [f"{n}: in index.d.ts, but not in moe.cpp or index.js" for n in sorted(typed - read)
             if not re.search(rf"\b{n}\b", js)])


def code_of(paths):
    return [re.sub(r"^\s*//[^\n]*", "", p.read_text(encoding="utf-8"), flags=re.M) for p in paths]


def rust_wrapper():
    return code_of(p for p in sorted(RUST.glob("src/*.rs")) if p.name != "sys.rs")


def go_wrapper():
    return code_of(p for p in sorted(GO.glob("*.go")) if not p.name.endswith("_test.go"))


def node_wrapper():
    return code_of([*sorted(NODE.glob("src/*")), NODE / "index.d.ts"])


def node_texts():
    return "".join(code_of(sorted(NODE.glob("src/*")))), *code_of([NODE / "index.js", NODE / "index.d.ts"])


def changed(text, old, new):
    assert old in text, old
    return text.replace(old, new, 1)


class Bindings(unittest.TestCase):
    maxDiff = None
    path = ROOT / "include/moe_c.h"

    @classmethod
    def setUpClass(cls):
        cls.header = public_header.read(cls.path)
        cls.sys = (RUST / "src/sys.rs").read_text(encoding="utf-8")

    def assert_none(self, faults):
        self.assertEqual(faults, [], "\n" + "\n".join(faults))

    def test_rust_declares_the_header(self):
        self.assert_none(rust_faults(self.header, self.sys))

    def test_rust_uses_everything(self):
        self.assert_none(rust_use_faults(self.header, rust_wrapper()))

    def test_go_uses_everything(self):
        self.assert_none(go_use_faults(self.header, go_wrapper()))

    def test_node_uses_everything(self):
        self.assert_none(node_use_faults(self.header, node_wrapper()))

    def test_node_declares_what_it_calls(self):
        cpp, js, types = node_texts()
        self.assert_none(node_declaration_faults(cpp, js, types))
        for texts, fault in (((changed(cpp, 'exports, "score"', 'exports, "rate"'), js, types), "native.score"),
                             ((changed(cpp, '"maxRows"', '"rows"'), js, types), "rows"),
                             ((cpp, js, changed(types, "maxDraft?:", "max_draft?:")), "maxDraft")):
            faults = node_declaration_faults(*texts)
            self.assertEqual((len(faults), faults[0].split(":")[0]), (2, fault), faults)

    def test_programs_of_the_readmes(self):
        for folder, program in ((RUST, "examples/generate.rs"), (GO, "examples/generate/main.go"),
                                (NODE, "examples/generate.js")):
            _, _, text = (folder / program).read_text(encoding="utf-8").partition("\n")  # without the licence
            self.assertIn(text.lstrip("\n"), (folder / "README.md").read_text(encoding="utf-8"), program)

    def header_with(self, old, new):
        class Changed:
            @staticmethod
            def read_text(encoding):
                return changed(self.path.read_text(encoding=encoding), old, new)
        return public_header.read(Changed)

    def more(self, check, header, text):
        """The faults that a changed header or text adds."""
        known = check(self.header, self.sys if check is rust_faults else text)
        return [fault for fault in check(header, text) if fault not in known]

    def test_a_stale_declaration_is_found(self):
        """The checks fail for a changed header and for wrong Rust declarations."""
        for old, new, fault in (
                ("MOE_API uint32_t moe_version(void);", "MOE_API uint32_t moe_version(void);\nMOE_API int32_t moe_new(void);",
                 "function moe_new: not declared"),
                ("MOE_API int32_t moe_session_position(const moe_session* session);", "",
                 "function moe_session_position: not in moe_c.h"),
                ("moe_kv_type kv;", "moe_kv_type kv;\n  float scale;", "struct moe_session_params"),
                ("MOE_KV_INT8 = 2", "MOE_KV_INT8 = 3", "constant MOE_KV_INT8"),
                ("typedef bool (*moe_piece_fn)(void* user,", "typedef bool (*moe_piece_fn)(", "type moe_piece_fn"),
                ("int32_t top_k; ", "uint32_t top_k; ", "struct moe_sampling"),
                ("const int32_t* prompt,\n", "int32_t* prompt,\n", "function moe_session_generate")):
            faults = self.more(rust_faults, self.header_with(old, new), self.sys)
            self.assertTrue(faults and faults[0].startswith(fault), (new, faults))
        for old, new in (("pub temperature: f32,\n    pub top_k: i32,", "pub top_k: i32,\n    pub temperature: f32,"),
                         ("pub seed: u64", "pub seed: i64"), ("pub const MOE_FINISH_EOS: moe_finish = 2", "pub const MOE_FINISH_EOS: moe_finish = 3")):
            self.assertEqual(len(self.more(rust_faults, self.header, changed(self.sys, old, new))), 1, new)

    def test_something_unused_is_found(self):
        grown = self.header_with("moe_kv_type kv;", "moe_kv_type kv;\n  float unheard_of;")
        grown.functions["moe_new"] = public_header.Function("void", [])
        grown.enums["moe_finish"]["MOE_FINISH_NEW"] = 99
        for check, wrapper in ((rust_use_faults, rust_wrapper()), (go_use_faults, go_wrapper()),
                               (node_use_faults, node_wrapper())):
            self.assertEqual([f.split(":")[0] for f in self.more(check, grown, wrapper)],
                             ["moe_new", "moe_session_params.unheard_of", "MOE_FINISH_NEW"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
