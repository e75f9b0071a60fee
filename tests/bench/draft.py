#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Decoding with guesses from earlier text (moe chat --draft): speed beside decoding without, in alternating runs,
and that the replies are the same. MODEL has been trained to chat.

    draft.py MOE MODEL --rates FILE ...    # how often a guess is right, by the length of the match
    draft.py MOE MODEL [--rounds 5] [--drafts 4,8,16] [--tokens 200] [--peer GGUF]

--peer: also llama-cpp-python (to be installed) with the same model from a GGUF file, without and with its own
prompt lookup.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def tasks():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")[:1500]
    code = (ROOT / "bindings/python/src/moe/_arrays.py").read_text(encoding="utf-8")[:1500]
    return {"story": "Write a story about a fox and a lighthouse keeper.",
            "explain": "Explain step by step how a bicycle stays upright.",
            "JSON": "Write a JSON list of ten people with name, age and city.",
            "edit code": "Rewrite this Python code with type hints:\n" + code,
            "summary": "Summarise this text:\n" + text,
            "copy": "Repeat this text exactly:\n" + text}


def run(moe, model, prompt, n_tokens, draft):
    command = [moe, "chat", model, "--json", "--temp", "0", "-n", str(n_tokens), "--draft", str(draft), "-p", prompt]
    return json.loads(subprocess.run(command, input="", capture_output=True, text=True, check=True).stdout)


def rates(moe, model, path, most=2500, longest=16, classes=8):
    """How many tokens after the latest of the longest earlier matches are right, by the length of the match."""
    ids = subprocess.run([moe, "tokenize", model, "-f", path], capture_output=True, text=True, check=True).stdout
    text = [int(i) for i in ids.strip().split(",")[:most]]
    found = {n: [0, 0] for n in range(1, classes + 1)}
    for n in range(100, len(text) - 1):
        best, at = 0, 0
        for end in range(n - 1, 0, -1):
            length = 0
            while length < min(end, longest) and text[end - 1 - length] == text[n - 1 - length]:
                length += 1
            if length > best:
                best, at = length, end
            if best == longest:
                break
        if best > 0:
            count = found[min(best, classes)]
            count[0] += text[at] == text[n]
            count[1] += 1
    return [f"{right / max(n, 1):.2f}" for right, n in found.values()]


class Peer:
    def __init__(self, path, lookup):
        import llama_cpp
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
        draft = LlamaPromptLookupDecoding(num_pred_tokens=10 if lookup == "" else int(lookup)) if lookup else None
        self.model = llama_cpp.Llama(path, n_ctx=2048, n_threads=2, draft_model=draft, verbose=False,
                                     logits_all=draft is not None)

    def speed(self, prompt, n_tokens):
        """Tokens per second after the first."""
        times = []
        for _ in self.model.create_chat_completion([{"role": "user", "content": prompt}], temperature=0, top_k=1,
                                                   repeat_penalty=1, max_tokens=n_tokens, stream=True):
            times.append(time.perf_counter())
        return (len(times) - 3) / (times[-2] - times[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("moe")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--drafts", type=lambda s: [int(x) for x in s.split(",")], default=[4, 8, 16])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--peer")
    parser.add_argument("--rates", nargs="+", default=[])
    o = parser.parse_args()
    for path in o.rates:
        print(f"| {path} | " + " | ".join(rates(o.moe, o.model, path)) + " |", flush=True)
    if o.rates:
        return
    peers = {} if o.peer is None else {"llama.cpp": Peer(o.peer, None), "its lookup of 10": Peer(o.peer, "10")}
    columns = [f"--draft {d}" for d in o.drafts]
    print("| task | tokens | plain | " + " | ".join(columns + list(peers)) + " |")
    print("|---" * (3 + len(columns) + len(peers)) + "|")
    for name, prompt in tasks().items():
        seconds = {d: [] for d in [0, *o.drafts]}
        speeds = {p: [] for p in peers}
        for r in range(o.rounds):
            order = list(seconds)
            order = order[r % len(order):] + order[:r % len(order)]
            replies = {d: run(o.moe, o.model, prompt, o.tokens, d) for d in order}
            for d, r in replies.items():
                assert r["reply"] == replies[0]["reply"], (name, d)
                seconds[d].append(r["generate_seconds"])
            for p, peer in peers.items():
                speeds[p].append(peer.speed(prompt, o.tokens))
        n = replies[0]["n_generated"]
        plain = statistics.median(seconds[0])
        row = [f"{n / plain:.0f}/s"]
        for d in o.drafts:
            r = replies[d]
            took = statistics.median(seconds[d])
            row.append(f"{n / took:.0f}/s, {plain / took:.2f} times ({r['n_accepted']} of {r['n_drafted']})")
        row += [f"{statistics.median(s):.0f}/s" for s in speeds.values()]
        print(f"| {name} | {n} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
