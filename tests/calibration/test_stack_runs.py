"""Which published runs are fitted and which only judge, and what of a row is the time of a step or a token."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.calibration.stack_runs import configuration, fifth, is_fitted, model_of, runs
from slipstick.core.host.host import Host
from slipstick.core.study.ask import ask
from slipstick.core.study.validation.points import read_file
from slipstick.core.study.validation.scenarios import Question, Scenarios

TRAINING = "id,model,gpus,gpu_type,tp,pp,dp,micro_batch,global_batch,seq,recompute,precision,source,metric,value\n"
SERVING = "id,model,system,devices,tp,concurrency,input_len,output_len,engine,precision,tpot_ms\n"


def trained(
    name: str, model: str = "Llama-3.1-8B", batch: int = 8, metric: str = "iter_time_s", value: float = 1.0
) -> str:
    return f"{name},{model},8,H100,1,1,8,1,{batch},2048,none,bf16,a paper,{metric},{value!r}\n"


def served(
    name: str, concurrency: int = 8, engine: str = "vllm", tpot: float = 10.0, model: str = "Llama-3.1-8B"
) -> str:
    return f"{name},{model},h100_sxm,1,1,{concurrency},1024,256,{engine},bf16,{tpot!r}\n"


@pytest.fixture
def questions(host: Host, tmp_path: Path) -> Callable[..., list[Question]]:
    def read(*rows: str) -> list[Question]:
        path = tmp_path / "points.csv"
        path.write_text(TRAINING + "".join(rows), encoding="utf-8")
        scenarios = Scenarios(host, "ideal")
        return [scenarios.question(point) for point in read_file(path, host).points]

    return read


@given(st.text(max_size=40))
def test_a_fifth_follows_from_the_text_alone(text: str) -> None:
    assert fifth(text) == int(hashlib.sha256(text.encode("utf-8")).hexdigest(), 16) % 5


def test_fifths_are_about_as_many_each() -> None:
    counts = [sum(fifth(f"row-{i}") == part for i in range(5000)) for part in range(5)]
    assert min(counts) > 900


def test_one_configuration_is_fitted_whole_or_not_at_all(questions: Callable[..., list[Question]]) -> None:
    """Forty settings, each measured three times, in an order that mixes them."""
    rows = [trained(f"SET-{turn}{batch:03d}", batch=8 * batch) for turn in range(3) for batch in range(1, 41)]
    asked = questions(*rows)
    chosen = is_fitted(asked)
    by_setting: dict[str, set[bool]] = {}
    for question, yes in zip(asked, chosen, strict=True):
        by_setting.setdefault(configuration(question), set()).add(yes)
    assert len(by_setting) == 40
    assert all(len(answers) == 1 for answers in by_setting.values())
    assert 1 <= sum(True in answers for answers in by_setting.values()) <= 20  # about a fifth


def test_what_is_fitted_does_not_depend_on_the_order_of_rows(questions: Callable[..., list[Question]]) -> None:
    rows = [trained(f"SET-{turn}{batch:03d}", batch=8 * batch) for turn in range(2) for batch in range(1, 21)]
    there = questions(*rows)
    back = questions(*rows[::-1])
    assert {q.point.name: y for q, y in zip(there, is_fitted(there), strict=True)} == {
        q.point.name: y for q, y in zip(back, is_fitted(back), strict=True)
    }


def test_a_model_is_its_sizes_not_its_name(questions: Callable[..., list[Question]]) -> None:
    first, same, other = questions(
        trained("A-1"), trained("A-2", "meta-llama/Llama-3.1-8B-Instruct"), trained("A-3", "Llama-3.1-70B")
    )
    assert model_of(first) == model_of(same) != model_of(other)
    assert configuration(first) == configuration(same)


def test_a_measured_time_is_the_measured_figure(host: Host, tmp_path: Path) -> None:
    """Whatever figure of a step a row tells, it is one time: that of 8 sequences of 2,048 tokens on 8 devices."""
    path = tmp_path / "points.csv"
    step, tokens, devices = 2.5, 8 * 2048, 8
    answer = ask("train", ("llama-3.1-8b",), ("h100-sxm",), {"devices": 8, "dp": 8, "micro_batch": 1, "global_batch": 8,
                 "sequence": 2048, "recompute": "none"}, host).predictions[0].answer  # fmt: skip
    flops = answer.figures["tflops_per_device"] * answer.figures["step_time_s"]  # of a device in a step, in TFLOP
    path.write_text(
        TRAINING + trained("A-1", value=step)
        + trained("A-2", metric="tokens_per_s", value=tokens / step)
        + trained("A-3", metric="tokens_per_s_per_gpu", value=tokens / step / devices)
        + trained("A-4", metric="tflops_per_gpu", value=flops / step)
        + trained("A-5", metric="mem_gb_per_gpu", value=40.0),
        encoding="utf-8",
    )  # fmt: skip
    found = runs("train", [path], host)
    assert found.measured == pytest.approx([step] * 4, rel=1e-6)  # memory is no time
    assert found.devices == ["h100-sxm"] * 4


def test_rows_are_of_the_stack_that_they_name_or_of_the_given_one(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text(SERVING + served("A-1") + served("A-2", engine="sglang"), encoding="utf-8")
    assert runs("serve", [path], host).stacks == ["vllm", "sglang"]
    assert runs("serve", [path], host, stack="ideal").stacks == ["ideal", "ideal"]
    kept = runs("serve", [path], host, lambda q: q.case.structure["stack"] == "sglang")
    assert (kept.stacks, kept.measured.tolist()) == (["sglang"], [pytest.approx(0.01)])


def test_rows_that_cannot_be_asked_are_counted_with_their_reason(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text(SERVING + served("A-1") + served("A-2", model="NoSuchModel-7B") * 2, encoding="utf-8")
    found = runs("serve", [path], host)
    assert len(found.questions) == 1
    assert sum(found.skipped.values()) == 2
    assert len(found.skipped) == 1


def test_no_run_of_a_task_is_no_mistake(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text(SERVING + served("A-1"), encoding="utf-8")
    assert runs("train", [path], host).measured.size == 0


def test_chosen_rows_keep_their_parts(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text(SERVING + "".join(served(f"A-{c}", c, tpot=float(c)) for c in (1, 2, 4, 8)), encoding="utf-8")
    found = runs("serve", [path], host)
    some = found.take([3, 1])
    assert some.measured == pytest.approx([8e-3, 2e-3])
    assert [q.point.name for q in some.questions] == ["A-8", "A-2"]
    assert some.parts.own["time_factor"] == pytest.approx(found.parts.own["time_factor"][[3, 1]])
