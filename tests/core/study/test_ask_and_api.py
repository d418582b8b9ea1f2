"""Questions through ``ask`` and the Python API: what they take, what they refuse, and that both are one thing."""

from __future__ import annotations

import json
from typing import Any

import pytest

import slipstick
from slipstick.core.errors import NotFeasible, UserError
from slipstick.core.host.host import Host
from slipstick.core.study.ask import ask
from slipstick.core.study.settings import defaults, settings_for


def test_the_api_gives_what_ask_gives(host: Host, one: Any) -> None:
    made = slipstick.train("llama-3.1-70b", on="h100-sxm", host=host, gpus=64, tp=8, pp=2, global_batch=256)
    assert (
        made.to_json() == one("train", "llama-3.1-70b", "h100-sxm", devices=64, tp=8, pp=2, global_batch=256).to_json()
    )
    served = slipstick.serve("deepseek-v3", on="h200-sxm", host=host, gpus=8, tp=8, input=512, output=64)
    assert served.answer.setting["input_tokens"] == 512
    assert served.time == served.answer.figures["tpot_s"]
    assert served.memory == served.answer.peak
    assert served.figure("ttft_s") == served.answer.figures["ttft_s"]


def test_an_answer_is_json(one: Any) -> None:
    for made in (one("train", "llama-3.1-8b", "h100-sxm", devices=8, tp=8), one("serve", "mixtral-8x7b", "h200-sxm")):
        data = made.to_json()
        assert json.loads(json.dumps(data, allow_nan=False)) == data
        assert "tree" not in made.to_json(tree=False)


def test_an_explanation_names_formulas_and_inputs(one: Any) -> None:
    text = one("serve", "llama-3.1-8b", "h100-sxm").explain(depth=9)
    for part in ("tpot: ", "ttft: ", "100.0%", "bound by memory", "launch", "bytes = ", "hbm_bandwidth"):
        assert part in text
    short = one("serve", "llama-3.1-8b", "h100-sxm").explain(depth=1)
    assert len(short.splitlines()) < len(text.splitlines())


def test_a_search_through_the_api(host: Host) -> None:
    best = slipstick.train("llama-3.1-8b", on="h100-sxm", host=host, gpus=8, tp="?", global_batch=8)
    assert best.feasible
    assert best.settings["tp"] in (1, 2, 4, 8)
    with pytest.raises(NotFeasible, match=r"none of 4 settings is feasible \(does not fit in device memory: 4\)"):
        slipstick.train("llama-3.1-405b", on="h100-sxm", host=host, gpus=8, tp="?", global_batch=8)
    with pytest.raises(UserError, match=r"for lists and ranges use slipstick\.sweep"):
        slipstick.train("llama-3.1-8b", on="h100-sxm", host=host, gpus=8, tp=[1, 2], global_batch=8)
    assert len(slipstick.sweep("train", "llama-3.1-8b", ["h100-sxm", "h200-sxm"], host=host, gpus=8).predictions) == 2


