"""The pages on calibration, stacks, validation and efficiencies hold to the code: names, numbers, commands."""

from __future__ import annotations

import contextlib
import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from slipstick.calibration import (
    deployment,
    fit_judge,
    fit_segments,
    fit_stats,
    remake,
    stack_fit,
    stack_runs,
    stack_training,
    stacks,
    training_table,
)
from slipstick.calibration.readers import plain
from slipstick.core.face.cli.help_pages import root_context
from slipstick.core.face.cli.main import cli
from slipstick.core.host.host import Host, default_host
from slipstick.core.model.interfaces.stack import COEFFICIENTS
from slipstick.core.model.interfaces.trace_reader import SHAPES
from slipstick.core.records.measured import METRICS
from slipstick.core.study import calibration, intervals
from slipstick.core.study.ask import ask
from slipstick.core.study.validation import points, run, scores
from slipstick.hwdb import FOLDER
from slipstick.plugins.hardware.kernels_values import CORRECTIONS
from slipstick.plugins.stacks.ideal import VALUES

PAGES = ("docs/calibrate.md", "docs/stacks.md", "docs/validation.md", "docs/efficiency.md", "README.md")


@pytest.fixture(scope="module")
def page(root: Path) -> dict[str, str]:
    """Name of a page → its text with every run of blanks as one, so that a sentence may be broken anywhere."""
    return {name: " ".join((root / name).read_text(encoding="utf-8").split()) for name in PAGES}


@pytest.fixture(scope="module")
def host() -> Host:
    return default_host()


def table(root: Path, name: str, head: str) -> list[list[str]]:
    """The rows of the table of a page whose first head is ``head``."""
    text = (root / name).read_text(encoding="utf-8")
    body = text.split(f"\n| {head} |", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()[2:]]


def plain_name(cell: str) -> str:
    return cell.strip("`")


# --- calibrate.md -------------------------------------------------------------------------------------------------


def test_every_reader_of_the_table_is_registered_and_every_registered_one_is_in_it(root: Path, host: Host) -> None:
    told = [plain_name(row[0]) for row in table(root, "docs/calibrate.md", "reader")]
    assert sorted(told) == sorted(host.trace_readers())


def test_the_readers_for_deployments_stand_last(root: Path, page: dict[str, str]) -> None:
    assert "The first six are for `calibrate fit`, the last three for" in page["docs/calibrate.md"]
    kernels = ["kernel" in row[2] or "collectives" in row[2] for row in table(root, "docs/calibrate.md", "reader")]
    assert kernels == [True] * 6 + [False] * 3


def test_the_plain_csv_has_the_columns_of_the_page(page: dict[str, str], tmp_path: Path) -> None:
    text = page["docs/calibrate.md"]
    columns = re.search(r"The plain CSV has the columns `([^`]+)`", text)
    optional = re.search(r"It may lack `([^`]+)`", text)
    assert columns is not None
    assert optional is not None
    assert tuple(columns[1].split(", ")) == plain.LEADING
    kept = [name for name in plain.LEADING if name not in optional[1].split(", ")]
    cells = {"kernel": "gemm", "format": "bf16", "device": "x", "seconds": "1e-3", "measured": "by hand"}
    path = tmp_path / "trace.csv"
    for unit in re.findall(r"`(\w+)`", text.split("The column of time may be")[1].split(".")[0]):
        names = [unit if name == "seconds" else name for name in kept]
        head = [*names, "m", "n", "k", "fact:driver"]
        path.write_text(
            f"# clock: 1980\n{','.join(head)}\n{','.join([*(cells[name] for name in kept), '1', '2', '3', '570'])}\n"
        )
        (row,) = plain.Plain().rows(path)
        assert row.seconds == pytest.approx(1e-3 / plain.UNITS[unit])
        assert row.shape == {"m": 1, "n": 2, "k": 3}
        assert row.facts == {"clock": "1980", "driver": "570"}
    assert set(re.findall(r"`(seconds|ms|us|ns)`", text)) == set(plain.UNITS)
    for extents in (("m", "n", "k"), ("batch", "query", "context", "heads", "kv_heads", "head_dim"), ("bytes",)):
        assert f"`{', '.join(extents)}`" in text
        assert any(set(extents) <= set(names) for names in SHAPES.values())


