#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several models in one moe serve on a machine with little memory: which of them make room, and for what.

Usage: model_room_test.py MOE MODEL CHECKPOINT CHAT LIBFAKE_MACHINE
"""

import json
import os
import sys

from models_test import Several
from support import CHAT, MODEL, Cli, machine_of, main

SHIM = sys.argv[5]
SLOTS = 256  # of which the model's file says nothing


class ModelRoom(Cli):
    def setUp(self):
        super().setUp()
        plan = json.loads(self.ok("inspect", MODEL, "--json", "--memory", "100T").stdout)["plan"]
        self.needed = plan["needed_bytes"] + (SLOTS - 1) * plan["session_bytes"]
        self.assertGreater(self.needed, 50 * os.path.getsize(MODEL))

    def serve(self, share, *args, **models):
        """On a machine whose available memory is always `share` times what a model needs with its sessions, whatever
        the server has taken of it."""
        machine = machine_of(self, SHIM, int(share * self.needed) * 16 // 15, 100 * self.needed)
        slots = () if "--slots" in args else ("--slots", str(SLOTS))
        return Several(self, *slots, *args, env=machine, **models)

    def use(self, server, *names):
        for name in names:
            self.assertTrue(server.complete("The dog", max_tokens=4, model=name))

    def test_models_make_room_for_the_sessions_of_others(self):
        """Hardly any of the memory is taken while texts are short."""
        server = self.serve(1.2, a=MODEL, b=MODEL, c=MODEL)
        for name in "abca":
            self.use(server, name)
            server.wait_until_open_are(name)
        self.assertNotIn("the cap is", server.text())

    def test_as_many_stay_as_fit(self):
        server = self.serve(2.1, a=MODEL, b=MODEL, c=MODEL)
        self.use(server, "a", "b")
        server.wait_until_open_are("a", "b")
        self.use(server, "a", "c")  # b was used longest ago
        server.wait_until_open_are("a", "c")

    def test_a_cap_is_what_a_model_may_take(self):
        for share, stay in ((1.2, "b"), (2.1, "ab")):
            server = self.serve(share, "--memory", str(self.needed), a=MODEL, b=MODEL)
            self.use(server, "a", "b")
            server.wait_until_open_are(*stay)
            server.kill()

    def test_mapped_weights_take_nothing_but_sessions_do(self):
        server = self.serve(1.2, "--map", a=MODEL, b=MODEL)
        self.use(server, "a", "b")
        server.wait_until_open_are("b")

    def test_the_memory_of_models_in_use_is_theirs(self):
        for args in ((), ("--memory", str(self.needed))):
            with self.subTest(args=args):
                server = self.serve(1.2, *args, a=MODEL, b=MODEL)
                server.hold_back_b_while_a_is_in_use()
                server.kill()

    def test_a_cap_that_is_too_small_closes_nobody(self):
        small = self.path("small.moe")
        self.ok("convert", CHAT, small, "--weights", "f32")
        server = self.serve(9, "--slots", "1", "--memory", "2M", a=small, b=MODEL)
        server.post("/v1/completions", {"prompt": "a", "model": "a", "max_tokens": 1})
        error, _ = server.refuses(500, {"prompt": "a", "model": "b"})
        self.assertIn("cannot be opened", error["message"])
        self.assertIn("is too small", server.text())
        server.wait_until_open_are("a")


if __name__ == "__main__":
    main()
