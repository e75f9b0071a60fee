#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Texts of models that are held to random JSON schemas must satisfy the package jsonschema, if they end before the limit of
tokens. Random schemas and prompts; models with any tokenizer. Needs jsonschema[format-nongpl].

Usage: grammar_models.py --moe PROGRAM MODEL... [--schemas N] [--seed S] [--max-tokens N]"""

import argparse
import collections
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import grammars
import jsonschema

PROMPTS = ["Once upon a time", "The answer is", "Ben and Mia", "{\"name\":", "Der Grüne sagt:", "1, 2, 3,", "def main():\n", "\"", "日本", " "]


def texts(program, model, schemas, r, most):
    """Yields the line that `moe batch` answers for each schema."""
    with tempfile.TemporaryDirectory() as folder:
        lines, out = pathlib.Path(folder) / "in.jsonl", pathlib.Path(folder) / "out.jsonl"
        with lines.open("w") as file:
            for schema in schemas:
                line = {"prompt": r.choice(PROMPTS), "max_tokens": most, "temperature": r.choice([0, 0.7, 1, 1.5]), "seed": r.randrange(1000),
                        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
                file.write(json.dumps(line) + "\n")
        # The exit status says that some lines failed: schemas that no text satisfies.
        subprocess.run([program, "batch", model, lines, out], check=False, stderr=subprocess.DEVNULL)
        with out.open() as file:
            yield from map(json.loads, file)


def judge(schema, line):
    """Says what became of a text; raises SystemExit if it is complete and wrong, or refused for another reason than its schema."""
    if "error" in line:
        why = str(line["error"])
        if not re.search(r"JSON schema: |no text satisfies it", why):
            raise SystemExit(f"{json.dumps(schema)}\n{why}")
        return "refused: " + re.sub(r"#\S*: ", "", why)[-70:]
    if line["finish"] != "eos":
        return f"incomplete: {line['finish']}"
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    try:
        validator.validate(json.loads(line["text"]))
    except (ValueError, jsonschema.ValidationError) as e:
        raise SystemExit(f"{json.dumps(schema)}\n{line['text']!r}\n{e}") from e
    return "complete and valid"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moe", required=True)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=200)
    arguments = parser.parse_args()
    r = random.Random(arguments.seed)
    schemas = [grammars.schema(r) for _ in range(arguments.schemas)]
    for model in arguments.models:
        lines = list(texts(arguments.moe, model, schemas, r, arguments.max_tokens))
        counts = collections.Counter(judge(s, line) for s, line in zip(schemas, lines, strict=True))
        print(pathlib.Path(model).name)
        for what, n in counts.most_common():
            print(f"  {n:6} {what}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