def test_the_numbers_of_the_gate(page: dict[str, str]) -> None:
    text = page["docs/calibrate.md"]
    words = {12: "twelve"}
    assert f"held-out median is above {fit_judge.WORST_MEDIAN * 100:.0f} %" in text
    assert f"90th percentile above {fit_judge.WORST_P90 * 100:.0f} %" in text
    assert f"fewer than {words[fit_judge.FEWEST]} shapes" in text
    assert f"the median is above {fit_judge.GOOD * 100:.0f} %" in text
    assert fit_judge.FOLDS == 5
    assert f"a fifth of the shapes, by a hash of the shape (of up to {fit_judge.SMALL} shapes" in text
    assert f"more than {math.exp(fit_stats.SLOW):.1f} times the fit" in text
    assert f"(at most {fit_stats.MOST_TRIMMED * 100:.0f} % of the rows)" in text


def test_what_a_segment_is(page: dict[str, str]) -> None:
    """The page lists what a fit's rows have in common: the fields of its key."""
    told = page["docs/calibrate.md"].split("A segment is one ")[1].split(";")[0]
    named = {"device": "device", "slot": "slot", "number format": "format", "kernel source": "kernel_source",
             "engine": "engine", "version": "engine_version"}  # fmt: skip
    assert all(name in told for name in named)
    assert {a.name for a in fit_segments.Key.__attrs_attrs__} == {*named.values(), "where"}


def test_every_shipped_accelerator_is_named_and_no_other(page: dict[str, str]) -> None:
    """README lists the calibrated accelerators in words: the files of the data base, without forms and sizes."""
    told = page["README.md"].split("* **Kernels** of ")[1].split(" are calibrated")[0]
    names = {name.casefold().replace(" ", "-") for name in re.split(r", | and ", told)}
    shipped = {path.name.split(".")[0] for path in (FOLDER / "fitted").glob("*.toml")}
    assert names == {re.sub(r"-(sxm|80gb)\b", "", name) for name in shipped}


def test_every_page_of_the_fitted_folder_is_of_an_accelerator_and_an_engine(page: dict[str, str], host: Host) -> None:
    assert "one file for an accelerator and an engine (or NCCL)" in page["docs/calibrate.md"]
    known = host.machines().names("accelerator")
    for path in (FOLDER / "fitted").glob("*.toml"):
        accelerator, engine = path.stem.rsplit(".", 1)
        assert accelerator in known
        assert engine in ("trtllm", "vllm", "sglang", "nccl")


# --- stacks.md ----------------------------------------------------------------------------------------------------


def test_the_table_of_coefficients_is_that_of_the_code(root: Path) -> None:
    told = {plain_name(name): unit for name, unit, _ in table(root, "docs/stacks.md", "coefficient")}
    assert told == {name: unit for name, (unit, _) in COEFFICIENTS.items()}


def test_every_coefficient_is_in_the_table_and_fitted_or_stated(root: Path) -> None:
    names = {plain_name(row[0]) for row in table(root, "docs/stacks.md", "coefficient")}
    stated = {name for values in stacks.STATED.values() for name in values}
    fitted = {name for priors in stack_fit.PRIORS.values() for name in priors if "@" not in name}
    assert names == stated | fitted == set(COEFFICIENTS)
    assert max(map(len, stack_training.FITTED.values())) == 4
    assert all(set(own) <= set(stack_fit.PRIORS["train"]) for own in stack_training.FITTED.values())


