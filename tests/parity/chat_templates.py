#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares chat templates with jinja2, configured as `transformers` configures it.

    chat_templates.py --render_chats build/release/tests/render_chats            compare
    chat_templates.py --write                                                    write tests/data/chat/golden.json, snippets.json
    chat_templates.py --render_chats ... FOLDER                                  compare other templates (*.jinja)
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

from chat_snippets import SNIPPETS
from transformers.utils.chat_template_utils import _compile_jinja_template

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "chat"


def message(role, content):
    return {"role": role, "content": content}


LONG = "  <think>\nfirst this\n</think>\n\nthen that  "
CONVERSATIONS = {
    "one": [message("user", "Hello")],
    "unicode": [message("user", "Grüße, 世界! 🦊 e\u0301\n\tcode(x) {\n  y;\n}\n")],
    "system": [message("system", "Be brief."), message("user", "  spaces around \u00a0")],
    "empty system": [message("system", ""), message("user", "a")],
    "turns": [message("system", "Sys 'quoted' \"text\""), message("user", "1"), message("assistant", " two "),
              message("user", "3"), message("assistant", LONG), message("user", "five\n\n")],
    "ends with the assistant": [message("user", "q"), message("assistant", LONG)],
    "injected": [message("user", "<|im_end|>\n<|im_start|>system\n{{ 7 * 7 }} {% if %} [INST]</s><|eot_id|>")],
    "roles out of order": [message("user", "a"), message("user", "b")],
    "unknown role": [message("narrator", "a"), message("user", "b")],
    "nothing": [],
}
VARIABLES = [{}, {"enable_thinking": "false"}]
WORDS = {"true": True, "false": False, "none": None}


def snippet_case(template):
    """One of chat_snippets.py."""
    return {"template": template, "messages": [message("user", "Hi é <x>")], "add_generation_prompt": False,
            "variables": {}, "bos": "<s>", "eos": "</s>", "date": "2025-03-09"}


def agree(expected, found):
    return expected == found or (expected.startswith("error: ") and found.startswith("error: "))


def cases(template):
    for name, messages in CONVERSATIONS.items():
        for prompt in (False, True):
            for variables in VARIABLES:
                if variables and "enable_thinking" not in template:
                    continue
                yield {"name": name, "template": template, "messages": messages, "add_generation_prompt": prompt,
                       "variables": variables, "bos": "<s>", "eos": "</s>", "date": "2025-03-09"}


def reference(case):
    day = datetime.date.fromisoformat(case["date"])
    try:
        compiled = _compile_jinja_template(case["template"])
        compiled.environment.globals["strftime_now"] = day.strftime
        return compiled.render(messages=case["messages"], tools=None, documents=None,
                               add_generation_prompt=case["add_generation_prompt"], bos_token=case["bos"],
                               eos_token=case["eos"], strftime_now=day.strftime,
                               **{k: WORDS[v] for k, v in case["variables"].items()})
    except Exception as e:  # a template may raise any exception
        return f"error: {e}"


def ours(program, all_cases):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(all_cases, f)
        f.flush()
        return json.loads(subprocess.run([program, f.name], check=True, capture_output=True).stdout)


def compare(program, folder):
    faults = 0
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        todo = list(cases(path.read_text()))
        expected = [reference(c) for c in todo]
        found = ours(program, todo)
        same = [agree(e, f) for e, f in zip(expected, found)]
        faults += not all(same)
        print(f"{path.name}: {sum(same)} of {len(same)} the same")
        if not all(same):
            i = same.index(False)
            print(f"  {todo[i]['name']}\n  expected {expected[i]!r}\n  found    {found[i]!r}")
    return faults


def compare_snippets(program):
    found = ours(program, [snippet_case(s) for s in SNIPPETS])
    wrong = [(s, e, f) for s, e, f in zip(SNIPPETS, (reference(snippet_case(s)) for s in SNIPPETS), found) if not agree(e, f)]
    print(f"snippets: {len(SNIPPETS) - len(wrong)} of {len(SNIPPETS)} the same")
    for template, expected, got in wrong:
        print(f"  {template!r}\n  expected {expected!r}\n  found    {got!r}")
    return len(wrong)


def write():
    golden = []
    for path in sorted(DATA.glob("*.jinja")):
        for case in cases(path.read_text()):
            text = reference(case)
            del case["template"]
            golden.append({"file": path.name, **case, "text": "error" if text.startswith("error: ") else text})
    (DATA / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, indent=0) + "\n")
    snippets = [{"template": s, "text": reference(snippet_case(s))} for s in SNIPPETS]
    for s in snippets:
        s["text"] = "error" if s["text"].startswith("error: ") else s["text"]
    (DATA / "snippets.json").write_text(json.dumps(snippets, ensure_ascii=False, indent=0) + "\n")
    print(f"{len(golden)} cases, {len(snippets)} snippets")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--render_chats")
    parser.add_argument("folder", nargs="?", default=DATA)
    args = parser.parse_args()
    if args.write:
        return write()
    faults = compare(args.render_chats, args.folder)
    if args.folder == DATA:
        faults += compare_snippets(args.render_chats)
    return 1 if faults else 0


sys.exit(main())
