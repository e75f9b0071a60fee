# SPDX-License-Identifier: MIT
"""Replicas of a model with Ray Serve, which stream the text that they generate.

    pip install "ray[data,serve]" moe-*.whl
    MODEL=$PWD/stories.moe serve run serve:app
    curl -N localhost:8000 -d '{"prompt": "Once upon a time", "max_tokens": 24}'

The answer has a JSON object per line: {"text": ..., "token": ...} for each piece, then {"finish": ...}.

Back-pressure has two stages. A replica has AT_ONCE sessions and computes a piece only after the previous
one was read: a slow reader keeps its session but uses no CPU. WAITING more requests queue at the proxy;
further ones get status 503 and have to retry (client.py)."""

import json
import os

import moe
from ray import serve
from starlette.responses import JSONResponse, StreamingResponse

AT_ONCE = int(os.environ.get("AT_ONCE", "4"))  # concurrent requests of a replica, each with a session
WAITING = int(os.environ.get("WAITING", "8"))
REPLICAS = int(os.environ.get("REPLICAS", "2"))


def parse(body):
    """The prompt and the other arguments of generate(); raises ValueError or TypeError for an invalid request."""
    given = json.loads(body)
    if not isinstance(given, dict) or not isinstance(given.get("prompt"), str):
        raise ValueError("expected an object with the text 'prompt'")
    max_tokens = given.get("max_tokens", 64)
    if not isinstance(max_tokens, int) or not 1 <= max_tokens <= 4096:
        raise ValueError(f"'max_tokens': expected 1..4096, found {max_tokens!r}")
    # The same seed gives the same text on every replica.
    drawing = {"temperature": float(given.get("temperature", 0)), "seed": int(given.get("seed", 0))}
    return given["prompt"], {"max_tokens": max_tokens, **drawing}


def line(value):
    return json.dumps(value) + "\n"


@serve.deployment(num_replicas=REPLICAS, max_ongoing_requests=AT_ONCE, max_queued_requests=WAITING,
                  health_check_period_s=2, ray_actor_options={"num_cpus": 1})
class Teller:
    def __init__(self, path):
        # The replicas of a node map the same pages of the file.
        self.model = moe.Model(path, moe.Environment(threads=1), map_weights=True)

    def check_health(self):
        self.model.info  # raises if the model is closed

    async def pieces(self, session, generation):
        with session:
            yield line({"pid": os.getpid()})
            try:
                async for piece in generation:
                    yield line({"text": piece.text, "token": piece.token})
                yield line({"finish": generation.result.finish.name.lower()})
            except moe.MoeError as e:
                yield line({"error": str(e)})
            finally:
                generation.close()  # also if the client disconnects

    async def __call__(self, request):
        try:
            prompt, how = parse(await request.body())
            session = self.model.session()
            generation = session.generate(prompt, **how)
        except (ValueError, TypeError, moe.MoeError) as e:
            return JSONResponse({"error": str(e)}, status_code=400)
        return StreamingResponse(self.pieces(session, generation), media_type="application/x-ndjson")


app = Teller.bind(os.environ.get("MODEL", ""))
