"""docs/api.md keeps to the code: its examples run in order, each in what the earlier ones left."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import slipstick
from slipstick.core.study.prediction import Prediction

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_example_runs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    text = "\n".join(blocks)
    parsed = doctest.DocTestParser().get_doctest(text, {}, "docs/api.md", "docs/api.md", 0)
    assert len(parsed.examples) > 20
    told: list[str] = []
    failed, tried = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(parsed, out=told.append)
    assert failed == 0, "".join(told)
    assert tried == len(parsed.examples)


def test_every_member_and_function_is_described() -> None:
    for name in ("train", "serve", "sweep", "derive", "UserError", "NotFeasible", "Host"):
        assert name in slipstick.__all__
        assert f"slipstick.{name}" in PAGE or f"`{name}`" in PAGE, name
    members = re.findall(r"^\| `\.(\w+)", PAGE, re.MULTILINE)
    assert len(members) >= 9
    assert all(hasattr(Prediction, member) for member in members)
