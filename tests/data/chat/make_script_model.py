#!/usr/bin/env python3
"""Writes tests/data/chat/script: a checkpoint whose replies are known. Each token decides the next one, so that
after the beginning of a reply it thinks "ab", answers "Yes." and ends its turn. With --tools, tests/data/chat/tools: it
says "Ok!", calls two tools, and answers "Yes." behind their results. Needs NumPy alone.

    make_script_model.py [--tools] [FOLDER]
"""

import json
import pathlib
import sys

import numpy as np

D = 64
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = ["<think>", "</think>"]  # added tokens that are not special

TEMPLATE = """\
{#- Turns between markers; thinking is shown to the model for the turn in progress only. -#}
{%- if messages and messages[0].role == 'system' -%}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' -}}
{%- endif -%}
{%- set ns = namespace(last_question=-1) -%}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}{%- set ns.last_question = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- if ns.last_question < 0 -%}{{- raise_exception('no question was asked') -}}{%- endif -%}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else '' -%}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) -%}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' -}}
    {%- elif message.role == 'assistant' -%}
        {%- set thought = '' -%}
        {%- if '</think>' in content -%}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') -%}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') -%}
        {%- endif -%}
        {{- '<|im_start|>assistant\\n' -}}
        {%- if loop.index0 > ns.last_question and thought -%}
            {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' -}}
        {%- endif -%}
        {{- content + '<|im_end|>\\n' -}}
    {%- elif message.role != 'system' -%}
        {{- raise_exception('unknown role ' + message.role) -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}
{%- endif -%}
"""


TOOL_TEMPLATE = """\
{#- Calls in the format of Hermes; a reply to results begins with an empty line. -#}
{%- if tools -%}
    {{- '<|im_start|>system\\n<tools>' -}}
    {%- for tool in tools -%}{{- '\\n' + (tool | tojson) -}}{%- endfor -%}
    {{- '\\n</tools>\\nCall with <tool_call>{"name": ..., "arguments": ...}</tool_call>.<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'tool' -%}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' -}}
    {%- else -%}
        {{- '<|im_start|>' + message.role + '\\n' -}}
        {%- if message.content -%}{{- message.content -}}{%- endif -%}
        {%- for call in message.tool_calls or [] -%}
            {{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' -}}
            {{- (call.function.arguments | tojson) + '}</tool_call>' -}}
        {%- endfor -%}
        {{- '<|im_end|>\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' + ('\\n' if messages[-1].role == 'tool' else '') -}}
{%- endif -%}
"""
# Parts of two calls, each a token that is not special.
CALLS = ["<tool_call>", '{"name": "weather", ', '"arguments": {"city": "Zürich", ', '"days": 2}}', "</tool_call>",
         '<tool_call>\n{"name": "clock", "arg', 'uments": {}}\n</tool_call>\n']


def byte_letters():
    """The letters that byte-level BPE writes bytes with."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in printable else next(others)) for b in range(256)]


def vocabulary():
    letters = byte_letters()
    tokens = letters + [letters[10] * 2]  # "\n\n" is one token: a question that ends a block of thinking
    return {t: i for i, t in enumerate(tokens)}


def script(vocab, added, tools):
    """What follows the tokens that have a line in the script, and what follows all others."""
    newline, blank = "\u010a", "\u010a\u010a"
    answer = [blank, "Y", "e", "s", "."]
    chains = [[newline, "O", "k", "!", *CALLS], answer] if tools else [
        [newline, "<think>", "a", "b", "</think>", *answer, "<|im_end|>"]]
    ids = [[{**vocab, **added}[t] for t in chain] for chain in chains]
    return {a: b for chain in ids for a, b in zip(chain, chain[1:])}, added["<|im_end|>"]


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, t in reversed(tensors.items()):  # those of zeros first: at a file's end they mean that it was cut off
        raw = t.astype("<f2").tobytes()
        header[name] = {"dtype": "F16", "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def weights(follows, end, n, seed):
    """Rows of signs, nearly at right angles; the head has the row of each token at the place of its follower. A
    column more, the same for all, speaks for the end of the turn."""
    signs = np.sign(np.random.default_rng(seed).standard_normal((n, D)))
    embedding = np.concatenate([signs, np.full((n, 1), 8.0)], axis=1)
    head = np.zeros((n, D + 1))
    for token, following in follows.items():
        head[following, :D] += signs[token]
    head[end, D] = 5.0
    logits = embedding @ head.T
    for token in range(n):
        assert logits[token].argmax() == follows.get(token, end), token
    return embedding, head


def main():
    arguments = [a for a in sys.argv[1:] if a != "--tools"]
    tools = "--tools" in sys.argv
    model = "tools" if tools else "script"
    folder = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent / model)
    folder.mkdir(exist_ok=True)
    vocab = vocabulary()
    added = {t: len(vocab) + i for i, t in enumerate(SPECIAL + (CALLS if tools else TAGS))}
    n = len(vocab) + len(added)
    embedding, head = weights(*script(vocab, added, tools), n, seed=4 if tools else 3)
    d = embedding.shape[1]
    tensors = {"embedding.weight": embedding, "head.weight": head, "final_norm.weight": np.ones(d),
               "layers.0.attention_norm.weight": np.ones(d), "layers.0.ffn_norm.weight": np.ones(d),
               "layers.0.ffn.up.weight": np.zeros((1, d)), "layers.0.ffn.down.weight": np.zeros((d, 1))}
    for name in "qkvo":
        tensors[f"layers.0.attention.{name}.weight"] = np.zeros((d, 2) if name == "o" else (2, d))
    write_safetensors(folder / "model.safetensors", tensors)
    config = {"model_type": "moe_research", "layout_version": 1, "name": model, "vocab_size": n, "d_model": d,
              "n_layers": 1, "context_length": 2048 if tools else 512, "norm": {"kind": "rms"}, "positions": "none",
              "tie_embeddings": False, "eos_token_ids": [added["<|endoftext|>"]], "tokenizer": "tokenizer.json",
              "layer_defaults": {"attention": {"n_heads": 1, "head_dim": 2}, "ffn": {"kind": "dense", "d_ff": 1, "act": "relu"}}}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    letters = byte_letters()
    tokenizer = {"version": "1.0",
                 "added_tokens": [{"id": i, "content": t, "special": t in SPECIAL, **flags} for t, i in added.items()],
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
                 "decoder": {"type": "ByteLevel"},
                 "model": {"type": "BPE", "vocab": vocab, "merges": [[letters[10], letters[10]]]}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False, indent=0) + "\n")
    names = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None, "chat_template": TOOL_TEMPLATE if tools else TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(names, indent=1) + "\n")


if __name__ == "__main__":
    main()
