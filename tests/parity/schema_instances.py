#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Judges values near random JSON schemas, of all keywords together, as the package `jsonschema` does: a grammar may take no
value that the schema forbids. Drafts 4, 7 and 2020-12. Counts also what is refused and valid: for the order of its
properties, or because of the spelling of a number (docs/structured.md).

Usage: schema_instances.py --match_grammars PROGRAM [--schemas N] [--seed S]"""

import argparse
import collections
import json
import random
import subprocess
import sys
import tempfile

import jsonschema

# name: validator, how a schema names it
DRAFTS = {
    "2020-12": (jsonschema.Draft202012Validator, "https://json-schema.org/draft/2020-12/schema"),
    "no draft": (jsonschema.Draft202012Validator, None),
    "7": (jsonschema.Draft7Validator, "http://json-schema.org/draft-07/schema#"),
    "4": (jsonschema.Draft4Validator, "http://json-schema.org/draft-04/schema#"),
}
NAMES = ["a", "b", "ab", "é", "c"]
NUMBERS = [0, 1, -1, 2, 3, 5, 7, 10, -5, 1.5, 0.5, -0.5, 2.25, 100, 99, 2.0, 1e2, 1234567890123, 0.1, 1e-3]
STRINGS = ["", "a", "b", "ab", "aab", "é", "😀", "abc", "1", "x\ny", '"', "\\"]
PATTERNS = ["^[a-c]+$", "a", "^a|b$", "^.{2}$", "^(ab?)*$", "[0-9]", "^[^a]*$", "é", "^$", "\\\\", "^a.b"]
NAME_PATTERNS = ["^a", "b$", "^.$", "[é-ü]"]
NAME_SCHEMAS = [{"maxLength": 1}, {"pattern": "a"}, {"enum": ["a", "b"]}, {"not": {"const": "a"}}, False, {"type": "integer"}]
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]
TOGETHER = 200  # schemas judged by one process


class Schemas:
    """Random schemas of a draft."""

    def __init__(self, r, draft):
        self.r, self.draft, self.new = r, draft, draft in ("2020-12", "no draft")

    def value(self, depth=0):
        kind = self.r.choice(["word", "number", "number", "string", "string", "list", "object"])
        if kind == "word" or (depth > 2 and kind in ("list", "object")):
            return self.r.choice([None, True, False])
        if kind in ("number", "string"):
            return self.r.choice(NUMBERS if kind == "number" else STRINGS)
        if kind == "list":
            return [self.value(depth + 1) for _ in range(self.r.randint(0, 3))]
        return {name: self.value(depth + 1) for name in self.r.sample(NAMES, self.r.randint(0, 3))}

    def root(self):
        schema = self.schema(0)
        while not isinstance(schema, dict):
            schema = self.schema(0)
        schema["$defs"] = {"x": self.schema(2), "y": self.schema(1)}
        if DRAFTS[self.draft][1]:
            schema["$schema"] = DRAFTS[self.draft][1]
        return schema

    def schema(self, depth):
        if self.draft != "4" and self.r.random() < 0.07:
            return self.r.choice([True, False, {}])
        simple = [self.type, self.type, self.listed, self.number, self.string, self.sizes, self.required]
        nested = [self.properties] * 3 + [self.items, self.negation, self.choice, self.choice, self.dependencies, self.ref]
        if self.draft != "4":
            nested += [self.condition, self.contains, self.names]
        schema = {}
        for _ in range(self.r.choice([1, 1, 2, 2, 3, 4])):
            self.r.choice(simple + nested * 2 if depth <= 3 else simple)(schema, depth + 1)
        members = list(schema.items())
        self.r.shuffle(members)
        return dict(members)

    def schemas(self, most, depth):
        return [self.schema(depth) for _ in range(self.r.randint(1, most))]

    def type(self, schema, _):
        schema["type"] = self.r.choice([self.r.choice(TYPES), self.r.sample(TYPES, self.r.randint(1, 3))])

    def listed(self, schema, _):
        if self.draft == "4" or self.r.random() < 0.6:
            schema["enum"] = [self.value() for _ in range(self.r.randint(1, 4))]
        else:
            schema["const"] = self.value()

    def number(self, schema, _):
        key = self.r.choice(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"])
        if key == "multipleOf":
            schema[key] = self.r.choice([1, 2, 3, 5, 7, 10])
        elif self.draft == "4" and key.startswith("exclusive"):
            schema[key] = self.r.random() < 0.5
            schema.setdefault(key.removeprefix("exclusive").lower(), self.r.choice(NUMBERS))
        else:
            schema[key] = self.r.choice(NUMBERS)

    def string(self, schema, _):
        key = self.r.choice(["minLength", "maxLength", "pattern"])
        schema[key] = self.r.choice(PATTERNS if key == "pattern" else [0, 1, 2, 2.0, 3])

    def sizes(self, schema, _):
        schema[self.r.choice(["minItems", "maxItems", "minProperties", "maxProperties"])] = self.r.choice([0, 1, 1, 2, 3])

    def required(self, schema, _):
        schema["required"] = self.r.sample(NAMES, self.r.randint(1, 2))

    def properties(self, schema, depth):
        schema["properties"] = {name: self.schema(depth) for name in self.r.sample(NAMES, self.r.randint(1, 3))}
        if self.r.random() < 0.4:
            schema["additionalProperties"] = self.r.choice([False, self.schema(depth + 1)])
        if self.r.random() < 0.2:
            schema["patternProperties"] = {p: self.schema(depth + 1) for p in self.r.sample(NAME_PATTERNS, self.r.randint(1, 2))}

    def items(self, schema, depth):
        if self.r.random() < 0.6:
            schema["items"] = self.schema(depth)
        if self.r.random() < 0.4:
            if not self.new and "items" in schema:
                schema["additionalItems"] = schema["items"]
            schema["prefixItems" if self.new else "items"] = self.schemas(2, depth)

    def contains(self, schema, depth):
        schema["contains"] = self.schema(depth)

    def names(self, schema, _):
        schema["propertyNames"] = self.r.choice(NAME_SCHEMAS)

    def negation(self, schema, depth):
        schema["not"] = self.schema(depth)

    def condition(self, schema, depth):
        schema["if"] = self.schema(depth)
        for key in self.r.sample(["then", "else"], self.r.randint(1, 2)):
            schema[key] = self.schema(depth)

    def choice(self, schema, depth):
        schema[self.r.choice(["oneOf", "oneOf", "anyOf", "allOf"])] = self.schemas(3, depth)

    def dependencies(self, schema, depth):
        names = {n: self.r.sample(NAMES, self.r.randint(1, 2)) for n in self.r.sample(NAMES, self.r.randint(1, 2))}
        if self.r.random() < 0.5:
            schema["dependentRequired" if self.new else "dependencies"] = names
        else:
            schema["dependentSchemas" if self.new else "dependencies"] = {n: self.schema(depth) for n in names}

    def ref(self, schema, depth):
        schema["$ref"] = self.r.choice(["#/$defs/x", "#/$defs/y"] + ["#"] * (depth > 1 and self.r.random() < 0.3))


def named_values(schema, out):
    """Values that a schema names, and numbers beside its bounds."""
    if isinstance(schema, list):
        for part in schema:
            named_values(part, out)
    if not isinstance(schema, dict):
        return
    for key, part in schema.items():
        if key == "enum" and isinstance(part, list):
            out += part
        elif key == "const":
            out.append(part)
        elif isinstance(part, (int, float)) and not isinstance(part, bool):
            out += [part, part + 1, part - 1, part + 0.5]
        named_values(part, out)


def changed(r, value, pool):
    if r.random() < 0.2:
        return r.choice(pool)
    if isinstance(value, list):
        if value and r.random() < 0.5:
            at = r.randrange(len(value))
            return value[:at] + [changed(r, value[at], pool)] * (r.random() < 0.7) + value[at + 1:]
        return value + [r.choice(pool)]
    if isinstance(value, dict):
        value = dict(value)
        if value and r.random() < 0.5:
            name = r.choice(list(value))
            value[name] = changed(r, value[name], pool)
            if r.random() < 0.3:
                del value[name]
        else:
            value[r.choice(NAMES + ["z"])] = r.choice(pool)
        return value
    if isinstance(value, str):
        return r.choice([value + r.choice("abé1"), value[:-1], value[1:]])
    if isinstance(value, bool) or value is None:
        return r.choice(pool)
    return value + r.choice([1, -1, 0.5, -0.5, 10])


def run(program, cases):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(case) + "\n" for case in cases)
        file.flush()
        done = subprocess.run([program, file.name], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def is_valid(validator, value):
    """None: the package does not end. It follows a schema that leads back to itself for the same value."""
    try:
        return validator.is_valid(value)
    except BaseException as e:
        if not isinstance(e, RecursionError) and type(e).__name__ != "PanicException":  # that of a library in Rust on the way
            raise
        return None


def judge(program, cases, r, counts):
    """cases: (draft, schema). True if no value was taken that is invalid."""
    sound = True
    found = run(program, [{"kind": "schema", "grammar": json.dumps(s), "samples": 3, "seed": i} for i, (_, s) in enumerate(cases)])
    near = []
    for (draft, schema), result in zip(cases, found, strict=True):
        counts["schemas"] += 1
        counts["refused schemas"] += "error" in result
        pool = [*STRINGS[:8], 0, 1, 2, 5, 1.5, -1, None, True, False, [], {}, [1], {"a": 1}]
        named_values(schema, pool)
        values = [json.loads(text) for text in result.get("samples", []) if text is not None]
        values += [Schemas(r, draft).value() for _ in range(8)] + r.choices(pool, k=8)
        values += [changed(r, v, pool) for v in values]
        near.append(list(dict.fromkeys(json.dumps(v, ensure_ascii=False) for v in values)))
    found = run(program, [{"kind": "schema", "grammar": json.dumps(s), "texts": t} for (_, s), t in zip(cases, near, strict=True)])
    for (draft, schema), texts, result in zip(cases, near, found, strict=True):
        validator = DRAFTS[draft][0](schema)
        if "error" in result:
            continue
        for text, taken in zip(texts, result["whole"], strict=True):
            valid = is_valid(validator, json.loads(text))
            counts["values"] += 1
            if valid is None:
                counts["not judged"] += 1
            elif taken and not valid:
                sound = False
                print(f"draft {draft}: {json.dumps(schema, ensure_ascii=False)} takes {text}")
            else:
                counts["taken" if taken else "valid and refused" if valid else "invalid and refused"] += 1
    return sound


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--match_grammars", required=True)
    p.add_argument("--schemas", type=int, default=2000)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    sys.setrecursionlimit(3000)
    r = random.Random(args.seed)
    counts, sound = collections.Counter(), True
    for begin in range(0, args.schemas, TOGETHER):
        cases = []
        while len(cases) < min(TOGETHER, args.schemas - begin):
            draft = r.choice(list(DRAFTS))
            schema = Schemas(r, draft).root()
            try:
                DRAFTS[draft][0].check_schema(schema)
                cases.append((draft, schema))
            except jsonschema.SchemaError:  # a list without entries, in draft 4
                pass
        sound &= judge(args.match_grammars, cases, r, counts)
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    sys.exit(0 if sound and counts["taken"] > 0 else 1)


if __name__ == "__main__":
    main()
