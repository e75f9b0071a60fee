#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Everything in include/moe_c.h is used by each binding or listed below with a reason. Usage: bindings_test.py ROOT

What the bindings repeat of the header is generated (bindings/generate.py, generator_test.py). What they make of
it is written by hand: this test reports new functions, fields and enums that a binding does not use, and for
Node names that differ between index.js, index.d.ts and the C++ code."""

import pathlib
import re
import sys
import textwrap
import unittest

ROOT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "bindings"))
import generate  # noqa: E402
from generator import enums, header, model, text  # noqa: E402

PYTHON, RUST, GO, NODE = (ROOT / "bindings" / name for name in ("python/src/moe", "rust", "go", "node"))

# The functions, structs and fields that a binding does not use, with the reason.
CONVERTER = "libmoe_convert is a library of its own; `moe convert` does the same"
MEMORY = "memory of the language cannot be lent to the library for its whole life"
STEPS = "moe_session_generate and moe_chat_reply do the same; steps are for programs that evaluate several sessions together"
STEP_FUNCTIONS = dict.fromkeys(("moe_generation_create", "moe_generation_next", "moe_generation_advance", "moe_generation_stop",
                                "moe_generation_free", "moe_chat_begin_reply", "moe_session_expect_drafts"), STEPS)
BOTH = {
    **STEP_FUNCTIONS,
    **dict.fromkeys(("moe_convert", "moe_convert_params", "moe_synthetic_shape_name", "moe_synthetic_save",
                     "moe_synthetic_create", "moe_synthetic_free", "moe_synthetic_params"), CONVERTER),
    "moe_allocator": MEMORY,
    "moe_env_params.allocator": MEMORY,
    **dict.fromkeys(("moe_env_params.clock", "moe_env_params.clock_user"),
                    "where the language runs there is an operating system, which has a clock"),
}
PAIRS = dict.fromkeys(("moe_tokenizer_encode_pair", "moe_token_pair", "moe_encode_params.second"),
                      "pairs of texts: of the bindings, Python has them")
NOT_YET = "the Node package opens, tokenizes, generates, chats, scores, embeds and runs layers"
NODE_LACKS = {
    **dict.fromkeys(("moe_session_translate", "moe_session_read_source", "moe_translate_params", "moe_translation",
                     "moe_session_get_translation", "moe_session_params.max_beam", "moe_beam_stop",
                     "moe_beam_score"),
                    f"translation: {NOT_YET}"),
    **dict.fromkeys(("moe_session_set_router", "moe_session_get_routing", "moe_session_watch_routing",
                     "moe_routing_stats", "moe_routing_choices", "moe_router_kind", "moe_router_format",
                     "moe_model_get_router"), f"routing: {NOT_YET}"),
    **dict.fromkeys(("moe_session_save", "moe_session_load", "moe_session_fork", "moe_session_copy", "moe_writer", "moe_reader",
                     "moe_replacement_open", "moe_replacement_begin", "moe_replacement_commit", "moe_replacement_free",
                     "moe_model_open_memory", "moe_model_open_reader"), f"saved sessions, other sources: {NOT_YET}"),
    **dict.fromkeys(("moe_model_get_layer_info", "moe_model_layer_info", "moe_model_tensor_count",
                     "moe_model_get_tensor_info", "moe_tensor_info", "moe_model_get_memory", "moe_memory_line",
                     "moe_model_get_memory_plan", "moe_memory_plan", "moe_get_memory_info", "moe_memory_info",
                     "moe_model_suggest_memory", "moe_model_verify", "moe_session_get_memory_stats",
                     "moe_expert_stats", "moe_memory_stats"), f"`moe inspect` shows it: {NOT_YET}"),
    **dict.fromkeys(("moe_env_get_info", "moe_env_info", "moe_isa_name", "moe_weight_format_name", "moe_env_params.log",
                     "moe_env_params.log_user", "moe_log_level"), f"no environment of its own: {NOT_YET}"),
    **dict.fromkeys(("moe_session_sample", "moe_session_perplexity", "moe_perplexity",
                     "moe_generate_params.logits_user",
                     "moe_encode_params.hidden", "moe_encode_params.outputs", "moe_encode_params.rows",
                     "moe_encode_params.n_rows"), f"evaluation in steps: {NOT_YET}"),
    **dict.fromkeys(("moe_model_chat_template", "moe_chat_template_name", "moe_chat_set_session",
                     "moe_chat_set_system", "moe_chat_tokens"), f"chat: {NOT_YET}"),
    **dict.fromkeys(("moe_grammar_create", "moe_grammar_free", "moe_grammar_kind", "moe_generate_params.grammar"),
                    f"structured output: {NOT_YET}"),
    **dict.fromkeys(("moe_model_get_prompt", "moe_model_info.n_prompts", "moe_model_info.default_prompt"),
                    f"prompts of vectors: {NOT_YET}"),
}
PYTHON_LACKS = {
    **STEP_FUNCTIONS,
    "moe_status_name": "MoeError.name has it of the enum",
    "moe_synthetic_create": "save_synthetic() makes the same file",
    "moe_synthetic_free": "frees what moe_synthetic_create made, and only that",
}
ROUTERS = "routers are texts, read and written by moe_router_parse and moe_router_format"
ROUTER_FIELDS = dict.fromkeys((f"moe_router.{field}" for field in
                               ("min_k", "max_k", "n_groups", "top_groups", "cosine_eps", "jitter",
                                "min_capacity", "resident")), ROUTERS)
NOT_WRAPPED = {"Python": PYTHON_LACKS, "Rust": {**BOTH, **ROUTER_FIELDS, **PAIRS}, "Go": {**BOTH, **ROUTER_FIELDS, **PAIRS},
               "Node": {**BOTH, **NODE_LACKS, **PAIRS, "moe_router": ROUTERS}}
# Fields that no wrapper shows: the version of a struct, and reserved space.
UNSEEN = {"struct_size", "reserved", "reserved2"}
# How a language's code names the functions, structs and constants of C.
MARKS = {"Python": r"(?:lib|library|library\(\))\.", "Rust": r"\bsys::", "Go": r"\bC\.", "Node": r"\b"}
FIELDS = {"Rust": r"(\.{0}\b|\b{0}:)", "Go": r"(\.{0}\b|\b{0}:)", "Node": r"(\.|->){0}\b"}


def enum_pattern(language, e):
    """How the code that is written by hand uses an enum: by the name in the generated file, or by a constant."""
    kind = text.camel(e.name.split("_")[1:], enums.GO_WORDS if language == "Go" else text.ACRONYMS)
    constants = "|".join(c.name for c in e.constants)
    return rf"\bk{kind}Names\b|\b({constants})\b" if language == "Node" else rf"\b{kind}\b"


def uses(declared, language):
    """The parts of the header that a binding shall use: (name, pattern of a use, pattern that a file with the use contains)."""
    mark = MARKS[language]
    yield from ((f, rf"{mark}{f}\b", "") for f in declared.functions)
    if language == "Python":  # its tests compare the rest
        return
    skipped = NOT_WRAPPED[language]
    for struct in declared.structs.values():
        if struct.name in skipped:
            yield struct.name, r"(?!)", ""
            continue
        for field in (f.name for f in struct.fields or ()):
            if field not in UNSEEN:
                yield f"{struct.name}.{field}", FIELDS[language].format(field), rf"(C\.|sys::|!\(){struct.name}\b"
    yield from ((e.name, enum_pattern(language, e), "") for e in declared.named_enums)
    yield from ((c.name, rf"{mark}{c.name}\b", "") for c in declared.loose_constants if c not in declared.macros)


def use_faults(declared, language, files):
    """The names of moe_c.h that the wrapper, a list of texts, does not use and that are not listed above.
    A field must be used in a file that names its struct."""
    skipped, seen, faults = NOT_WRAPPED[language], set(), []
    for name, pattern, struct in uses(declared, language):
        used = any(re.search(pattern, code) for code in files if language == "Node" or re.search(struct, code))
        if name in skipped:
            seen.add(name)
            faults += [f"{name}: named as not wrapped, but used"] if used else []
        elif not used:
            faults.append(f"{name}: neither wrapped nor named with a reason")
    return faults + [f"{name}: named as not wrapped, but not in moe_c.h" for name in sorted(set(skipped) - seen)]


OF_TOOLS = {"type", "description", "parameters", "arguments"}  # members of tools and calls, which pass as JSON


def node_declaration_faults(cpp, js, types):
    """Functions that only index.js or only the C++ code names, and options and parameters that only index.d.ts or only the C++ code names."""
    declared = set(re.findall(r'declare<\w+>\(js, exports, "(\w+)"\)', cpp))
    called = set(re.findall(r"\bnative\.(\w+)", js))
    read = set(re.findall(r'\b(?:get|int32|size|number|count|flag|named|text|array|set)\((?:[\w\[\]]+, )*"(\w+)"', cpp))
    types = re.sub(r"/\*.*?\*/", "", types, flags=re.S)
    typed = set(re.findall(r"^ *(?:readonly )?(\w+)\??: ", types, re.M))
    typed |= {name for found in re.findall(r"\{([^{}]*)\}|^ +\w+\(([^()]*)\)", types, re.M)
              for line in found for name in re.findall(r"(\w+)\??: ", line)}
    return ([f"native.{n}: not declared in moe.cpp" for n in sorted(called - declared)] +
            [f"{n}: declared in moe.cpp, but not called" for n in sorted(declared - called)] +
            [f"{n}: in moe.cpp, but not in index.d.ts" for n in sorted(read - typed)] +
            [f"{n}: in index.d.ts, but not in moe.cpp or index.js" for n in sorted(typed - read)
             if n not in OF_TOOLS and not re.search(rf"\b{n}\b", js)])


def code_of(paths):
    return [re.sub(r"^\s*//[^\n]*", "", p.read_text(encoding="utf-8"), flags=re.M) for p in paths]


def by_hand(paths):
    return [p for p in sorted(paths) if str(p.relative_to(ROOT / "bindings")) not in generate.FILES]


WRAPPERS = {
    "Python": code_of(by_hand(PYTHON.glob("**/*.py"))),
    "Rust": code_of(by_hand(RUST.glob("src/*.rs"))),
    "Go": code_of(p for p in by_hand([*GO.glob("*.go"), *GO.glob("serve/*.go")]) if not p.name.endswith("_test.go")),
    "Node": code_of(by_hand([*NODE.glob("src/*"), NODE / "index.d.ts"])),
}


def node_texts():
    return "".join(code_of(sorted(NODE.glob("src/*")))), *code_of([NODE / "index.js", NODE / "index.d.ts"])


def changed(text, old, new):
    assert old in text, old
    return text.replace(old, new, 1)


class Bindings(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.header = header.read(generate.HEADER)

    def assert_none(self, faults):
        self.assertEqual(faults, [], "\n" + "\n".join(faults))

    def test_everything_is_used(self):
        for language, wrapper in WRAPPERS.items():
            with self.subTest(language):
                self.assert_none(use_faults(self.header, language, wrapper))

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
            text = re.sub(r"^// SPDX.*\n+", "", (folder / program).read_text(encoding="utf-8"))
            self.assertIn(text, (folder / "README.md").read_text(encoding="utf-8"), program)

    def test_examples_of_the_readmes(self):
        tools = r"Tool\b|ToolCall\b|GenerateOptions\{|Piece\b"
        for folder, program, names, package in (
                (GO, "serve/serve_test.go", r"New\(|Options\{", "serve."), (RUST, "tests/service.rs", "", ""),
                (NODE, "test/service.test.js", "", ""), (GO, "tools_test.go", tools, "moe."),
                (RUST, "tests/tools.rs", "", ""), (NODE, "test/tools.test.js", "", "")):
            text = (folder / program).read_text(encoding="utf-8")
            text = re.search(r"// The readme has this\.\n(.*?)\n\s*// The readme has no more\.\n", text, re.S)[1]
            text = textwrap.dedent(text)
            if package:  # whose own test does not name it
                text = re.sub(rf"(?<![\w.])({names})", rf"{package}\1", text)
            self.assertIn(text, (folder / "README.md").read_text(encoding="utf-8"), program)

    def test_something_unused_is_found(self):
        grown = header.read(generate.HEADER)
        number = model.Named("int32_t")
        params = grown.structs["moe_session_params"]
        grown.functions["moe_new"] = model.Function("moe_new", model.VOID, ())
        grown.structs["moe_session_params"] = model.Struct(params.name, (*params.fields, model.Value("unheard_of", number)))
        grown.enums += [model.Enum("moe_unheard", (model.Value("MOE_UNHEARD_A", 1),)),
                        model.Enum(None, (model.Value("MOE_UNHEARD", 1),))]
        for language, wrapper in WRAPPERS.items():
            faults = [f.split(":")[0] for f in use_faults(grown, language, wrapper)]
            self.assertEqual(faults, ["moe_new", "moe_session_params.unheard_of", "moe_unheard", "MOE_UNHEARD"]
                             [:1 if language == "Python" else None], language)

    def test_what_is_listed_and_used_is_found(self):
        for language, code in (("Rust", "sys::moe_convert(x)"), ("Go", "C.moe_convert(x)"), ("Node", "moe_perplexity p; "
                               "moe_session_translate(x)"), ("Python", "lib.moe_status_name(x)")):
            faults = use_faults(self.header, language, [*WRAPPERS[language], code])
            self.assertEqual(len(faults), 1, (language, faults))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
