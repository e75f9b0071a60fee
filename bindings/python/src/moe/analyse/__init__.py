# SPDX-License-Identifier: MIT
"""How a model routes a text: the figures of the papers X-MoE (Chi et al. 2022) and XMoE (Yang et al.
2024), from the choices that Session.watch_routing() shows.

    import moe
    from moe import analyse

    found = analyse.analyse(["step-100.moe", "step-200.moe"], text, others=["seed-2.moe"])
    print(found.models[-1].layers[0].collapse, found.fluctuation, found.consistency)
    pathlib.Path("page.html").write_text(analyse.page(found))

or `python -m moe analyse step-100.moe step-200.moe -f text.txt -o page.html`.
"""

from .measures import (
    Collapse,
    consistency,
    fluctuation,
    load_consistency,
    needed,
    probabilities,
    representation_collapse,
)
from .report import page, sections, tables
from .runs import Analysis, Layer, Recording, SweepRow, analyse, compare, record, sweep, tokens_of
from .trace import trace_page

__all__ = [
    "Analysis", "Collapse", "Layer", "Recording", "SweepRow", "analyse", "compare", "consistency",
    "fluctuation", "load_consistency", "needed", "page", "probabilities", "record", "representation_collapse",
    "sections", "sweep", "tables", "tokens_of", "trace_page",
]
