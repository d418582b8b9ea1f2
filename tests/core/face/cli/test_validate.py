"""``slipstick validate``: files of measured points and the evidence of plugins, as a page, as JSON and as a plot."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

# Korthikanti et al., arXiv:2205.05198, table 5: seconds of an iteration, full recomputation and the paper's own.
PUBLISHED = """\
id,source,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpus,gpu_type,tp,pp,dp,cp,ep,interleave,micro_batch,\
global_batch,recompute,seq_parallel,zero_stage,precision,metric,value,notes
T5-1,arXiv:2205.05198,GPT-22B,48,6144,64,64,24576,51200,2048,8,A100-80GB,8,1,1,1,1,1,4,4,full,0,0,fp16,iter_time_s,1.42,
T5-2,arXiv:2205.05198,GPT-22B,48,6144,64,64,24576,51200,2048,8,A100-80GB,8,1,1,1,1,1,4,4,selective,1,0,fp16,iter_time_s,1.10,
T5-3,arXiv:2205.05198,GPT-175B,96,12288,96,96,49152,51200,2048,64,A100-80GB,8,8,1,1,1,3,1,64,full,0,0,fp16,iter_time_s,18.13,
T5-4,arXiv:2205.05198,GPT-175B,96,12288,96,96,49152,51200,2048,64,A100-80GB,8,8,1,1,1,3,1,64,selective,1,0,fp16,iter_time_s,13.75,
T5-5,arXiv:2205.05198,GPT-175B,96,12288,96,96,49152,51200,2048,64,A100-80GB,8,8,1,2,1,3,1,64,full,0,0,fp16,iter_time_s,18.13,
"""

KEYS = ("n", "mean_abs_error", "median_abs_error", "p90_abs_error", "bias", "coverage")

PLUGIN = """\
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.evidence import Claim
from slipstick.core.model.interfaces.trace_reader import TraceReader
from slipstick.core.records.measured import MeasuredPoint
from slipstick.core.model.interfaces.trace_reader import Unread
from slipstick.core.records.provenance import Source
from slipstick.core.records.scenario import Scenario

LOGS = Source("logs", "Logs of ours", "https://example.org/logs", "2026-01-01", "measured")
ASKED = Scenario("train", "llama-3.1-8b", "h100-sxm", {"devices": 8, "global_batch": 8, "recompute": "full"})


@hookimpl
def slipstick_evidence():
    def made(name, value, relation, **more):
        return Claim(name=name, scenario=ASKED, figure="step_time_s", value=value, unit="s", relation=relation,
                     source=LOGS, trust="DATA", **more)

    return [
        made("longer-than-nothing", 1e-6, "at least"),
        made("EXTRA", 1e-6, "equal within", tolerance=0.1),
        Claim(name="odd", expectation=lambda ask: ask(Scenario("train", "no-model", "h100-sxm"))["x"], value=1,
              unit="1", relation="at most", source=LOGS, trust="MEM"),
    ]


class Words(TraceReader):
    name = "words"

    def sniff(self, path, head):
        return head.startswith(b"# tpot of words")

    def rows(self, path):
        setting = {"task": "serve", "concurrency": 8.0, "input_tokens": 512.0, "output_tokens": 128.0}
        yield MeasuredPoint("tpot", 0.02, setting, "llama-3.1-70b", source=path.name, line=2)
        yield Unread("a line of words", "nothing is measured there", 3, 4)


@hookimpl
def slipstick_trace_readers():
    return [Words()]
