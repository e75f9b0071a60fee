#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares conversations with `transformers`: the ids of several turns with apply_chat_template(), and the greedy
replies of the same weights (our keys and values are rounded to float16, so a near tie may be decided differently).

    python tests/parity/chat.py [--build build/release]    exit status 0: the same ids everywhere
"""

import argparse
import importlib.util
import json
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tokenizers as tk
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data/chat"
N_REPLY = 24


def script_template():
    spec = importlib.util.spec_from_file_location("script_model", DATA / "make_script_model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TEMPLATE


def corpus():
    for name in ("README.md", "CONTRIBUTING.md", "include/moe_c.h", "tests/data/chat/llama3.jinja"):
        yield (ROOT / name).read_text()


def byte_level(special, added):
    tokenizer = tk.Tokenizer(tk.models.BPE())
    tokenizer.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tk.decoders.ByteLevel()
    trainer = tk.trainers.BpeTrainer(vocab_size=900, special_tokens=special,
                                     initial_alphabet=tk.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_tokens([tk.AddedToken(t, special=False, normalized=False) for t in added])
    return tokenizer


def sentencepiece(special):
    """A tokenizer like Llama 2's: a space before the text, spaces as U+2581, unknown characters as bytes."""
    tokenizer = tk.Tokenizer(tk.models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = tk.normalizers.Sequence([tk.normalizers.Prepend("\u2581"), tk.normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = tk.decoders.Sequence([tk.decoders.Replace("\u2581", " "), tk.decoders.ByteFallback(),
                                              tk.decoders.Fuse(), tk.decoders.Strip(" ", 1, 0)])
    names = special + [f"<0x{b:02X}>" for b in range(256)]
    trainer = tk.trainers.BpeTrainer(vocab_size=900, special_tokens=names)
    tokenizer.train_from_iterator(corpus(), trainer)
    document = json.loads(tokenizer.to_str())  # byte tokens are ordinary tokens
    document["added_tokens"] = [t for t in document["added_tokens"] if t["content"] in special]
    return tk.Tokenizer.from_str(json.dumps(document))


MISTRAL_LIKE = """\
{%- if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + '\\n\\n' %}{% set turns = messages[1:] %}
{%- else %}{% set system = '' %}{% set turns = messages %}{% endif %}
{{- bos_token }}
{%- for message in turns %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
    {%- if message['role'] == 'user' %}{{- '[INST] ' + (system if loop.first else '') + message['content'].strip() + ' [/INST]' }}
    {%- else %}{{- ' ' + message['content'].strip() + eos_token }}{% endif %}
{%- endfor %}"""


def make(kind, folder):
    torch.manual_seed(5)
    sizes = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "max_position_embeddings": 2048}
    if kind == "qwen3":
        special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level(special, ["<think>", "</think>"]),
                                            eos_token="<|im_end|>", pad_token="<|endoftext|>")
        tokenizer.chat_template = script_template()
        config = Qwen3Config(vocab_size=len(tokenizer), head_dim=12, bos_token_id=0, eos_token_id=2, **sizes)
        model = Qwen3ForCausalLM(config)
        model.generation_config.eos_token_id = [2, 0]
    elif kind == "llama3":
        special = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level(special, []), bos_token=special[0],
                                            eos_token="<|eot_id|>")
        tokenizer.chat_template = (DATA / "llama3.jinja").read_text()
        model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=1, **sizes))
        model.generation_config.eos_token_id = [1, 4]
    else:
        special = ["<unk>", "<s>", "</s>"]
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=sentencepiece(special), bos_token="<s>", eos_token="</s>",
                                            unk_token="<unk>")
        tokenizer.chat_template = MISTRAL_LIKE
        model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), bos_token_id=1, eos_token_id=2, **sizes))
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(0, 0.15)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return tokenizer, model.eval()


SAID = ["Hello, who are you?", "  Grüße! 世界 🦊 e\u0301\n\tcode(x);\n", "And   what\n\n\nis `x < y`?", "Thanks\u00a0."]


def history(chat, system):
    """The messages of a client that keeps the replies as the model wrote them."""
    messages = [{"role": "system", "content": system}] if system else []
    for m in chat.messages:
        content = f"<think>{m.thinking}</think>{m.content}" if m.thinking else m.content
        messages.append({"role": m.role, "content": content})
    return messages


def greedy(model, ids):
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), max_new_tokens=N_REPLY, do_sample=False, pad_token_id=0,
                             attention_mask=torch.ones(1, len(ids), dtype=torch.long))
    return out[0, len(ids):].tolist()


def compare(moe, kind, system, thinking):
    options = {} if thinking is None else {"enable_thinking": thinking}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, model = make(kind, folder)
        moe.convert(folder, folder + "/m.moe", weights="f32")
        loaded = moe.Model(folder + "/m.moe")
        chat = loaded.chat(system=system, thinking=thinking, date="2025-03-09")
        n = [0, 0, 0, 0]
        for said in SAID:
            chat.add("user", said)
            messages = history(chat, system)
            expected = tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True,
                                                     return_dict=False, date_string="09 Mar 2025", **options)
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True,
                                                 date_string="09 Mar 2025", **options)
            found = chat.tokens(begin_reply=True)
            same = found == list(expected) and chat.render(begin_reply=True) == text
            n[0] += same
            if not same:
                print(f"  expected {text!r}\n  found    {chat.render(begin_reply=True)!r}")
            reply = chat.reply(max_tokens=N_REPLY)
            tokens = reply.tokens()
            wanted = greedy(model, found)
            ends = set(model.generation_config.eos_token_id if isinstance(model.generation_config.eos_token_id, list)
                       else [model.generation_config.eos_token_id]) | {tokenizer.eos_token_id}
            wanted = next((wanted[:i] for i, t in enumerate(wanted) if t in ends), wanted)
            n[1] += tokens == wanted
            n[2] += reply.result.n_reused
            n[3] += reply.result.n_prompt
        print(f"{kind:9} system {bool(system)!s:5} thinking {thinking!s:5}: ids of {n[0]} of {len(SAID)} turns, "
              f"{n[1]} replies the same; {n[2]} of {n[3]} tokens reused")
        return n[0] == len(SAID)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path)
    args = parser.parse_args()
    os.environ["MOE_LIBRARY"] = str(args.build / "lib/libmoe.so")
    sys.path.insert(0, str(ROOT / "bindings/python/src"))
    import moe

    transformers.utils.logging.disable_progress_bar()
    good = True
    for kind in ("qwen3", "llama3", "llama2"):
        for system in (None, "You are brief."):
            for thinking in (None, False, True) if kind == "qwen3" else (None,):
                good &= compare(moe, kind, system, thinking)
    return 0 if good else 1


sys.exit(main())
