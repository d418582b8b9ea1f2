"""``slipstick hardware``: names, values with sources, and every problem of a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstick.core.host.host import Host

Run = Callable[..., Any]

CHIP = """
schema = 1
kind = "accelerator"
name = "mychip"
title = "My chip"
vendor = "Example"
{extra}
[sources.sheet]
title = "sheet"
url = "https://example.com"
date = "2026"
[values]
memory_capacity = {{ value = "96 GB", source = "sheet" }}
memory_bandwidth = {{ value = "{bandwidth}", source = "sheet" }}
[rates]
fp32 = {{ value = "100 TFLOP/s", source = "sheet" }}
bf16 = {{ value = "800 TFLOP/s", source = "sheet" }}
"""


@pytest.fixture
def chip(tmp_path: Path) -> Callable[..., str]:
    """Write a file of an accelerator; its path."""

    def write(name: str = "mychip.toml", bandwidth: str = "4 TB/s", extra: str = "") -> str:
        path = tmp_path / name
        path.write_text(CHIP.format(bandwidth=bandwidth, extra=extra))
        return str(path)

    return write


def test_the_list_has_every_accelerator_in_human_units(slipstick: Run) -> None:
    done = slipstick("hardware", "list")
    assert done.status == 0
    for name in Host.load().machines().names("accelerator"):
        assert f"\n{name}" in done.out
    row = next(line for line in done.out.splitlines() if line.startswith("h100-sxm "))
    assert "80 GB" in row  # NVIDIA's datasheet
    assert "3.35 TB/s" in row
    assert max(map(len, done.out.splitlines())) <= 80


def test_the_list_by_vendor_and_kind(slipstick: Run) -> None:
    rows = slipstick("hardware", "list", "--vendor", "amd", "--json").json["accelerators"]
    assert {row["vendor"] for row in rows} == {"AMD"}
    assert {"mi250x", "mi300x", "mi325x", "mi355x"} <= {row["name"] for row in rows}
    for kind in ("node", "host", "link"):
        found = slipstick("hardware", "list", "--kind", kind, "--json").json
        assert [row["name"] for row in found[f"{kind}s"]] == list(Host.load().machines().names(kind))
        assert slipstick("hardware", "list", "--kind", kind).status == 0
    assert "unknown vendor 'nvidea'; did you mean NVIDIA?" in slipstick("hardware", "list", "--vendor", "nvidea").err
    assert slipstick("hardware", "list", "--kind", "node", "--vendor", "amd").status == 2


def test_one_machine_with_the_source_of_each_value(slipstick: Run) -> None:
    done = slipstick("hardware", "show", "h100")  # an alias
    assert done.out.startswith("h100-sxm: ")
    found = slipstick("hardware", "show", "h100-sxm", "--json").json
    # NVIDIA H100 datasheet: 80 GB, 3.35 TB/s, 900 GB/s NVLink both ways; white paper: 989.4 dense BF16 TFLOP/s
    assert found["values"]["memory_capacity"]["value"] == 80e9
    assert found["values"]["memory_bandwidth"]["value"] == 3.35e12
    assert found["rates"]["bf16"]["value"] == 989.4e12
    assert found["node"]["tiers"][0]["bandwidth"]["value"] == 450e9
    assert found["node"]["devices"] == 8
    quantities = [*found["values"].values(), *found["rates"].values(), *found["host"]["values"].values()]
    for quantity in quantities:
        assert quantity["source"]["url"]
        assert quantity["source"]["title"] in " ".join(done.out.split())
        assert quantity["source"]["url"] in done.out


@pytest.mark.parametrize("name", ["hgx-h100", "nvlink4", "dual-grace"])
def test_each_kind_of_record_is_shown(slipstick: Run, name: str) -> None:
    done = slipstick("hardware", "show", name)
    assert done.status == 0
    assert done.out.startswith(f"{name}: ")
    assert "Sources" in done.out
    assert slipstick("hardware", "show", name, "--json").json["name"] == name


def test_a_machine_in_another_node_form(slipstick: Run) -> None:
    found = slipstick("hardware", "show", "h100-sxm", "--node", "hgx-a100", "--json").json
    assert found["node"]["name"] == "hgx-a100"
    assert "only an accelerator" in slipstick("hardware", "show", "nvlink4", "--node", "hgx-a100").err


@pytest.mark.parametrize(
    "name", ["h100-sxn", "", "../h100-sxm", "a\nb", "none.toml", "\0.toml", "/", "~none/x.toml", "x" * 5000]
)
def test_an_unknown_machine_is_one_line(slipstick: Run, name: str) -> None:
    done = slipstick("hardware", "show", name)
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err
    assert len(done.err) < 400
    if name == "h100-sxn":
        assert "did you mean h100-sxm" in done.err


def test_a_file_of_ones_own_is_shown_and_used_by_its_path(slipstick: Run, chip: Callable[..., str]) -> None:
    path = chip()
    assert slipstick("hardware", "show", path).out.startswith("mychip: My chip")
    done = slipstick("serve", "gpt2", "--on", path, "--json")
    assert done.status == 0
    assert done.json["machine"] == "mychip"


def test_a_sound_file_is_told_so(slipstick: Run, chip: Callable[..., str]) -> None:
    path = chip()
    done = slipstick("hardware", "validate", path)
    assert (done.status, done.err) == (0, "")
    assert done.out == f"{path}: sound: accelerator mychip\n"
    found = slipstick("hardware", "validate", path, "--json")
    assert found.json["ok"] is True


def test_every_problem_of_every_file_is_told(slipstick: Run, chip: Callable[..., str]) -> None:
    bad = chip("bad.toml", bandwidth="4 TB", extra="colour = 3")
    lost = chip("lost.toml", extra='node = "nowhere"')
    odd = chip("odd.toml", extra='kernels = "nothing"')
    files = [bad, chip(), lost, odd, "none.toml"]
    done = slipstick("hardware", "validate", *files)
    assert done.status == 2
    assert done.out == f"{files[1]}: sound: accelerator mychip\n"
    lines = done.err.splitlines()
    assert sum(line.startswith(bad) for line in lines) >= 2
    for words in ("memory_bandwidth", "colour", "nowhere", "nothing", "none.toml: no such file"):
        assert any(words in line for line in lines), words
    assert "Traceback" not in done.err
    found = slipstick("hardware", "validate", *files, "--json")
    assert found.status == 2
    assert found.err == ""
    assert found.json["ok"] is False
    assert [row["ok"] for row in found.json["files"]] == [False, True, False, False, False]


def test_a_name_that_is_taken_is_noted(slipstick: Run, tmp_path: Path) -> None:
    path = tmp_path / "h100-sxm.toml"
    path.write_text(CHIP.format(bandwidth="4 TB/s", extra="").replace("mychip", "h100-sxm"))
    done = slipstick("hardware", "validate", str(path))
    assert done.status == 0
    assert "also brought by nvidia" in done.out


def test_no_record_of_the_data_base_is_noted_as_a_double_of_itself(slipstick: Run, root: Path) -> None:
    files = sorted(str(path) for path in (root / "hwdb" / "accelerators").rglob("*.toml"))
    done = slipstick("hardware", "validate", *files)
    assert (done.status, done.err) == (0, "")
    assert "note:" not in done.out


def test_a_broken_record_does_not_hide_the_others(
    slipstick: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.toml").write_text("schema = 1\n")
    monkeypatch.setenv("SLIPSTICK_HARDWARE_DIR", str(tmp_path))
    done = slipstick("hardware", "list", "--json")
    assert done.status == 0
    names = [row["name"] for row in done.json["accelerators"]]
    assert "h100-sxm" in names
    assert [line for line in json.loads(done.out)["problems"] if "broken" in line]
    assert "warning: accelerator broken" in done.err