def test_the_stacks_named_are_those_shipped(page: dict[str, str], host: Host) -> None:
    shipped = {path.stem for path in (FOLDER / "stacks").glob("*.toml")}
    (first,) = re.findall(r"A stack is the software.*?hides whatever can be hidden", page["docs/stacks.md"])
    named = set(re.findall(r"`(?:--stack )?([\w-]+)`", first))
    assert named - {"ideal"} == shipped == set(stacks.TITLES)
    assert set(host.stacks()) >= shipped | {"ideal"}
    listed = re.search(r"`--stack vllm`((?:,(?: or)? `[\w-]+`)+)", page["README.md"])
    assert listed is not None
    assert {"vllm", *re.findall(r"`([\w-]+)`", listed[1])} <= shipped


def test_how_far_stacks_and_devices_depart(page: dict[str, str]) -> None:
    text = page["docs/stacks.md"]
    assert f"departs from that by about {stack_fit.STACK * 100:.0f} %" in text
    assert f"a device from its stack by about {stack_fit.DEVICE * 100:.0f} %" in text
    assert "At most four coefficients are fitted" in text
    assert "count as forty of them at most" in text
    assert stack_runs.SMALL == 40
    assert f"sets of fewer than {stack_runs.SMALL} rows" in text
    assert "hashes to 0 modulo 5" in text
    assert deployment.LEAST == 6
    assert "Six or more measured points" in text
    assert "six measured points" in page["README.md"]


def test_the_training_sets_are_in_the_page(root: Path, page: dict[str, str]) -> None:
    """The table stands between its marks, a row for each set; what it says of itself is what the code does."""
    text = (root / "docs" / "validation.md").read_text(encoding="utf-8")
    assert training_table.written(text, "x").count("x\n") == 1
    inside = text.partition(training_table.BEGIN)[2].partition(training_table.END)[0]
    rows = [line for line in inside.splitlines() if line.count("|") == 12 and "**" in line]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [one.title for one in training_table.SETS]
    assert f"worst of {training_table.SPLITS} splits" in page["docs/validation.md"]
    assert "does not hash to 0 modulo 5" in page["docs/validation.md"]
    means = [float(row.split("**")[1].rstrip("%")) for row in rows]
    told = re.search(r"each weighing the same: mean ([\d.]+)%; (\d+) of (\d+) above 10 %", inside)
    assert told is not None
    assert float(told[1]) == pytest.approx(sum(means) / len(means), abs=0.1)
    assert int(told[3]) == len(means)
    # A mean that is shown as 10.0 % may lie on either side.
    assert sum(mean > 10 for mean in means) <= int(told[2]) <= sum(mean >= 10 for mean in means)


# --- validation.md ------------------------------------------------------------------------------------------------


def test_every_form_and_column_is_one_of_the_code(root: Path) -> None:
    forms = {form.name: form for form in points.FORMS}
    rows = table(root, "docs/validation.md", "form")
    assert [row[0] for row in rows] == list(forms)
    for name, told in rows:
        form = forms[name]
        needed, _, known = told.partition("; where known ")
        must = {column for group in form.must for column in group}
        assert set(" ".join(re.findall(r"`([^`]+)`", needed)).split()) == must
        more = [column for column in plain_name(known).split() if column not in points.SETTINGS]
        if more:  # what is no setting is a further figure
            assert [column for column, *_ in form.figures(dict.fromkeys(more, "1"))] == more, name


def test_every_setting_that_a_file_may_have_is_told(root: Path) -> None:
    told = " ".join(row[1] for row in table(root, "docs/validation.md", "form"))
    missing = [column for column in points.SETTINGS if not re.search(rf"\b{column}\b", told)]
    assert missing == ["cpu_ratio"]  # offloading, which is not predicted


def test_every_metric_of_the_page_is_one_of_the_code_and_the_other_way_round(page: dict[str, str]) -> None:
    told = page["docs/validation.md"].split("`metric` is, of training,")[1].split("All forms")[0]
    training, inference = told.split("; of inference,")
    assert set(re.findall(r"`(\w+)`", training)) == set(points.TRAINING_METRICS)
    assert set(re.findall(r"`(\w+)`", inference)) == set(points.INFERENCE_METRICS)
    for metrics in (points.TRAINING_METRICS, points.INFERENCE_METRICS):
        assert {metric for metric, *_ in metrics.values()} <= set(METRICS)


