"""docs/json.md names every key that a command really prints, and no other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slipstick.calibration.deployment import Deployment
from slipstick.core.records.fitted import ErrorSummary
from slipstick.core.records.fitted_toml import write_records
from slipstick.core.records.stack import StackRecord

Run = Callable[..., Any]
Path_ = tuple[str, ...]

# Section of the page that describes what stands at a path of a section: trees, values, tensors, whole answers.
MOUNTS: dict[str, dict[Path_, str]] = {
    "An answer": {("tree", "NAME"): "A node of a tree"},
    "A node of a tree": {("children", "[]"): "A node of a tree"},
    "Several answers": {("predictions", "[]"): "An answer"},
    "A search": {("best",): "An answer"},
    "`hardware show`": {
        ("values", "NAME"): "A value",
        ("rates", "NAME"): "A value",
        ("parameters", "NAME"): "A value",
        ("tiers", "[]", "bandwidth"): "A value",
        ("tiers", "[]", "latency"): "A value",
        ("node",): "`hardware show`",
        ("host",): "`hardware show`",
        ("source",): "A source",
    },
    "`validate`": {
        ("overall",): "Scores",
        ("by_metric", "NAME"): "Scores",
        ("by_source", "NAME"): "Scores",
        ("by_group", "NAME"): "Scores",
        ("by", "groups", "NAME"): "Scores",
    },
    "`validate`, evidence": {
        ("overall",): "Scores",
        ("by_metric", "NAME"): "Scores",
        ("by_source", "NAME"): "Scores",
        ("by_group", "NAME"): "Scores",
    },
    "`calibrate fit`": {("records", "[]"): "A fitted record"},
    "`calibrate show`": {("records", "[]"): "A fitted record"},
    "`calibrate records`": {("accelerators", "NAME", "[]"): "A fitted record"},
    "`models show`": {
        ("blocks", "[]", "operations", "[]", role, "[]"): "A tensor" for role in ("reads", "writes", "weights")
    },
}
SOURCE: set[Path_] = {("title",), ("url",), ("date",), ("kind",)}


@pytest.fixture(scope="module")
def sections(root: Path) -> dict[str, set[Path_]]:
    """Section of the page → the patterns of its tables."""
    text = (root / "docs" / "json.md").read_text(encoding="utf-8")
    found: dict[str, set[Path_]] = {"A source": SOURCE}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        name = title.split(":")[0].strip()
        for piece, words in pieces(name, body):
            keys = [key for line in words.splitlines() for key in re.findall(r"`([^`]+)`", first_cell(line))]
            found.setdefault(piece, set()).update(parsed(key) for key in keys)
    return found


def pieces(name: str, body: str) -> Iterator[tuple[str, str]]:
    """A section, and what in it has a table of its own: a value, a tensor, scores, a fitted record."""
    parts = re.split(r"^(A value|A tensor|Scores|A fitted record):$", body, flags=re.MULTILINE)
    yield name, parts[0]
    yield from zip(parts[1::2], parts[2::2], strict=True)


def first_cell(line: str) -> str:
    """The first cell of a row of a table."""
    return line.split("|")[1] if line.startswith("| `") else ""


def parsed(key: str) -> Path_:
    """ "a.b[].c" as its steps."""
    return tuple(step for part in key.split(".") for step in re.findall(r"\[\]|[^\[\]]+", part))


def matches(path: Path_, pattern: Path_) -> bool:
    return len(path) == len(pattern) and begins(path, pattern)


def begins(path: Path_, pattern: Path_) -> bool:
    """Whether ``path`` is the beginning of ``pattern``."""
    return len(path) <= len(pattern) and all(p in ("NAME", s) for s, p in zip(path, pattern, strict=False))


class Walk:
    """Goes through documents; remembers which patterns were met and which paths have none."""

    def __init__(self, sections: dict[str, set[Path_]]) -> None:
        self.sections = sections
        self.met: dict[str, set[Path_]] = {name: set() for name in sections}
        self.unknown: set[str] = set()

    def document(self, value: Any, section: str, path: Path_ = ()) -> None:
        mount = next((m for m in MOUNTS.get(section, {}) if matches(path, m)), None)
        if mount is not None and isinstance(value, dict):
            self.met[section] |= {p for p in self.sections[section] if matches(path, p)}
            self.document(value, MOUNTS[section][mount])
            return
        if path:
            self.check(value, section, path)
        if isinstance(value, dict):
            for key, item in value.items():
                self.document(item, section, (*path, key))
        elif isinstance(value, list):
            self.check(None, section, (*path, "[]"), quiet=not value)
            for item in value:
                self.document(item, section, (*path, "[]"))

    def check(self, value: Any, section: str, path: Path_, quiet: bool = False) -> None:
        patterns = self.sections[section]
        met = {p for p in patterns if matches(path, p)}
        self.met[section] |= met
        leads = isinstance(value, dict | list) or path[-1] == "[]"
        if not met and not quiet and not (leads and any(begins(path, p) for p in patterns)):
            self.unknown.add(f"{section}: {'.'.join(path)}")


TRAIN = ("train", "llama-3.1-8b", "--on", "h100-sxm", "--gpus", "8")
EVIDENCE = """
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.evidence import Claim
from slipstick.core.records.provenance import Source

