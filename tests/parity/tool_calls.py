#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares conversations with tools with `transformers`: what a template makes of tools, calls and results, and whether
the calls of a reply that it has written are found again, however the reply is cut.

    tool_calls.py --model SCRIPT.moe FOLDER      templates (*.jinja) of any models; --build build/release
    tool_calls.py --model SCRIPT.moe --write FOLDER      also writes tests/data/chat/tool_calls.json

The model is tests/data/chat/script, converted; its replies do not matter. llama.cpp's sources have many models'
templates in models/templates.
"""

import argparse
import ctypes as c
import datetime
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from libmoe import MoeError, _Error, _SessionParams
from transformers.utils.chat_template_utils import _compile_jinja_template

ROOT = pathlib.Path(__file__).resolve().parents[2]
DAY = "2025-03-09"
N_CASES = 200

TOOLS = [{"type": "function", "function": {"name": name, "description": text, "parameters": {
    "type": "object", "properties": properties, "required": list(properties)[:1]}}} for name, text, properties in (
    ("get_weather", "The weather of a place", {
        "city": {"type": "string", "description": "Its name"}, "days": {"type": "integer", "description": "How many"},
        "exact": {"type": "boolean", "description": "Or not"}}),
    ("note", "Writes \"notes\" <b>", {
        "text": {"type": "string", "description": "Text"}, "weight": {"type": "number", "description": "0..1"}}),
    ("store", "Stores a thing", {
        "thing": {"type": "object", "description": "Anything", "properties": {}},
        "tags": {"type": "array", "description": "Words", "items": {"type": "string"}}}),
    ("now", "The time", {}))]

WORDS = ["Paris", "Zürich", "東京", "🦊 fox", "5", "-1.5e3", "true", "null", "None", "[1, 2]", "{\"a\": 1}", "",
         "say \"hi\"", "back\\slash", "it's", "two\nlines", "\nfirst\n", " spaces ", "tab\tand \u00a0", "a, b; c: d", "<b>&amp;</b>",
         "</tool_call>", "</parameter> and </function>", "```json", "}", "{{ x }}", "100%", "\u2028"]
# The marks that are special tokens of models with these formats.
SPECIALS = {
    "gpt-oss": ["<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|call|>", "<|constrain|>", "<|return|>"],
    "deepseek": [f"<｜tool▁{m}｜>" for m in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")],
    "kimi-k2": [f"<|tool_{m}|>" for m in ("calls_section_begin", "calls_section_end", "call_begin", "call_end",
                                          "call_argument_begin")],
    "mistral": ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"], "granite": ["<|tool_call|>"], "llama3": ["<|python_tag|>"],
    "gemma4": ["<|tool_call>", "<tool_call|>", "<|\"|>"], "hermes": ["<tool_call>", "</tool_call>"],
    "minimax-m2": ["<minimax:tool_call>", "</minimax:tool_call>"], "glm": ["<tool_call>", "</tool_call>", "<arg_key>"]}
ENDS = ["</assistant>", "<|role_end|>", "<SPECIAL_12>\n", "<end_of_sentence>", "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|>",
        "<|im_end|>\n", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "[e~[\n", "<｜end▁of▁sentence｜>", "<|call|>", "<turn|>\n", "<turn|>",
        "<|end_of_text|>\n", "<|END_OF_TURN_TOKEN|>", "</s>", "<|return|>", "<|tool_response>", "<|end|>", "\n"]


class Chats:
    """Conversations of libmoe, rendered with any template."""

    def __init__(self, build, model):
        self._moe, self._error = c.CDLL(f"{build}/lib/libmoe.so"), _Error()
        self._moe.moe_chat_tool_format.restype = c.c_char_p
        for name in ("moe_chat_free", "moe_chat_tool_format"):
            getattr(self._moe, name).argtypes = [c.c_void_p]
        env, self._model, self._session = c.c_void_p(), c.c_void_p(), c.c_void_p()
        self._check(self._moe.moe_env_create(None, c.byref(env), c.byref(self._error)))
        self._check(self._moe.moe_model_open(env, str(model).encode(), None, c.byref(self._model), c.byref(self._error)))
        params = _SessionParams(c.sizeof(_SessionParams), context=64)
        self._check(self._moe.moe_session_create(self._model, c.byref(params), c.byref(self._session), c.byref(self._error)))

    def _check(self, status):
        if status != 0:
            raise MoeError(self._error.text.decode(errors="replace"))

    def open(self, template):
        class Params(c.Structure):
            _fields_ = [("struct_size", c.c_uint32), ("thinking", c.c_int), ("template", c.c_char_p), ("system", c.c_char_p),
                        ("variables", c.c_void_p), ("n_variables", c.c_int32), ("reserved", c.c_int32), ("date", c.c_char_p)]
        chat, params = c.c_void_p(), Params(c.sizeof(Params), template=template.encode(), date=DAY.encode())
        self._check(self._moe.moe_chat_create(self._session, c.byref(params), c.byref(chat), c.byref(self._error)))
        return chat

    def format(self, template):
        chat = self.open(template)
        name = self._moe.moe_chat_tool_format(chat)
        self._moe.moe_chat_free(chat)
        return name.decode() if name else None

    def render(self, template, tools, messages, begin_reply):
        chat = self.open(template)
        try:
            if tools:
                text = json.dumps(tools).encode()
                self._check(self._moe.moe_chat_set_tools(chat, text, c.c_size_t(len(text)), c.byref(self._error)))
            for message in messages:
                text = json.dumps(message, ensure_ascii=False).encode()
                self._check(self._moe.moe_chat_add_message(chat, text, c.c_size_t(len(text)), c.byref(self._error)))
            out, n = c.create_string_buffer(1 << 20), c.c_size_t()
            self._check(self._moe.moe_chat_render(chat, c.c_bool(begin_reply), out, c.c_size_t(1 << 20), c.byref(n),
                                                  c.byref(self._error)))
            return out.raw[:n.value].decode()
        finally:
            self._moe.moe_chat_free(chat)


def value_of(rng, schema, depth=0):
    kind = schema.get("type", "object")
    if kind == "string":
        return "".join(rng.choice(WORDS) for _ in range(rng.choice([0, 1, 1, 2, 3])))
    if kind == "integer":
        return rng.choice([0, 1, -7, 12345678901234])
    if kind == "number":
        return rng.choice([0.5, -2.25, 1e-07, 3.0, 7])
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "array":
        return [value_of(rng, schema["items"]) for _ in range(rng.randrange(3))]
    if depth > 2:
        return None
    return {rng.choice(["a", "käse", "x y", "q"]) + str(i): rng.choice([
        lambda: value_of(rng, {"type": "string"}), lambda: value_of(rng, {"type": "number"}), lambda: None, lambda: rng.random() < 0.5,
        lambda: [value_of(rng, {}, depth + 1)], lambda: value_of(rng, {}, depth + 1)])() for i in range(rng.randrange(3))}


def conversation(rng, n_calls):
    """Messages, the one with calls last, and the results."""
    calls = []
    for _ in range(n_calls):
        f = rng.choice(TOOLS)["function"]
        arguments = {k: value_of(rng, s) for k, s in f["parameters"]["properties"].items() if rng.random() < 0.8}
        calls.append({"id": "".join(rng.choices("abcdef0123456789", k=9)), "type": "function",
                      "function": {"name": f["name"], "arguments": arguments}})
    content = rng.choice(["", "Let me look.", "Ich prüfe:\n\n1. \"Wetter\" {x}"])
    before = [{"role": "system", "content": "Be brief."}] if rng.random() < 0.5 else []
    before.append({"role": "user", "content": rng.choice(["Hello", "Wie ist es? 🦊"])})
    results = [{"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"],
                "content": rng.choice(["18 degrees", "{\"ok\": true}"])} for call in calls]
    return before, {"role": "assistant", "content": content, "tool_calls": calls}, results


class Reference:
    """A template as transformers runs it. Like templates' authors it tries what a template accepts: the arguments as a
    mapping or as text, and null or "" where there is no content."""

    def __init__(self, template):
        day = datetime.date.fromisoformat(DAY)
        self._compiled = _compile_jinja_template(template)
        self._compiled.environment.globals["strftime_now"] = day.strftime
        self.texts, self.empty = self._style()

    def _style(self):
        call = {"id": "aaaaaaaaa", "type": "function", "function": {"name": "probed", "arguments": {"argh": "valley"}}}
        for texts in (False, True):
            for empty in (False, True):
                self.texts, self.empty = texts, empty
                try:
                    text = self.render(TOOLS, [{"role": "user", "content": "question"}, {"role": "assistant", "content": "", "tool_calls": [call]},
                                            {"role": "tool", "content": "r", "tool_call_id": "aaaaaaaaa", "name": "probed"}], False)
                except Exception:  # a template may raise any exception
                    continue
                text = text[text.rfind("question"):]
                good = all(w in text for w in ("probed", "argh", "valley")) and "{'argh" not in text and "\\\"argh" not in text
                if good and (empty or "None" not in text):
                    return texts, empty
        raise ValueError("does not write calls")

    def _message(self, m):
        if "tool_calls" not in m:
            return m
        m = json.loads(json.dumps(m))
        if self.texts:
            for call in m["tool_calls"]:
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
        if not m["content"] and not self.empty:
            m["content"] = None
        return m

    def render(self, tools, messages, begin_reply):
        return self._compiled.render(messages=[self._message(m) for m in messages], tools=tools or None, documents=None,
                                     add_generation_prompt=begin_reply, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def reply_text(reference, before, message):
    """The reply that the template writes for a message, without its end."""
    full = reference.render(TOOLS, before + [message], False)
    prompt = reference.render(TOOLS, before, True)
    if not full.startswith(prompt):
        prompt = reference.render(TOOLS, before, False)
        common = 0
        while common < min(len(full), len(prompt)) and full[common] == prompt[common]:
            common += 1
        content = message["content"]
        begin = full.find(content, common) if content else -1
        if begin < 0 or not full[begin:].lstrip().startswith(content) or "<|tool_call>" in full:
            marks = [begin] + [full.find(m, common) for m in ("<tool_call", "<|tool", "<minimax:tool", "[TOOL_CALLS]", "<｜tool", "<seed:tool", "{\"name\"",
                                                   "<TOOLCALL>", "<tool_calls>", "<|START_ACTION|>")]
            begin = min([m for m in marks if m >= 0], default=len(full))
        text = full[begin:]
    else:
        text = full[len(prompt):]
    for end in [*ENDS, *ENDS]:
        text = text.removesuffix(end)
    inside = prompt.rstrip().endswith("<think>") and "</think>" in text
    return text, inside


def writable(name, message):
    """Whether the format can tell the arguments' texts from its marks."""
    values = json.dumps([c["function"]["arguments"] for c in message["tool_calls"]], ensure_ascii=False)
    return not (name == "seed-oss" and any(w in values for w in ("{\"", "[")))


