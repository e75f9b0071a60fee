#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares grammars with other programs: random texts of random JSON schemas must satisfy the package `jsonschema`, and
the bytes that may follow a text be those of llguidance. Needs jsonschema and llguidance.

Usage: grammars.py --match_grammars PROGRAM [--schemas N] [--suite FOLDER]

--suite judges the instances of a folder of MaskBench (guidance-ai/jsonschemabench, maskbench/data)."""

import argparse
import collections
import json
import pathlib
import random
import re
import subprocess
import tempfile

WORDS = ["a", "ab", "name", "é", "x y", 'q"q', "back\\slash", "x1", "zz"]
FORMATS = ["date", "time", "date-time", "ipv4", "uuid", "email", "hostname"]
PATTERNS = ["^[a-c]+$", "x", "^a|b$", "[0-9]{2,4}", "^(foo|bar)?$", "é.$", "^[^a-z]{1,3}$"]


def schema(r, depth=0):
    """A random schema, of what docs/structured.md says is supported."""
    kinds = ["integer", "number", "string", "string", "boolean", "null", "enum"]
    if depth < 3:
        kinds += ["object", "object", "array", "anyOf", "allOf", "types", "any"]
    kind = r.choice(kinds)
    if kind == "any":
        return {}
    if kind == "enum":
        return {"enum": r.sample([1, "a", None, True, "é\n", [1, {"b": 2}], 2.5, {"k": "v"}], r.randint(1, 4))}
    if kind == "anyOf":
        return {"anyOf": [schema(r, depth + 1) for _ in range(r.randint(1, 3))]}
    if kind == "allOf":
        return {"allOf": [schema(r, depth + 1), r.choice([{"maxLength": 5}, {"minimum": 0}, {"maxItems": 2}, {}])]}
    if kind == "types":
        return {"type": r.sample(["integer", "string", "null", "boolean"], 2), "maxLength": 4, "maximum": 9}
    found = {"type": kind}
    if kind in ("integer", "number"):
        low = r.choice([-100, -7.5, -1, 0, 0.25, 3, 99])
        if r.random() < 0.6:
            found[r.choice(["minimum", "exclusiveMinimum"])] = low
        if r.random() < 0.6:
            found[r.choice(["maximum", "exclusiveMaximum"])] = low + r.choice([2, 10, 0.5 if kind == "number" else 3, 1000])
        if kind == "integer" and r.random() < 0.2:
            found["multipleOf"] = r.choice([2, 5, 7])
    if kind == "string":
        what = r.random()
        if what < 0.3:
            found.update(minLength=r.randint(0, 3), maxLength=r.randint(3, 6))
        elif what < 0.6:
            found["pattern"] = r.choice(PATTERNS)
            if r.random() < 0.4:
                found["maxLength"] = r.randint(4, 9)
        elif what < 0.8:
            found["format"] = r.choice(FORMATS)
    if kind == "object":
        names = r.sample(WORDS, r.randint(0, 4))
        found["properties"] = {n: schema(r, depth + 1) for n in names}
        found["required"] = [n for n in names if r.random() < 0.5] + (["more"] if r.random() < 0.1 else [])
        if r.random() < 0.6:
            found["additionalProperties"] = r.choice([False, {"type": "boolean"}])
        if r.random() < 0.2:
            found["patternProperties"] = {r.choice(["^x", "z"]): schema(r, depth + 1)}
        if r.random() < 0.2:
            found["maxProperties"] = r.randint(len(found["required"]), 5)
    if kind == "array":
        found["items"] = schema(r, depth + 1)
        if r.random() < 0.3:
            found["prefixItems"] = [schema(r, depth + 1) for _ in range(r.randint(1, 2))]
        if r.random() < 0.6:
            found.update(minItems=r.randint(0, 2), maxItems=r.randint(2, 4))
    return found


def run(program, cases):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(case) + "\n" for case in cases)
        file.flush()
        out = subprocess.run([program, file.name], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in out.stdout.split("\n") if line]


def validate(program, n):
    """Samples of random schemas against jsonschema."""
    import jsonschema
    r = random.Random(1)
    schemas = [schema(r) for _ in range(n)]
    found = run(program, [{"kind": "schema", "grammar": json.dumps(s), "samples": 3, "seed": i} for i, s in enumerate(schemas)])
    counts = collections.Counter()
    for s, result in zip(schemas, found, strict=True):
        if "error" in result:
            counts["no text satisfies it" if "no text" in result["error"] else result["error"]] += 1
            continue
        if "failed" in result:
            raise SystemExit(f"{json.dumps(s)}: {result['failed']}")
        validator = jsonschema.Draft202012Validator(s, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        for text in result["samples"]:
            if text is None:
                counts["texts that did not end"] += 1
                continue
            try:
                validator.validate(json.loads(text))
                counts["texts that are valid"] += 1
            except (ValueError, jsonschema.ValidationError) as e:
                raise SystemExit(f"{json.dumps(s)}\n{text}\n{e}") from e
    return schemas, found, counts


def compare(program, schemas, found):
    """The bytes that may follow the beginnings of samples, against llguidance."""
    import llguidance
    tokenizer = llguidance.LLTokenizer("byte")
    r = random.Random(2)
    cases = []
    for s, result in zip(schemas, found, strict=True):
        texts = [t for t in result.get("samples", ()) if t is not None]
        if not texts:
            continue
        # Spelled as both write it.
        text = json.dumps(json.loads(r.choice(texts)), ensure_ascii=False, separators=(",", ":"))
        cases.append((s, [text[:r.randrange(len(text) + 1)] for _ in range(2)]))
    ours = run(program, [{"kind": "schema", "grammar": json.dumps(s), "prefixes": p} for s, p in cases])
    counts, shown = collections.Counter(), []
    # White space differs, and llguidance escapes DEL, which JSON does not ask for.
    blank = set(b" \t\n\r\x7f")
    for (s, prefixes), result in zip(cases, ours, strict=True):
        grammar = llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(s), defaults={"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"})
        for prefix, mine in zip(prefixes, result["allowed"], strict=True):
            matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
            if matcher.is_error():
                counts["not supported by llguidance"] += 1
                continue
            if mine is None:
                counts["beginning not allowed by us (order of properties)"] += 1
                continue
            if not matcher.consume_tokens(list(prefix.encode())):
                counts["beginning not allowed by llguidance"] += 1
                continue
            mask = matcher.compute_bitmask()
            theirs = {b for b in range(256) if mask[b // 8] >> (b % 8) & 1} - blank
            mine = set(mine) - blank - {-1}
            if theirs == mine:
                counts["the same bytes"] += 1
                continue
            counts["other bytes"] += 1
            shown.append((json.dumps(s), prefix, bytes(sorted(mine - theirs)), bytes(sorted(theirs - mine))))
    return counts, shown


def judge(program, folder):
    """The instances of MaskBench."""
    names, cases, valid = [], [], []
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        case = json.loads(path.read_text())
        tests = case.get("tests", [])
        names.append(path.name)
        valid.append([t["valid"] for t in tests])
        cases.append({"kind": "schema", "grammar": json.dumps(case["schema"]),
                      "texts": [json.dumps(t["data"], ensure_ascii=False) for t in tests]})
    counts, sizes = collections.Counter(), []
    for name, expected, result in zip(names, valid, run(program, cases), strict=True):
        counts["schemas"] += 1
        if "whole" not in result:
            counts["not compiled: " + re.sub(r"#\S*: ", "", result.get("error", "failed"))[:100]] += 1
            continue
        counts["compiled"] += 1
        sizes.append(result["bytes"])
        counts["all judged right"] += expected == result["whole"]
        for good, taken in zip(expected, result["whole"], strict=True):
            counts[("valid" if good else "invalid") + (" taken" if taken else " refused")] += 1
            if taken and not good:
                print("taken, but invalid:", name)
    sizes.sort()
    print("bytes of a compiled schema: median", sizes[len(sizes) // 2], "99th percentile", sizes[len(sizes) * 99 // 100])
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match_grammars", required=True)
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--suite")
    arguments = parser.parse_args()
    if arguments.suite:
        for name, n in judge(arguments.match_grammars, arguments.suite).most_common():
            print(n, name)
        return
    schemas, found, counts = validate(arguments.match_grammars, arguments.schemas)
    for name, n in counts.most_common():
        print(n, name)
    counts, shown = compare(arguments.match_grammars, schemas, found)
    for name, n in counts.most_common():
        print(n, name)
    for s, prefix, more, less in shown[:20]:
        print(f"{s}\n  behind {prefix!r}: we alone {more}, llguidance alone {less}")


if __name__ == "__main__":
    main()