def test_the_scores_named_are_those_that_are_computed(page: dict[str, str]) -> None:
    keys = scores.scores([], 0, {})
    told = page["docs/validation.md"]
    for name in ("n", "mean_abs_error", "median_abs_error", "p90_abs_error", "bias", "coverage"):
        assert f"`{name}`" in told
        assert name in keys
    assert "mean_abs_error_with_skipped` counts a skipped row as 100 % error" in told
    assert scores.scores([], 3, {})["mean_abs_error_with_skipped"] == 1.0


def test_the_stated_deviations(page: dict[str, str]) -> None:
    text = page["docs/validation.md"]
    assert (
        f"the stated standard deviations are {calibration.UNMEASURED:g} for a kernel, "
        f"{intervals.SOFTWARE_UNMEASURED:g} for the software, {intervals.MEMORY_UNMEASURED:g} for memory"
    ) in text
    assert f"{intervals.STRETCH:g} for each factor of e, at most {intervals.STRETCH_MOST:g}" in text
    assert f"over {intervals.Z:.4f}" in text
    assert abs(fit_stats.NORMAL_80 - intervals.Z) < 1e-4
    assert f"an {intervals.LEVEL * 100:.0f} % interval" in text


def test_a_record_that_stands_in_is_less_certain_by_what_the_page_says(
    page: dict[str, str], fitted: Any, slotted_file: Path
) -> None:
    from slipstick.core.records.numerics import training_numerics

    found = re.search(r"for a record that only stands in for the right one, ([\d.]+)\.", page["docs/validation.md"])
    assert found is not None
    family = Host.load(files=[slotted_file]).kernel_families()["slotted"]
    numerics = training_numerics("bf16")
    for sources, added in ((("lab",), 0.0), (("other",), float(found[1]))):
        chosen = calibration.calibration(family, [[fitted(sigma=0.06)]], numerics, sources, {})
        assert chosen.slots["gemm"].sigma == pytest.approx(math.hypot(0.06, added))


def test_the_sigma_of_a_record_is_what_the_page_says() -> None:
    """Of a hundred residuals from 0.01 to 1, 80 % lie within 0.8."""
    residuals = np.linspace(0.01, 1.0, 100)
    assert fit_stats.sigma_of(residuals) == pytest.approx(0.8 / 1.2816, rel=0.01)


@pytest.mark.parametrize(("task", "machine", "settings"), [
    ("train", "h100-sxm", {"devices": 8, "price": 2.0}),
    ("train", "h100-sxm", {"devices": 8, "price": 2.0, "tokens": 1e9}),
    ("serve", "h100-sxm", {"devices": 1, "price": 2.0}),
])  # fmt: skip
def test_every_figure_of_an_answer_has_an_interval(
    page: dict[str, str], host: Host, task: str, machine: str, settings: dict[str, Any]
) -> None:
    assert "Every figure of an answer has an 80 % interval" in page["docs/validation.md"]
    assert "Every figure comes with an 80 % interval" in page["README.md"]
    answer = ask(task, ("llama-3.1-8b",), (machine,), settings, host).predictions[0].answer
    assert set(answer.intervals) == {*answer.figures, "memory_peak_bytes"}
    for name, value in answer.figures.items():
        low, high = answer.intervals[name]
        assert low < value < high, name
    if "cost_per_million_tokens_usd" in answer.figures:  # a price over a rate is as uncertain as the rate
        rate = "tokens_per_s" if task == "train" else "output_tokens_per_s"
        (a, b), (c, d) = answer.intervals["cost_per_million_tokens_usd"], answer.intervals[rate]
        assert b / a == pytest.approx(d / c)


def test_requests_that_wait_are_told(page: dict[str, str]) -> None:
    """1,000 tokens of cache, prompts of 100 that grow by 0.6 of 200 tokens: four run at once."""
    assert "Requests beyond what the cache holds wait" in page["docs/validation.md"]
    assert run.admitted({"input_tokens": 100, "output_tokens": 200}, 1000) == 4


