"""The pages of docs/ hold to the code: generated pages are current, tables equal the values, sources exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from slipstick.core.host.host import default_host


def test_generated_pages_are_current(root: Path) -> None:
    spec = importlib.util.spec_from_file_location("generate", root / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, page in module.PAGES.items():
        assert (root / "docs" / name).read_text() == page(), f"docs/{name} is stale: run python docs/generate.py"


def test_the_stated_efficiencies_are_those_of_the_code(root: Path) -> None:
    text = (root / "docs" / "efficiency.md").read_text()
    told = {name: float(value) for name, value in re.findall(r"^\| `([\w@.]+)` \| ([\d.e-]+) \|", text, re.MULTILINE)}
    family = default_host().kernel_families()["measured"]
    kinds = ("compute_efficiency", "memory_efficiency", "link_efficiency", "launch")
    stated = {name: quantity.value for name, quantity in family.defaults().items()}
    assert told == {name: value for name, value in stated.items() if name.partition("@")[0] in kinds}
    roofline = default_host().kernel_families()["roofline"].defaults()
    for name, value in (("compute_efficiency@gemm", 0.78), ("compute_efficiency@attention", 0.6),
                        ("memory_efficiency", 0.82), ("link_efficiency", 0.8)):  # fmt: skip
        assert roofline[name].value == value
        assert f"{value:g}" in text


def test_the_source_of_every_formula_is_a_key_of_the_bibliography(root: Path) -> None:
    keys = set(re.findall(r"^@\w+\{(\w+),", (root / "docs" / "references.bib").read_text(), re.MULTILINE))
    assert len(keys) >= 15
    for family in default_host().kernel_families().values():
        for formula in family.formulas():
            assert formula.source in keys, f"{formula.name}: {formula.source}"


def test_every_paper_named_in_the_code_is_in_the_bibliography(root: Path) -> None:
    listed = set(re.findall(r"arXiv:(\d{4}\.\d{5})", (root / "docs" / "references.bib").read_text()))
    named: dict[str, Path] = {}
    for folder in ("core", "plugins/strategies", "plugins/hardware"):
        for path in (root / folder).rglob("*.py"):
            for number in re.findall(r"arXiv:(\d{4}\.\d{5})", path.read_text()):
                named.setdefault(number, path)
    missing = {number: str(path) for number, path in named.items() if number not in listed}
    assert not missing


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_of_a_page_lead_somewhere(root: Path, page: str) -> None:
    text = (root / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert (root / target).exists(), f"{page}: {target}"


def test_links_inside_docs_lead_somewhere(root: Path) -> None:
    pages = list((root / "docs").glob("*.md"))
    assert pages
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"