@pytest.mark.parametrize(
    ("task", "models", "machines", "settings", "message"),
    [
        ("trian", ("llama-3.1-8b",), ("h100-sxm",), {}, "unknown task 'trian'; did you mean train"),
        ("train", (), ("h100-sxm",), {}, "train needs a model and a machine"),
        ("train", ("llama-3.1-8b",), (), {}, "train needs a model and a machine"),
        ("train", ("llama-3.1-8x",), ("h100-sxm",), {}, "unknown model 'llama-3.1-8x'; did you mean"),
        ("train", ("llama-3.1-8b",), ("h100-sxn",), {}, "unknown accelerator 'h100-sxn'; did you mean h100-sxm"),
        (
            "train",
            ("llama-3.1-8b",),
            ("h100-sxm",),
            {"micro_batches": 2},
            "unknown setting of `train` 'micro_batches'; did you mean micro_batch",
        ),
        ("train", ("llama-3.1-8b",), ("h100-sxm",), {"concurrency": 2}, "unknown setting of `train` 'concurrency'"),
        ("train", ("llama-3.1-8b",), ("h100-sxm",), {"precision": "fp9"}, "--precision: 'fp9' is none of bf16"),
        ("train", ("llama-3.1-8b",), ("h100-sxm",), {"stack": "vlm"}, "unknown stack 'vlm'"),
        ("train", ("llama-3.1-8b",), ("h100-sxm",), {"node": "dgx-h10"}, "unknown node 'dgx-h10'"),
        ("train", ("llama-3.1-8b",), ("h100-sxm",), {"mtp": True}, "llama-3.1-8b has no multi-token-prediction layer"),
        ("serve", ("llama-3.1-8b",), ("h100-sxm",), {"zero": 1}, "unknown setting of `serve` 'zero'"),
    ],
)
def test_questions_that_make_no_sense(
    host: Host, task: str, models: tuple[str, ...], machines: tuple[str, ...], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        ask(task, models, machines, settings, host)
    assert "\n" not in str(caught.value)


def test_formats_that_an_accelerator_lacks_are_named(host: Host) -> None:
    """NVIDIA's V100 datasheet: FP64, FP32 and FP16 tensor rates, nothing else."""
    with pytest.raises(UserError, match=r"v100.* has no bf16 rate; it has .*fp16.*choose another --precision"):
        ask("train", ("llama-3.1-8b",), ("v100-sxm2",), {}, host)


def test_stated_defaults(host: Host, one: Any) -> None:
    """Sequence 8,192 or the model's maximum, 1,024 tokens in and out, BF16 with FP32 master, fused, ZeRO-1."""
    train, serve = defaults(settings_for("train", host)), defaults(settings_for("serve", host))
    assert (train["precision"], train["attention"], train["recompute"], train["zero"]) == ("bf16", "fused", "none", 1)
    assert (serve["input_tokens"], serve["output_tokens"], serve["concurrency"], serve["precision"]) == (
        1024,
        1024,
        1,
        "auto",
    )
    assert one("train", "llama-3.1-8b", "h100-sxm").answer.setting["sequence"] == 8192
    assert one("train", "gpt2", "h100-sxm").answer.setting["sequence"] == 1024  # n_positions of GPT-2's config.json
    assert one("serve", "llama-3.1-8b", "h100-sxm").answer.setting["memory_utilisation"] == 0.9


@pytest.mark.parametrize("task", ["train", "serve"])
def test_every_setting_is_described(host: Host, task: str) -> None:
    infos = settings_for(task, host)
    flags = [flag for info in infos.values() for flag in (info.flag, *info.aliases)]
    assert len(set(flags)) == len(flags)
    for name, info in infos.items():
        assert name == info.name
        assert info.help
        assert info.flag.startswith("--")
        if info.kind == "choice" and info.default is not None:
            assert info.default in info.choices
        if info.kind in ("count", "number") and info.default is not None:
            assert info.lower <= info.default <= info.upper


def test_the_degrees_that_follow(one: Any) -> None:
    setting = one(
        "train", "llama-3.1-8b", "h100-sxm", devices=64, tp=4, pp=2, global_batch=64, micro_batch=2
    ).answer.setting
    assert (setting["dp"], setting["micro_batches"]) == (8, 4)
    alone = one("train", "llama-3.1-8b", "h100-sxm", tp=4, pp=2, dp=3).answer.setting
    assert alone["devices"] == 24


def test_one_model_is_one_formula_whatever_its_size(host: Host) -> None:
    """What is compiled is the structure: 8B and 70B of one family share a program."""
    made = [ask("train", (m,), ("h100-sxm",), {}, host).predictions[0] for m in ("llama-3.1-8b", "llama-3.1-70b")]
    assert made[0].case.program is made[1].case.program