# --- efficiency.md ------------------------------------------------------------------------------------------------


def test_the_ideal_stack_is_as_the_page_says(page: dict[str, str]) -> None:
    text = page["docs/efficiency.md"]
    assert f"keeps {VALUES['serve']['reserve'] / 1e9:g} GB of each device's memory" in text
    assert f"leaves {(1 - VALUES['serve']['memory_utilisation']) * 100:.0f} % of the memory unused" in text
    assert VALUES["train"]["reserve"] == VALUES["serve"]["reserve"]
    for values in VALUES.values():
        assert all(values[name] == 0 for name in ("kernel_overhead", "step_overhead", "sequence_overhead"))


def test_corrections_are_nothing_until_somebody_measures(page: dict[str, str], host: Host) -> None:
    assert "(`bend_1` and so on) are 0 until somebody measures" in page["docs/efficiency.md"]
    stated = host.kernel_families()["measured"].defaults()
    bends = {name: quantity.value for name, quantity in stated.items() if name.startswith("bend_")}
    assert len(bends) >= sum(CORRECTIONS.values())
    assert set(bends.values()) == {0.0}


# --- the commands -------------------------------------------------------------------------------------------------


def commands(root: Path) -> Iterator[tuple[str, list[str], bool]]:
    """Page and words of every command line; whether it stands alone in a block, not in a sentence."""
    for name in PAGES:
        text = (root / name).read_text(encoding="utf-8")
        for line in re.findall(r"^    (slipstick .*)$", text, re.MULTILINE):
            yield name, shlex.split(line, comments=True)[1:], True
        for line in re.findall(r"`((?:\.venv/bin/)?slipstick [^`]*)`", " ".join(text.split())):
            yield name, shlex.split(line)[1:], False


def parsed(words: list[str]) -> click.Context:
    """The innermost context that the words of a command line make; nothing is run."""
    context = root_context()
    command: click.Command = cli
    while isinstance(command, click.Group):
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, name
        if isinstance(found, click.Group):
            context = click.Context(found, info_name=name, parent=context)
        else:
            context = found.make_context(name, list(words), parent=context)
        command = found
    return context


def test_every_command_of_the_pages_is_there_with_its_options(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("trace.json", "trace.json.gz", "trace.csv", "points.csv", "runs.csv", "more.csv"):
        (tmp_path / name).touch()  # some options want a file that exists
    seen = set()
    for name, words, whole in commands(root):
        with contextlib.nullcontext() if whole else contextlib.suppress(click.MissingParameter):
            seen.add((name, parsed(words).command_path))  # a sentence may name a command without its arguments
    assert len(seen) >= 12
    for page_, path in (
        ("docs/calibrate.md", "slipstick calibrate fit"), ("docs/calibrate.md", "slipstick calibrate measure"),
        ("docs/calibrate.md", "slipstick calibrate show"), ("docs/calibrate.md", "slipstick explain train"),
        ("docs/stacks.md", "slipstick calibrate deployment"), ("docs/stacks.md", "slipstick serve"),
        ("docs/validation.md", "slipstick validate"), ("README.md", "slipstick calibrate fit"),
    ):  # fmt: skip
        assert (page_, path) in seen


def test_a_command_that_is_not_there_is_noticed() -> None:
    with pytest.raises(click.UsageError):
        parsed(["calibrate", "fit", "trace.json", "--no-such-option"])
    with pytest.raises(AssertionError):
        parsed(["calibrate", "fits"])


def test_the_modules_that_remake_records_take_what_the_pages_give(page: dict[str, str], tmp_path: Path) -> None:
    line = re.search(r"python -m slipstick\.calibration\.remake ([^`]*?) How", page["docs/calibrate.md"])
    assert line is not None
    context = remake.command.make_context("remake", shlex.split(line[1]))
    assert context.params["date"] == "2026-11-30"
    assert "`python -m slipstick.calibration.stacks FOLDER`" in page["docs/stacks.md"]
    with pytest.raises(SystemExit) as stopped:
        stacks.main(["--help"])
    assert stopped.value.code == 0