"""


@pytest.fixture
def points(tmp_path: Path) -> str:
    path = tmp_path / "points.csv"
    path.write_text(PUBLISHED)
    return str(path)


def test_the_json_has_the_documented_keys(slipstick: Run, points: str) -> None:
    done = slipstick("validate", points, "--stack", "ideal", "--json", "--rows")
    assert done.status == 0
    assert done.err == ""
    found = done.json
    for part in (found["overall"], *found["by_metric"].values(), *found["by_source"].values(),
                 *found["by_group"].values()):  # fmt: skip
        assert set(KEYS) <= part.keys()
    assert found["overall"]["n"] == 4
    assert found["skipped"] == [
        {
            "id": "T5-5",
            "metric": "iteration",
            "reason": "can't be laid out: tp times cp times pp must divide the number of devices "
            "(tp 8, cp 2, pp 8, devices 64)",
            "source": "T5",
        }
    ]
    assert found["overall"]["mean_abs_error_with_skipped"] == pytest.approx(
        (4 * found["overall"]["mean_abs_error"] + 1) / 5
    )
    measured = {row["id"]: row["measured"] for row in found["rows"]}
    assert measured == {"T5-1": 1.42, "T5-2": 1.10, "T5-3": 18.13, "T5-4": 13.75}
    # The published tools reach 4 to 11 % on this table with an efficiency of their own; stated ones come within 25 %.
    assert all(abs(row["error"]) < 0.25 for row in found["rows"])
    assert list(found["by_group"]) == ["T5 | iteration | A100-80GB"]


def test_the_page_tells_errors_and_what_was_skipped(slipstick: Run, points: str) -> None:
    done = slipstick("validate", points, "--stack", "ideal", "--group-by", "model,recompute", "--rows")
    assert done.status == 0
    assert done.out.startswith("validate: 4 of 5 measured points predicted\n")
    for words in (
        "iteration",
        "constant",
        "regret",
        "GPT-22B | full",
        "can't be laid out: tp times cp",
        "T5-3",
    ):
        assert words in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_points_are_picked(slipstick: Run, points: str) -> None:
    asked = ("validate", points, "--stack", "ideal", "--json")
    assert slipstick(*asked, "--filter", "recompute=selective").json["overall"]["n"] == 2
    assert slipstick(*asked, "--limit", "1").json["overall"]["n"] == 1
    assert slipstick(*asked, "--metric", "iteration", "--filter", "model=gpt-22b").json["overall"]["n"] == 2
    by = slipstick(*asked, "--group-by", "recompute").json["by"]
    assert by["columns"] == ["recompute"]
    assert {name: part["n"] for name, part in by["groups"].items()} == {"full": 2, "selective": 2}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--filter", "model"), "--filter: a name and its value are written NAME=VALUE"),
        (("--filter", "modle=x"), "unknown column 'modle'; did you mean model"),
        (("--group-by", "nothing"), "unknown column 'nothing'"),
        (("--metric", "tpot"), "no point is left"),
        (("--stack", "nothing"), "unknown stack 'nothing'"),
        (("--plugin", "ideal"), "--plugin is for the evidence of plugins"),
        (("--plot", "errors.txt"), "ends in none of .png, .svg, .pdf"),
        (("--plot", "/no/such/folder/errors.png"), "the folder of"),
    ],
)
def test_bad_options_are_one_line(slipstick: Run, points: str, words: tuple[str, ...], told: str) -> None:
    done = slipstick("validate", points, *words)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert told in done.err


def test_a_bad_file_is_one_line_with_its_place(slipstick: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("model,gpus,gpu_type,metric,value\nGPT,8,H100,iter_time_s,1\nGPT,8,H100,iter_time_s,nan\n")
    done = slipstick("validate", str(path), "--json")
    assert (done.status, done.out) == (2, "")
    assert f"{path}, line 3: value is 'nan'" in done.err
    done = slipstick("validate", str(tmp_path / "none.csv"))
    assert done.status == 2
    assert "can't be read" in done.err


def test_a_plot_says_what_it_needs(
    slipstick: Run, points: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "errors.png"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = slipstick("validate", points, "--plot", str(target))
    assert (done.status, done.out) == (2, "")
    assert "--plot needs matplotlib, which is not installed: pip install 'slipstick[plot]'" in done.err
    assert list(tmp_path.glob("*.png")) == []


@pytest.mark.parametrize(("name", "start"), [("errors.png", b"\x89PNG"), ("errors.svg", b"<?xml")])
def test_a_plot_is_drawn(slipstick: Run, points: str, tmp_path: Path, name: str, start: bytes) -> None:
    pytest.importorskip("matplotlib")
    target = tmp_path / name
    done = slipstick("validate", points, "--stack", "ideal", "--plot", str(target))
    assert done.status == 0
    assert target.read_bytes().startswith(start)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, "points.csv"])


# --- the evidence of plugins ----------------------------------------------------------------------------------------


@pytest.fixture
def plugin(tmp_path: Path) -> Callable[[str], str]:
    """The path of the plugin above, with one claim named as asked."""

    def made(extra: str) -> str:
        path = tmp_path / "evidence_plugin.py"
        path.write_text(PLUGIN.replace("EXTRA", extra))
        return str(path)

    return made


def test_evidence_is_asked_and_told(slipstick: Run, plugin: Callable[[str], str]) -> None:
    done = slipstick("--plugin", plugin("as-fast-as-light"), "validate", "--json")
    assert done.status == 1  # a claim that does not hold
    found = {item["name"]: item for item in done.json["claims"]}
    assert found["longer-than-nothing"]["held"] is True
    assert found["as-fast-as-light"]["held"] is False
    assert found["as-fast-as-light"]["predicted"][0] > 0.1
    assert found["odd"]["held"] is None
    assert "no-model" in found["odd"]["reason"]
    assert found["odd"]["plugin"] == found["longer-than-nothing"]["plugin"]
    ours = done.json["by_group"][found["odd"]["plugin"]]
    assert set(KEYS) <= ours.keys()
    assert [item["id"] for item in done.json["skipped"]] == ["odd"]


def test_the_page_of_evidence_and_one_plugin_alone(slipstick: Run, plugin: Callable[[str], str]) -> None:
    path = plugin("as-fast-as-light")
    done = slipstick("--plugin", path, "validate", "--plugin", "evidence_plugin")
    assert done.status == 1
    assert done.out.startswith("validate: 3 claims, 1 hold, 1 do not, 1 could not be asked\n")
    assert "FAILS" in done.out
    other = slipstick("--plugin", path, "validate", "--plugin", "ideal")
    assert other.status == 0
    assert other.out.startswith("validate: 0 claims")
    wrong = slipstick("--plugin", path, "validate", "--plugin", "no-plugin")
    assert wrong.status == 2
    assert "unknown plugin 'no-plugin'" in wrong.err


def test_options_of_points_need_a_file(slipstick: Run) -> None:
    done = slipstick("validate", "--limit", "3")
    assert done.status == 2
    assert "--limit is for measured points: give a FILE" in done.err


def test_a_file_that_a_reader_knows_is_completed_by_options(
    slipstick: Run, plugin: Callable[[str], str], tmp_path: Path
) -> None:
    log = tmp_path / "run.log"
    log.write_text("# tpot of words\n")
    words = ("--plugin", plugin("x"), "validate", str(log), "--json")
    bare = slipstick(*words).json
    assert bare["overall"]["n"] == 0
    assert {item["reason"] for item in bare["skipped"]} == {"the accelerator is not named", "nothing is measured there"}
    assert bare["overall"]["skipped"] == 4
    full = slipstick(*words, "--on", "h100-sxm", "--set", "devices=8", "--set", "tp=8", "--rows").json
    assert full["overall"]["n"] == 1
    served = slipstick(
        "serve", "llama-3.1-70b", "--on", "h100-sxm", "--gpus", "8", "--tp", "8", "--concurrency", "8",
        "--input", "512", "--output", "128", "--json",
    ).json  # fmt: skip
    assert full["rows"][0]["predicted"] == served["tpot_s"]
    assert full["rows"][0]["error"] == pytest.approx(served["tpot_s"] / 0.02 - 1)
