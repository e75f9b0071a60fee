#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares grammars with other programs: random texts of random JSON schemas must satisfy the package `jsonschema`, and
the bytes that may follow a text be those of llguidance and xgrammar, or theirs lead to invalid texts alone. Needs llguidance,
xgrammar and jsonschema[format-nongpl], which checks the formats.

Usage: grammars.py --match_grammars PROGRAM [--schemas N] [--suite FOLDER]

--suite judges the instances of a folder of MaskBench (guidance-ai/jsonschemabench, maskbench/data)."""

import argparse
import collections
import functools
import json
import pathlib
import random
import re
import subprocess
import tempfile
import urllib.parse

WORDS = ["a", "ab", "name", "é", "x y", 'q"q', "back\\slash", "x1", "zz"]
# Not relative-json-pointer: jsonschema refuses numbers of several digits.
FORMATS = ["date", "time", "date-time", "duration", "ipv4", "ipv6", "uuid", "email", "idn-email", "hostname", "idn-hostname", "json-pointer",
           "uri", "uri-reference", "uri-template", "iri", "iri-reference"]
PATTERNS = ["^[a-c]+$", "x", "^a|b$", "[0-9]{2,4}", "^(foo|bar)?$", "é.$", "^[^a-z]{1,3}$"]


def schema(r, depth=0):
    """A random schema, of what docs/structured.md says is supported."""
    kinds = ["integer", "number", "string", "string", "boolean", "null", "enum"]
    if depth < 3:
        kinds += ["object", "object", "array", "anyOf", "allOf", "types", "any", "oneOf", "not", "if"]
    kind = r.choice(kinds)
    if kind == "any":
        return {}
    if kind == "enum":
        return {"enum": r.sample([1, "a", None, True, "é\n", [1, {"b": 2}], 2.5, {"k": "v"}], r.randint(1, 4))}
    if kind == "anyOf":
        return {"anyOf": [schema(r, depth + 1) for _ in range(r.randint(1, 3))]}
    if kind == "allOf":
        return {"allOf": [schema(r, depth + 1), r.choice([{"maxLength": 5}, {"minimum": 0}, {"maxItems": 2}, {}])]}
    if kind == "oneOf":
        return {"oneOf": [schema(r, depth + 1) for _ in range(r.randint(2, 3))]}
    if kind == "not":
        return {**schema(r, depth + 1), "not": schema(r, depth + 1)}
    if kind == "if":
        return {**schema(r, depth + 1), "if": schema(r, depth + 1), **({"then": schema(r, depth + 1)} if r.random() < 0.7 else {}),
                **({"else": schema(r, depth + 1)} if r.random() < 0.7 else {})}
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
            if r.random() < 0.4:
                found["maxLength"] = r.choice([20, 64, 100, 255])
            if r.random() < 0.2:
                found["minLength"] = r.randint(1, 9)
    if kind == "object":
        names = r.sample(WORDS, r.randint(0, 4))
        found["properties"] = {n: schema(r, depth + 1) for n in names}
        found["required"] = [n for n in names if r.random() < 0.5] + (["more"] if r.random() < 0.1 else [])
        if r.random() < 0.6:
            found["additionalProperties"] = r.choice([False, {"type": "boolean"}])
        if r.random() < 0.2:
            found["patternProperties"] = {r.choice(["^x", "z"]): schema(r, depth + 1)}
        if names and r.random() < 0.2:
            found["dependentRequired"] = {r.choice(names): r.sample(WORDS, r.randint(1, 2))}
        if r.random() < 0.2:
            found["maxProperties"] = r.randint(len(found["required"]), 5)
    if kind == "array":
        found["items"] = schema(r, depth + 1)
        if r.random() < 0.3:
            found["prefixItems"] = [schema(r, depth + 1) for _ in range(r.randint(1, 2))]
        if r.random() < 0.2:
            found["contains"] = schema(r, depth + 1)
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
            counts["no text satisfies it" if "no text" in result["error"] else re.sub("#\\S*: ", "", result["error"])] += 1
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


class LlGuidance:
    """A text's grammar of the package llguidance, with the 256 bytes as tokens."""

    def __init__(self, schema):
        import llguidance
        self.tokenizer = llguidance.LLTokenizer("byte")
        self.matcher = llguidance.LLMatcher(self.tokenizer, llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(schema), defaults={"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}), log_level=0)
        if self.matcher.is_error():
            raise ValueError(self.matcher.get_error())

    def accepts(self, text):
        return self.matcher.consume_tokens(list(text))

    def allowed(self):
        mask = self.matcher.compute_bitmask()
        return {b for b in range(256) if mask[b // 8] >> (b % 8) & 1}

    def may_end(self):
        return self.matcher.is_accepting()


class XGrammar:
    """A text's grammar of the package xgrammar, with the 256 bytes as tokens and one that ends a text."""

    @staticmethod
    @functools.cache
    def compiler():
        import xgrammar
        tokens = xgrammar.TokenizerInfo([bytes([b]) for b in range(256)] + [b"end"], vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[256])
        return xgrammar.GrammarCompiler(tokens, cache_enabled=False)

    def __init__(self, schema):
        import xgrammar
        try:
            grammar = self.compiler().compile_json_schema(json.dumps(schema), any_whitespace=False, separators=(",", ":"), strict_mode=False)
        except RuntimeError as e:
            raise ValueError(str(e)) from e
        self.matcher = xgrammar.GrammarMatcher(grammar)
        self.mask = xgrammar.allocate_token_bitmask(1, 257)

    def accepts(self, text):
        return self.matcher.accept_string(text)

    def _has(self, token):
        return int(self.mask[0][token // 32]) >> (token % 32) & 1 != 0

    def allowed(self):
        self.matcher.fill_next_token_bitmask(self.mask)
        return {b for b in range(256) if self._has(b)}

    def may_end(self):
        self.matcher.fill_next_token_bitmask(self.mask)
        return self._has(256)


def complete(oracle, schema, begin, r):
    """A text of `oracle` that begins so, of random bytes, mostly ASCII; None if it is not one or does not end soon."""
    matcher, text = oracle(schema), bytearray(begin)
    if not matcher.accepts(bytes(begin)):
        return None
    while len(text) < len(begin) + 200:
        allowed = sorted(matcher.allowed())
        if matcher.may_end() and (not allowed or r.random() < 0.5):
            return bytes(text)
        closing = [b for b in allowed if b in b'"}]']
        ascii_bytes = [b for b in allowed if b < 128]
        if not allowed:
            return None
        byte = r.choice(closing if closing and r.random() < 0.4 else ascii_bytes or allowed)
        text.append(byte)
        if not matcher.accepts(bytes([byte])):
            return None
    return None


def judge_byte(oracle, schema, validator, begin, r):
    """Says what becomes of texts of `oracle` that begin so: "valid", with the text, if one of them satisfies the schema."""
    ended = False
    for _ in range(12):
        text = complete(oracle, schema, begin, r)
        if text is None:
            continue
        ended = True
        try:
            if validator.is_valid(json.loads(text)):
                return "valid", text
        except ValueError:
            pass
    return ("invalid" if ended else "no text"), None


def compare(program, schemas, found, oracle):
    """The bytes that may follow the beginnings of samples, against another program. A byte that it alone allows is followed
    to the end of texts: it is explained if none of them satisfies the schema, as the package jsonschema judges. What we alone
    allow is not judged here: our texts are all valid."""
    import jsonschema
    r = random.Random(2)
    cases = []
    for s, result in zip(schemas, found, strict=True):
        texts = [t for t in result.get("samples", ()) if t is not None]
        if not texts:
            continue
        # Spelled as all write it.
        text = json.dumps(json.loads(r.choice(texts)), ensure_ascii=False, separators=(",", ":"))
        cases.append((s, [text[:r.randrange(len(text) + 1)] for _ in range(2)]))
    ours = run(program, [{"kind": "schema", "grammar": json.dumps(s), "prefixes": p} for s, p in cases])
    counts, shown = collections.Counter(), []
    blank = set(b" \t\n\r\x7f")  # white space differs, and llguidance escapes DEL, which JSON does not ask for
    for (s, prefixes), result in zip(cases, ours, strict=True):
        validator = jsonschema.Draft202012Validator(s, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        for prefix, mine in zip(prefixes, result["allowed"], strict=True):
            try:
                matcher = oracle(s)
            except ValueError:
                counts["schema not supported there"] += 1
                continue
            if mine is None:
                counts["beginning not allowed by us (order of properties)"] += 1
                continue
            if not matcher.accepts(prefix.encode()):
                counts["beginning of a valid text not allowed there"] += 1
                continue
            theirs, mine = matcher.allowed() - blank, set(mine) - blank - {-1}
            if theirs == mine:
                counts["the same bytes"] += 1
            elif not theirs - mine:
                counts["we allow more"] += 1
            else:
                for byte in sorted(theirs - mine)[:8]:
                    what, text = judge_byte(oracle, s, validator, prefix.encode() + bytes([byte]), r)
                    if what == "valid":
                        counts["there alone, and valid"] += 1
                        shown.append((json.dumps(s), prefix, text.decode(errors="replace")))
                        break
                else:
                    counts["there alone, and only texts that are invalid"] += 1
    return counts, shown


# The suite's table of 10,163 schemas: what came later is left out.
PARTS = ("Github_", "Glaiveai2K", "Handwritten", "JsonSchemaStore", "Kubernetes", "MCPspec", "Snowplow", "Synthesized",
         "WashingtonPost")


class Order:
    """Values whose members stand in the order in which the schema names them, line by line: the order of the suite's own
    instances is made for the schemas that llguidance compiles."""

    def __init__(self, root):
        self.root = root

    def valid(self, value, schema):
        import jsonschema
        # Definitions are found from the root.
        validator = jsonschema.validators.validator_for(self.root, default=jsonschema.Draft202012Validator)
        return validator(self.root).evolve(schema=schema).is_valid(value)

    def target(self, ref):
        node = self.root
        for step in ref.removeprefix("#").split("/")[1:]:
            step = urllib.parse.unquote(step).replace("~1", "/").replace("~0", "~")
            node = node[int(step)] if isinstance(node, list) else node[step]
        return node

    def flat(self, schema, value, seen):
        """The schemas that hold for the value, in the order of the text, as far as they say something of members."""
        if not isinstance(schema, dict) or id(schema) in seen:
            return
        seen = seen | {id(schema)}
        for keyword, inner in schema.items():
            if keyword == "$ref" and isinstance(inner, str) and inner.startswith("#"):
                yield from self.flat(self.target(inner), value, seen)
            elif keyword == "allOf":
                for s in inner:
                    yield from self.flat(s, value, seen)
            elif keyword in ("anyOf", "oneOf"):
                for s in inner:
                    if self.valid(value, s):
                        yield from self.flat(s, value, seen)
            elif keyword in ("properties", "required", "items", "prefixItems", "additionalProperties", "patternProperties"):
                yield keyword, inner, schema

    def put(self, value, schemas):
        if not isinstance(value, (dict, list)):
            return value
        rules = [rule for s in schemas for rule in self.flat(s, value, frozenset())]
        if isinstance(value, list):
            inside = [[] for _ in value]
            for keyword, inner, schema in rules:
                for i, found in enumerate(inside):
                    if keyword in ("items", "prefixItems") and isinstance(inner, list):
                        found.extend(inner[i:i + 1])
                    elif keyword == "items" and i >= len(schema.get("prefixItems", ())):
                        found.append(inner)
            return [self.put(v, s) for v, s in zip(value, inside, strict=True)]
        names = [n for keyword, inner, _ in rules if keyword == "properties" for n in inner]
        names += [n for keyword, inner, _ in rules if keyword == "required" and isinstance(inner, list) for n in inner]
        out = {}
        for name in dict.fromkeys([*names, *value]):
            if name not in value:
                continue
            inside = []
            for keyword, inner, schema in rules:
                if keyword == "properties" and name in inner:
                    inside.append(inner[name])
                elif keyword == "patternProperties":
                    inside += [s for p, s in inner.items() if re.search(p, name)]
                elif keyword == "additionalProperties" and name not in schema.get("properties", {}):
                    inside.append(inner)
            out[name] = self.put(value[name], inside)
        return out


def judge(program, folder):
    """The instances of MaskBench, spelled as the suite does."""
    # Other than the suite, which looks for a token that is refused alone, this asks that the text may end, too.
    text = functools.partial(json.dumps, ensure_ascii=False)
    files = [p for p in sorted(pathlib.Path(folder).glob("*.json")) if p.name.startswith(PARTS)]
    suite = [json.loads(p.read_text()) for p in files]
    cases = [{"kind": "schema", "grammar": json.dumps(c["schema"]), "texts": [text(t["data"]) for t in c["tests"]]} for c in suite]
    counts, reasons, sizes, refused = collections.Counter(), collections.Counter(), [], []
    for path, case, result in zip(files, suite, run(program, cases), strict=True):
        counts["schemas"] += 1
        if "whole" not in result:
            counts["schemas that are not compiled"] += 1
            why = result.get("error", "failed").removeprefix("JSON schema: ")
            why = re.sub(r"^#\S*?([^/ ]*): this keyword", r"\1: this keyword", why)
            reasons[re.sub(r"^#.*?: |(?<=byte )\d+", "", why)[:100]] += 1
            continue
        expected = [t["valid"] for t in case["tests"]]
        sizes.append(result["bytes"])
        counts["schemas compiled and all their texts judged right"] += expected == result["whole"]
        for test, taken in zip(case["tests"], result["whole"], strict=True):
            counts[("valid" if test["valid"] else "invalid") + " texts " + ("taken" if taken else "refused")] += 1
            if taken and not test["valid"]:
                print("taken, but invalid:", path.name)
            if test["valid"] and not taken:
                order = Order(case["schema"])
                refused.append((path.name, {"kind": "schema", "grammar": json.dumps(case["schema"]),
                                            "texts": [text(order.put(test["data"], [case["schema"]]))]}))
    for (name, case), result in zip(refused, run(program, [c for _, c in refused]), strict=True):
        if result["whole"] == [True]:
            counts["valid texts refused for the order of their properties alone"] += 1
        else:
            print(f"refused in the order of the schema too: {name}: {case['texts'][0][:300]}")
    sizes.sort()
    print("bytes of a compiled schema: median", sizes[len(sizes) // 2], "99th percentile", sizes[len(sizes) * 99 // 100])
    for name, n in [*counts.items(), *((n, f"not compiled: {why}") for why, n in reasons.most_common())][:60]:
        print(name, n)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match_grammars", required=True)
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--suite")
    arguments = parser.parse_args()
    if arguments.suite:
        judge(arguments.match_grammars, arguments.suite)
        return
    schemas, found, counts = validate(arguments.match_grammars, arguments.schemas)
    for name, n in counts.most_common():
        print(n, name)
    for oracle in (LlGuidance, XGrammar):
        counts, shown = compare(arguments.match_grammars, schemas, found, oracle)
        print(oracle.__name__)
        for name, n in counts.most_common():
            print(" ", n, name)
        for s, prefix, text in shown[:20]:
            print(f"  {s}\n    behind {prefix!r}, valid and not ours: {text}")


if __name__ == "__main__":
    main()