def check_template(chats, path, find_calls):
    template = path.read_text()
    try:
        name = chats.format(template)
        reference = Reference(template) if name else None
    except (MoeError, ValueError) as e:
        return None, f"left out: {e}", []
    if name is None:
        return None, "left out: no format of calls", []
    rng = random.Random(20251109)
    rendered, cases, wanted, notes = 0, [], [], []
    one_call = name == "gpt-oss"
    tools = TOOLS if "tools" in template.replace("builtin_tools", "") and name != "deepseek" else []
    n_tried = 0
    while len(cases) < N_CASES and n_tried < 20 * N_CASES:
        n_tried += 1
        before, message, results = conversation(rng, 1 if one_call else rng.choice([1, 1, 2, 3]))
        if name in ("gpt-oss", "nemotron") or "function<｜tool▁sep｜>" in template or "'<｜tool▁sep｜>' + tool['function']['name']" in template:
            message["content"] = ""  # these templates write content elsewhere, or no calls with it
        if name == "gemma4":  # libmoe sorts no keys beyond ASCII
            message = json.loads(json.dumps(message).replace("k\\u00e4se", "kase"))
        try:
            expected = reference.render(tools, before + [message] + results, True)
        except Exception as e:  # a template may raise any exception
            one_call = True
            if not notes:
                notes.append(f"transformers: {str(e)[:100]}")
            continue
        try:
            found = chats.render(template, tools, before + [message] + results, True)
        except MoeError as e:
            found = f"error: {e}"
        rendered += found == expected
        if found != expected and len(notes) < 3:
            at = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), min(len(found), len(expected)))
            notes.append(f"expected {expected[max(0, at - 60):at + 60]!r}\n    found    {found[max(0, at - 60):at + 60]!r}")
        if not writable(name, message):
            message = {**message, "tool_calls": [{**c_, "function": {**c_["function"], "arguments": {
                k: v for k, v in c_["function"]["arguments"].items() if not isinstance(v, (dict, list)) and not (
                    isinstance(v, str) and any(w in v for w in "{["))}}} for c_ in message["tool_calls"]]}
        text, inside = reply_text(reference, before, message)
        specials = SPECIALS.get(name, []) if len(cases) % 2 or name == "gpt-oss" else []
        after = rng.choice(["", "", "\n\nThat is all."]) if name not in ("gpt-oss", "gemma4", "functiongemma") else ""
        cases.append({"template": template, "tools": json.dumps(TOOLS), "specials": specials,
                      "text": text + after, "inside": inside})
        content = message["content"] if message["content"] and message["content"] in text else ""
        wanted.append((content, after.strip(), [(c_["function"]["name"], c_["function"]["arguments"]) for c_ in message["tool_calls"]]))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(cases, f)
        f.flush()
        found = json.loads(subprocess.run([find_calls, f.name], check=True, capture_output=True).stdout)
    again = 0
    for case, want, got in zip(cases, wanted, found):
        calls = [json.loads(x) for x in got["calls"]]
        content = got["content"].strip() == "\n\n".join(t for t in want[:2] if t) or got["content"].split() == " ".join(want[:2]).split()
        same = [(x["name"], x["arguments"]) for x in calls] == want[2] and content and got["same"]
        again += same
        if not same and len(notes) < 3:
            notes.append(f"reply {case['text']!r}\n    wanted {want}\n    found  {got}")
    faults = rendered != len(cases) or again != len(cases) or len(cases) < N_CASES
    golden = [{"format": name, **{k: case[k] for k in ("specials", "text")}, **{k: got[k] for k in ("content", "order", "calls")}}
              for case, got in list(zip(cases, found))[:6]]
    return faults, f"{name}: {rendered} of {len(cases)} rendered the same, {again} found again" + "".join(f"\n  {n}" for n in notes), golden


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--build", default=ROOT / "build/release")
    parser.add_argument("--model", required=True)
    parser.add_argument("--only", default="*")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    chats = Chats(args.build, args.model)
    n_faults, golden = 0, {}
    for path in sorted(args.folder.glob(args.only + ".jinja")):
        faults, text, cases = check_template(chats, path, f"{args.build}/tests/find_calls")
        n_faults += faults is True
        print(f"{path.stem}: {text}", flush=True)
        if faults is False:
            golden.setdefault(cases[0]["format"], cases)
    if args.write:
        out = {"tools": json.dumps(TOOLS), "cases": [case for cases in golden.values() for case in cases]}
        (ROOT / "tests/data/chat/tool_calls.json").write_text(json.dumps(out, ensure_ascii=False, indent=0) + "\n")
    return 1 if n_faults else 0


sys.exit(main())
