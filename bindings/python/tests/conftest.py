# SPDX-License-Identifier: MIT
"""Fixtures that most tests share: an environment, the stories model, a session."""

import pathlib

import moe
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
STORIES = ROOT / "examples/models/stories.moe"
PROMPT = "Once upon a time"


@pytest.fixture(scope="session")
def environment():
    with moe.Environment(threads=2) as env:
        yield env


@pytest.fixture(scope="session")
def model(environment):
    with moe.Model(STORIES, environment) as m:
        yield m


@pytest.fixture
def session(model):
    with model.session() as s:
        yield s
