#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests without a cluster: the filled-in files conform to Kubernetes' schema, the memory request is
sufficient for the commands, a server that is asked to end answers what it has taken, and killed workers
are continued.

Usage: test.py BUILD_DIR     (pip install kubernetes-validate)"""

import concurrent.futures
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request as http

import kubernetes_validate
import yaml

HERE = pathlib.Path(__file__).resolve().parent
MOE = os.path.abspath(f"{sys.argv[1]}/bin/moe")
MODEL = HERE.parent / "models/stories.moe"
LINES = 200
SESSIONS = 8


def filled(*options):
    command = [sys.executable, HERE / "fill.py", MODEL, "--moe", MOE, "--sessions", str(SESSIONS), *options]
    return list(yaml.safe_load_all(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))


def try_schema():
    """Those of KServe and of the inference extension are not in Kubernetes' schema."""
    for options in ([], ["--kind", "deployment"], ["--kind", "serve"], ["--memory", "32M", "--context", "256"]):
        for document in filled(*options):
            version = kubernetes_validate.latest_version()
            kubernetes_validate.validate(document, version, strict=True)
            print(f"{document['kind']} {' '.join(options)}: fits the schema of Kubernetes {version}")
    serve = filled("--kind", "serve")[-1]["spec"]["template"]
    runtime, _ = filled("--kind", "kserve")
    pool, route = filled("--kind", "pool")
    with_path = [a.replace("/models/", "/mnt/models/") for a in serve["spec"]["containers"][0]["args"]]
    assert runtime["spec"]["containers"][0]["args"] == with_path
    assert pool["spec"]["selector"]["matchLabels"] == serve["metadata"]["labels"]
    assert route["spec"]["rules"][0]["backendRefs"][0]["name"] == pool["metadata"]["name"]


def container(*options):
    return filled(*options)[-1]["spec"]["template"]["spec"]["containers"][0]


def requested(*options):
    return int(container(*options)["resources"]["requests"]["memory"].removesuffix("Mi"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def try_serve(folder):
    """The command of the deployment, with as many requests as it has slots, of which SIGTERM finds some unanswered."""
    port = free_port()
    (folder / "keys").write_text("key\n")
    (folder / "keys").chmod(0o440)
    words = container("--kind", "serve")["args"]
    words = [w.replace("/models/stories.moe", str(MODEL)).replace("/keys/keys", str(folder / "keys")).replace("=8080", f"={port}")
             for w in words]
    process = subprocess.Popen([MOE, *words], stderr=subprocess.DEVNULL)

    def ask(path, body=None):
        return http.urlopen(http.Request(f"http://127.0.0.1:{port}{path}", body and json.dumps(body).encode(), {
            "Content-Type": "application/json", "Authorization": "Bearer key"} if body else {}), timeout=300).read().decode()

    def listens():
        try:
            return ask("/health")
        except OSError:
            return False

    wait_for(listens)
    body = {"prompt": "The old fox", "max_tokens": 400, "temperature": 1, "ignore_eos": True}
    with concurrent.futures.ThreadPoolExecutor(SESSIONS) as clients:
        answers = [clients.submit(ask, "/v1/completions", {**body, "seed": i}) for i in range(SESSIONS)]
        wait_for(lambda: f"moe_requests_total {SESSIONS}" in ask("/metrics"))
        process.send_signal(signal.SIGTERM)
        texts = [json.loads(a.result())["usage"]["completion_tokens"] for a in answers]
    _, status, usage = os.wait4(process.pid, 0)
    asked = requested("--kind", "serve")
    print(f"moe serve: {usage.ru_maxrss / 1024:.1f} MiB at most, requested {asked} MiB; {len(texts)} answers after SIGTERM")
    assert status == 0 and texts == [400] * SESSIONS and usage.ru_maxrss <= asked * 1024


def try_memory(folder):
    """The requested memory is sufficient. The peak of the process includes the mapped pages of the file."""
    for options in ([], ["--memory", "32M", "--context", "256"]):
        out = folder / f"memory{len(options)}.jsonl"
        command = [MOE, "batch", MODEL, folder / "in.jsonl", out, "-n", "64", "--sessions", str(SESSIONS),
                   "--threads", "2", "--device", "cpu", *options]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        asked = requested(*options)
        print(f"moe batch {' '.join(options)}: {usage.ru_maxrss / 1024:.1f} MiB at most, requested {asked} MiB")
        assert status == 0 and usage.ru_maxrss <= asked * 1024


def worker(queue, state):
    environment = {**os.environ, "STATE": str(state), "WAIT": "0.1", "PATH": f"{os.path.dirname(MOE)}:{os.environ['PATH']}"}
    return subprocess.Popen(["sh", HERE / "worker.sh", MODEL, queue, "-n64", "--threads=1", "--sessions=2"],
                            env=environment, stderr=subprocess.DEVNULL, start_new_session=True)


def alive(state, minutes="1"):
    return subprocess.run(["sh", HERE / "worker.sh", "--alive", minutes],
                          env={**os.environ, "STATE": str(state)}).returncode == 0


def wait_for(condition):
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "nothing happened for five minutes"
        time.sleep(0.01)


def stop(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def try_workers(folder):
    queue, states = folder / "queue", [folder / "first", folder / "second"]
    (queue / "in").mkdir(parents=True)
    for name in ("a.jsonl", "b.jsonl"):
        (queue / "in" / name).write_bytes((folder / "in.jsonl").read_bytes())
    assert not alive(states[0])
    workers = [worker(queue, state) for state in states]
    wait_for(lambda: (queue / "out/a.jsonl").exists() and (queue / "out/a.jsonl").stat().st_size > 1000)
    assert alive(states[0]) and alive(states[1])
    stop(workers[0])
    wait_for(lambda: len(list((queue / "done").iterdir())) == 2)
    stop(workers[1])
    old = time.time() - 3600
    for file in (*states, *(queue / "out").iterdir()):
        os.utime(file, (old, old))
    assert not alive(states[0]) and not alive(states[1])
    expected = folder / "memory0.jsonl"
    same = [file.read_bytes() == expected.read_bytes() for file in (queue / "out").iterdir()]
    print(f"two workers, one of them killed: {len(same)} results, {same.count(False)} differ")
    assert same == [True, True] and not list((queue / "refused").iterdir())


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "in.jsonl").write_text("".join(
            json.dumps({"prompt": f"The {a} {b}", "id": i}) + "\n"
            for i, (a, b) in enumerate([("old", "fox"), ("quiet", "girl"), ("brave", "miller")] * LINES) if i < LINES))
        try_schema()
        try_memory(folder)
        try_serve(folder)
        try_workers(folder)


if __name__ == "__main__":
    main()
