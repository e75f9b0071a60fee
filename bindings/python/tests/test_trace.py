# SPDX-License-Identifier: MIT
"""python -m moe trace: the page of a trace's figures, and what is refused."""

import html
import json
import re

import pytest
from moe import ArgumentError
from moe.__main__ import main
from moe.analyse import trace_page
from test_analyse import Elements

FIGURES = {
    "trace": "book.csv", "n_layers": 2, "n_experts": 4, "n_experts_used": 2, "prompt_tokens": 1, "decoded_tokens": 2,
    "uses": 8, "first_uses": 0.25, "window": 16,
    "budgets": [{"share": share, "experts": int(8 * share), "lru": share / 2, "best": share, "found": [share, 0.5]}
                for share in (0.0625, 0.125, 0.25, 0.5, 0.75, 1.0)],
    # of layer 0 six uses: the even share is 1.5; of layer 1 twenty: 5
    "uses_of_experts": [[0, 1, 3], [0, 2, 3], [1, 0, 19], [1, 3, 1]],
    "experts_per_token": [2, 1.5, 2], "used_so_far": [0.25, 0.5, 0.5], "used_lately": [0.25, 0.5, 0.375],
}


def parts_of(page):
    """{name: values} of the curves, {class: cells} of the heat map, and the table's cells."""
    elements = Elements()
    elements.feed(page)
    assert elements.open == []
    paths = [a for tag, a in elements.seen if tag == "path"]
    curves = {a["data-name"]: [tuple(map(float, v.split(","))) for v in a["data-values"].split()]
              for a in paths if a["class"].startswith("curve")}
    cells = {a["class"]: re.findall(r"M(\d+) (\d+)h1", a["d"]) for a in paths if re.fullmatch("l[0-4]", a["class"])}
    return curves, cells, re.findall("<td>(.*?)</td>", page)


def test_page():
    page = trace_page(FIGURES)
    assert not re.search(r"(?i)<script|<link|<img|src=|href=|url\(|@import|http", page)
    curves, cells, table = parts_of(page)
    assert curves == {
        "experts": [(0, 2), (1, 1.5), (2, 2)], "so far": [(0, 0.25), (1, 0.5), (2, 0.5)],
        "last 16 tokens": [(0, 0.25), (1, 0.5), (2, 0.375)],
        **{f"{100 * s:g} % in memory": [(0, s), (1, 0.5)] for s in (0.125, 0.25, 0.5, 0.75)}}
    assert cells == {"l2": [("1", "0"), ("2", "0")], "l3": [("0", "1")], "l0": [("3", "1")]}
    assert table[:8] == ["6.25 %", "0", "0.031", "0.062", "12.5 %", "1", "0.062", "0.125"]
    assert "in every cache: 0.250" in page and page.count(">decoding<") == 2
    assert ">100 %<" in page and ">0 %<" in page


def test_a_long_trace_makes_a_short_page():
    n = 20000
    values = [i % 2 for i in range(n)]
    budgets = [{"share": 1, "experts": 2, "lru": 1, "best": 1, "found": values}]
    page = trace_page(FIGURES | {"budgets": budgets, "experts_per_token": values, "used_so_far": values,
                                 "used_lately": values, "decoded_tokens": n})
    assert len(page) < 150000
    curves, _, _ = parts_of(page)
    assert len(curves["experts"]) == 600
    assert curves["experts"][0] == (0, pytest.approx(0.5, abs=0.02)) and curves["experts"][-1][0] == n - 1


def test_little_and_hostile():
    name = "a<script>alert(1)</script>&\"'\x01é.csv"
    budgets = [{"share": 1.0, "experts": 1, "lru": 0, "best": 0, "found": [0]}]
    page = trace_page({"trace": name, "n_layers": 1, "n_experts": 1, "n_experts_used": 1, "prompt_tokens": 0,
                       "decoded_tokens": 1, "uses": 1, "first_uses": 1, "window": 16, "budgets": budgets,
                       "uses_of_experts": [[0, 0, 1]], "experts_per_token": [1], "used_so_far": [1], "used_lately": [1]})
    parts_of(page)
    assert "<script" not in page and html.escape(name.replace("\x01", "?")) in page
    assert not re.search(r"\b(nan|inf)\b", re.sub("<style>.*</style>", "", page, flags=re.S))


def test_command(tmp_path, capsys):
    figures, page = tmp_path / "f.json", tmp_path / "page.html"
    figures.write_text(json.dumps(FIGURES))
    assert main(["trace", str(figures), "-o", str(page)]) == 0
    assert page.read_text() == trace_page(FIGURES)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("given", [
    b"", b"{", b"\xff", b"phase,step,layer", b"[" * 100000, b"[]", b"{}", b"null",
    json.dumps(FIGURES | {"budgets": [{"share": 1}]}).encode(), json.dumps(FIGURES | {"n_layers": "2"}).encode(),
    json.dumps(FIGURES | {"experts_per_token": []}).encode(), json.dumps(FIGURES | {"uses_of_experts": [[5, 0, 1]]}).encode(),
    json.dumps(FIGURES | {"n_experts": 0}).encode(),
])
def test_other_files_are_refused(tmp_path, capsys, given):
    (tmp_path / "f").write_bytes(given)
    assert main(["trace", str(tmp_path / "f"), "-o", str(tmp_path / "page.html")]) == 1
    assert "moe trace --curves wrote" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_wrong_figures_are_an_argument_error():
    with pytest.raises(ArgumentError, match="expected figures that moe trace --curves wrote, found others"):
        trace_page({})