SOURCE = Source("paper", "a paper", "https://example.org", "2026-11-30")

def lost(ask):
    raise ValueError("lost")

@hookimpl
def slipstick_evidence():
    return [
        Claim(name=name, expectation=what, value=1, unit="1", relation="equal within", tolerance=0.1, source=SOURCE,
              trust="DATA", note="a note")
        for name, what in (("one", lambda ask: 1.05), ("lost", lost))
    ]
"""
POINTS = """id,model,system,devices,tp,concurrency,input_len,output_len,precision,tpot_ms
1,Llama-3.1-8B,h100_sxm,1,1,8,1024,256,bf16,10
2,NoSuchModel,h100_sxm,1,1,8,1024,256,bf16,10
"""


def deployment() -> Deployment:
    """What six points might make of a stack; that it comes out so is tested elsewhere and takes seconds."""
    error = ErrorSummary(6, 0.1, 0.1, 0.2, 0.0)
    return Deployment(
        task="serve", accelerator="h100-sxm", stack="vllm", points=6, before=error, after=error, constant=error,
        values={"time_factor": (1.0, 1.1)}, record=StackRecord(name="x", title="X", kernels={}, fits=()),
        skipped={"unknown model": 1},
    )  # fmt: skip


SERVE = ("serve", "deepseek-v3", "--on", "h200-sxm", "--gpus", "8", "--tp", "8")


@pytest.fixture(scope="module")
def walk(
    sections: dict[str, set[Path_]], slipstick: Run, tmp_path_factory: pytest.TempPathFactory, slotted_file: Path,
    chip_text: str, fitted: Callable[..., Any],
) -> Walk:  # fmt: skip
    """Every kind of document, walked through."""
    folder = tmp_path_factory.mktemp("scenarios")
    a, b = str(folder / "a.toml"), str(folder / "b.toml")
    # An accelerator with fitted records, one of them for heads of another width than the model's.
    chip = folder / "bench-chip.toml"
    chip.write_text(chip_text, encoding="utf-8")
    ranges = {"flops": (1.0, 1e15)}
    records = [fitted(spread={"launch": 0.1}, ranges=ranges),
               fitted("attention.context", where={"head_dim": (64.0, 64.0)})]  # fmt: skip
    write_records(folder / "fitted" / "bench-chip.lab.toml", records)
    evidence = folder / "evidence.py"
    evidence.write_text(EVIDENCE, encoding="utf-8")
    points = folder / "points.csv"
    points.write_text(POINTS, encoding="utf-8")
    slotted = ("--plugin", str(slotted_file))
    own = ("llama-3.1-8b", "--on", str(chip), "--gpus", "8")
    trace = folder / "trace.txt"
    trace.write_text("slotted 8192 4096 14336 0.02\nlost\n", encoding="utf-8")
    walk = Walk(sections)
    for section, words in (
        ("An answer", (*TRAIN, "--tokens", "15T", "--price", "2.5", "--save", a)),
        ("An answer", (*TRAIN, "--price", "2.5", "--tp", "8", "--save", b)),
        ("An answer", SERVE),
        ("An answer", ("serve", "llama-3.1-70b", "--on", "l4")),
        ("An answer", ("explain", *TRAIN, "--depth", "3")),
        ("An answer", ("--plugin", str(slotted_file), "train", *own)),
        ("`explain --memory`", ("explain", *TRAIN, "--pp", "2", "--memory")),
        ("`explain --against`", ("--plugin", str(slotted_file), "explain", "train", *own, "--against", str(trace))),
        ("Several answers", (*TRAIN, "--tp", "1,2")),
        ("A search", (*TRAIN, "--tp", "?")),
        ("A search", ("serve", "llama-3.1-70b", "--on", "l4", "--gpus", "1", "--tp", "?")),
        ("`validate`", ("validate", str(points), "--rows", "--group-by", "model")),
        ("`validate`, evidence", ("--plugin", str(evidence), "validate", "--plugin", "evidence")),
        (
            "`calibrate fit`",
            (*slotted, "calibrate", "fit", str(trace), "--device", str(chip), "--family", "slotted", "--dry-run"),
        ),
        ("`calibrate show`", (*slotted, "calibrate", "show", str(chip))),
        ("`calibrate records`", (*slotted, "calibrate", "records")),
        ("`calibrate deployment`", ("calibrate", "deployment", str(points), "--dry-run")),
        ("`derive`", ("derive", *SERVE, "--by", "hbm_bandwidth")),
        ("`diff`", ("diff", a, b)),
        ("`hardware list`", ("hardware", "list")),
        ("`hardware show`", ("hardware", "show", "h100-sxm")),
        ("`hardware show`", ("hardware", "show", "hgx-h100")),
        ("`hardware show`", ("hardware", "show", "nvlink4")),
        ("`hardware validate`", ("hardware", "validate", "none.toml")),
        ("`models list`", ("models", "list")),
        ("`models show`", ("models", "show", "deepseek-v3")),
        ("`models show`", ("models", "show", "gpt2")),
        ("`plugins`", ("plugins",)),
    ):
        with pytest.MonkeyPatch.context() as patch:
            if section == "`calibrate records`":  # one's own, not the many that are shipped
                patch.setenv("SLIPSTICK_HARDWARE_DIR", str(folder))
                patch.setenv("SLIPSTICK_DISABLE_PLUGINS", "common")
            patch.setattr("slipstick.calibration.deployment.deployments", lambda *_: [deployment()])
            done = slipstick(*words, "--json")
        assert done.out.endswith("}\n"), done.err
        walk.document(done.json, section)
    return walk


def test_every_key_that_is_printed_is_described(walk: Walk) -> None:
    assert sorted(walk.unknown) == []


def test_every_key_that_is_described_is_printed(walk: Walk, sections: dict[str, set[Path_]]) -> None:
    # A list that is empty here, or a value that only some record has.
    rare: dict[str, set[Path_]] = {
        "`hardware show`": {("parameters", "NAME")},
        "`validate`": {("skipped", "[]", "count")},
    }
    missing = {
        (name, pattern)
        for name, patterns in sections.items()
        for pattern in patterns - walk.met[name] - rare.get(name, set())
    }
    assert sorted(missing) == []


def test_the_walk_notices_what_is_not_described(sections: dict[str, set[Path_]]) -> None:
    walk = Walk(sections)
    walk.document({"schema": 1, "nonsense": 3, "tree": {"step": {"name": "x", "colour": "red"}}}, "An answer")
    assert walk.unknown == {"An answer: nonsense", "A node of a tree: colour"}


def test_every_document_has_its_version(slipstick: Run) -> None:
    for words in (TRAIN, (*TRAIN, "--tp", "1,2"), (*TRAIN, "--tp", "?"), ("models", "list"), ("hardware", "list")):
        assert slipstick(*words, "--json").json["schema"] == 1
