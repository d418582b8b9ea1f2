"""``train``, ``serve``, ``explain``, ``derive`` and ``diff``: statuses, output, and what they say to bad input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstick.core.face.cli.question import help_of, listed
from slipstick.core.host.host import Host
from slipstick.core.study.settings import settings_for

Run = Callable[..., Any]
TRAIN = ("train", "llama-3.1-8b", "--on", "h100-sxm", "--gpus", "8")
SERVE = ("serve", "llama-3.1-8b", "--on", "h100-sxm")
FITS = (*TRAIN, "--recompute", "full")
# What is given below must fit: 8.03e9 parameters at 18 bytes over 8 devices, and full recomputation.


def told(done: Any) -> str:
    """The one line of an error; nothing else is printed."""
    assert done.status == 2
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err
    assert len(done.err) < 720
    return str(done.err)


# --- one answer ---------------------------------------------------------------------------------------------------


def test_a_training_answer_prints_its_figures_and_their_formula(slipstick: Run) -> None:
    done = slipstick(*FITS)
    assert done.status == 0
    assert done.err == ""
    assert done.out.startswith("train llama-3.1-8b on 8 × h100-sxm (hgx-h100)\n")
    for words in ("step time", "MFU", "HFU", "tokens/s", "optimizer", "Where the step time goes", "uncalibrated"):
        assert words in done.out
    assert "\x1b" not in done.out
    formula = [line for line in done.out.splitlines() if line.startswith("formula: ")]
    assert formula == ["formula: slipstick explain train llama-3.1-8b --on h100-sxm --gpus 8 --recompute full"]
    assert max(len(line) for line in done.out.splitlines() if line not in formula) <= 80


def test_a_serving_answer_prints_latencies_and_capacity(slipstick: Run) -> None:
    done = slipstick(*SERVE, "--concurrency", "4")
    assert done.status == 0
    for words in ("time to first token", "time per output token", "KV capacity", "most requests at once", "kv cache"):
        assert words in done.out


def test_the_json_is_one_document_that_agrees_with_the_page(slipstick: Run) -> None:
    found = slipstick(*FITS, "--json").json
    assert found["tokens_per_s"] == pytest.approx(found["setting"]["global_batch"] * 8192 / found["step_time_s"])
    assert found["hfu"] / found["mfu"] == pytest.approx(
        found["hardware_tflops_per_device"] / found["tflops_per_device"]
    )
    rows = {k: v for k, v in found["memory_bytes"].items() if k not in ("peak", "capacity", "stage")}
    assert max(rows.values()) <= found["memory_bytes"]["peak"] <= sum(rows.values()) * (1 + 1e-9)
    assert found["feasible"] is True
    assert found["tree"]["step"]["seconds"] == pytest.approx(found["step_time_s"])


def test_a_run_of_tokens_has_days_hours_and_cost(slipstick: Run) -> None:
    found = slipstick(*FITS, "--tokens", "15T", "--price", "2.5", "--json").json
    seconds = 15e12 / found["tokens_per_s"]
    assert found["run_days"] == pytest.approx(seconds / 86_400)
    assert found["run_device_hours"] == pytest.approx(8 * seconds / 3600)
    assert found["run_cost_usd"] == pytest.approx(2.5 * 8 * seconds / 3600)


def test_what_does_not_fit_leaves_with_1_and_says_what_would(slipstick: Run) -> None:
    # 70.6e9 parameters in 16 bits are 141 GB; an L4 has 24 GB.
    done = slipstick("serve", "llama-3.1-70b", "--on", "l4")
    assert done.status == 1
    assert "NOT FEASIBLE: does not fit: needs" in done.out
    assert "weights (141 GB)" in done.out
    assert "remedy: " in done.out
    found = slipstick("serve", "llama-3.1-70b", "--on", "l4", "--json")
    assert found.status == 1
    assert found.json["feasible"] is False
    assert found.json["obstacles"][0]["row"] == "weights"
    remedy = found.json["obstacles"][0]["remedy"].removesuffix(" would fit").split()
    assert slipstick("serve", "llama-3.1-70b", "--on", "l4", *remedy).status == 0


def test_no_figures_are_given_for_a_fraction_of_a_replica(slipstick: Run) -> None:
    done = slipstick("train", "llama-3.1-8b", "--on", "h100-sxm", "--gpus", "64", "--tp", "3")
    assert done.status == 1
    assert "tp 3" in done.out
    assert "must divide the number of devices" in done.out
    assert "No figures" in done.out
    assert "step time" not in done.out


def test_a_configuration_and_a_machine_by_path(slipstick: Run, tmp_path: Path) -> None:
    presets = Host.load().presets()
    config = tmp_path / "mine" / "config.json"
    config.parent.mkdir()
    config.write_text(Path(presets["llama-3.1-8b"]).read_text())
    by_path = slipstick("serve", str(config), "--on", "h100-sxm", "--json").json
    by_name = slipstick(*SERVE, "--json").json
    assert by_path["model"] == "mine"
    assert by_path["tpot_s"] == by_name["tpot_s"]


# --- lists, ranges, ? ---------------------------------------------------------------------------------------------


def test_a_list_is_printed_side_by_side(slipstick: Run) -> None:
    done = slipstick(*FITS, "--tp", "1,2,4,8")
    assert done.status == 0
    row = next(line.split() for line in done.out.splitlines() if line.startswith("tp "))
    assert row == ["tp", "1", "2", "4", "8"]
    found = slipstick(*FITS, "--tp", "1..8*2", "--json").json
    assert [p["setting"]["tp"] for p in found["predictions"]] == [1, 2, 4, 8]
    assert all("tree" not in p for p in found["predictions"])


def test_machines_and_models_side_by_side(slipstick: Run) -> None:
    found = slipstick("serve", "llama-3.1-8b,gemma-2-9b", "--on", "h100-sxm,b200", "--json").json
    pairs = [(p["model"], p["machine"]) for p in found["predictions"]]
    assert pairs == [(m, d) for m in ("llama-3.1-8b", "gemma-2-9b") for d in ("h100-sxm", "b200")]
    again = slipstick("serve", "llama-3.1-8b,gemma-2-9b", "--on", "h100-sxm", "--on", "b200", "--json").json
    assert again == found


def test_a_search_tells_what_it_tried_and_finds_the_best(slipstick: Run) -> None:
    words = (*TRAIN, "--global-batch", "16", "--tp", "?", "--micro-batch", "1,2")
    done = slipstick(*words)
    assert done.status == 0
    assert "tried     8 settings" in done.out
    assert "The best of them" in done.out
    found = slipstick(*words, "--json").json
    report, best = found["search"], found["best"]
    assert report["tried"] == 8
    assert report["feasible"] + sum(report["reasons"].values()) == 8
    rates = [row["tokens_per_s_per_device"] for row in report["top"]]
    assert rates == sorted(rates, reverse=True)
    assert best["tokens_per_s_per_device"] == pytest.approx(rates[0])
    one = slipstick(*TRAIN, "--global-batch", "16", "--tp", str(best["setting"]["tp"]), "--json")
    assert one.json["tokens_per_s_per_device"] <= rates[0] * (1 + 1e-12)


def test_a_search_without_an_answer_leaves_with_1(slipstick: Run) -> None:
    words = ("serve", "llama-3.1-70b", "--on", "l4", "--gpus", "1", "--concurrency", "?")
    done = slipstick(*words)
    assert done.status == 1
    assert "NOT FEASIBLE" in done.out
    found = slipstick(*words, "--json")
    assert (found.status, found.json["best"]) == (1, None)
    explained = slipstick("explain", *words)
    assert explained.status == 1
    assert explained.err.startswith("error: ")


def test_the_fewest_devices_that_meet_a_limit(slipstick: Run) -> None:
    words = ("serve", "llama-3.1-70b", "--on", "h100-sxm", "--gpus", "?", "--tp", "?")
    loose = slipstick(*words, "--json").json["best"]
    tight = slipstick(*words, "--max-tpot", f"{loose['tpot_s'] / 2 * 1000}ms", "--json").json["best"]
    assert tight["tpot_s"] <= loose["tpot_s"] / 2
    assert tight["setting"]["devices"] > loose["setting"]["devices"]
    fewer = slipstick(
        "serve", "llama-3.1-70b", "--on", "h100-sxm", "--gpus", str(loose["setting"]["devices"] // 2), "--tp", "?"
    )
    assert fewer.status == 1


# --- explain, derive, diff, scenarios


def test_explain_prints_the_tree_with_formulas(slipstick: Run) -> None:
    done = slipstick("explain", *FITS)
    assert done.status == 0
    for words in ("layer forward", "bound by", "100.0%", "flops = ", "Formulas", "smaller parts", "kernels calibrated"):
        assert words in done.out
    shallow = slipstick("explain", *FITS, "--depth", "1")
    assert "below)" in shallow.out
    assert len(shallow.out) < len(done.out)
    found = slipstick("explain", *FITS, "--match", "mlp.down", "--json").json
    leaves: list[str] = []

    def collect(node: dict[str, Any]) -> None:
        for child in node.get("children", ()):
            collect(child)
        if "children" not in node:
            leaves.append(node["name"])

    collect(found["tree"]["step"])
    assert leaves
    assert all("mlp.down" in name for name in leaves)


def test_explain_is_of_one_setting(slipstick: Run) -> None:
    assert "one value" in told(slipstick("explain", *FITS, "--tp", "1,2"))
    assert "--match" in told(slipstick("explain", *FITS, "--match", "no such part"))
    assert "--depth" in told(slipstick("explain", *FITS, "--depth", "-1"))


def test_the_slope_is_what_a_small_step_gives(slipstick: Run) -> None:
    found = slipstick("derive", *SERVE, "--for", "tpot", "--by", "hbm_bandwidth", "--json").json
    assert found["at"] == 3.35e12  # the datasheet of the H100 SXM
    assert found["elasticity"] == pytest.approx(found["slope"] * found["at"] / found["value"])
    assert -1 <= found["elasticity"] < -0.5  # decoding one request is bound by memory
    assert found["value"] == pytest.approx(slipstick(*SERVE, "--json").json["tpot_s"])
    done = slipstick("derive", *SERVE, "--by", "hbm_bandwidth", "--full")
    for words in ("Formula", "Derivative", "elasticity", "hbm_bandwidth**2", "Formula for every value"):
        assert words in done.out
    latex = slipstick("derive", *SERVE, "--by", "hbm_bandwidth", "--latex")
    assert "\\frac" in latex.out


def test_derive_names_what_it_does_not_know(slipstick: Run) -> None:
    assert "hbm_bandwidth" in told(slipstick("derive", *SERVE, "--by", "hbm_bandwith"))
    assert "tpot" in told(slipstick("derive", *SERVE, "--for", "tpt_s", "--by", "tp"))
    assert "--by" in told(slipstick("derive", *SERVE))
    assert "one model and one machine" in told(
        slipstick("derive", "serve", "gpt2", "--on", "h100-sxm,b200", "--by", "tp")
    )
    assert "one value" in told(slipstick("derive", *SERVE, "--by", "hbm_bandwidth", "--tp", "1,2"))


def test_a_scenario_is_saved_asked_again_and_compared(slipstick: Run, tmp_path: Path) -> None:
    first, second = str(tmp_path / "a.toml"), str(tmp_path / "b.toml")
    before = slipstick(*FITS, "--save", first, "--json").json
    assert slipstick("train", "--scenario", first, "--json").json == before
    after = slipstick("train", "--scenario", first, "--tp", "2", "--save", second, "--json").json
    assert after["setting"] == {**before["setting"], "tp": 2, "dp": 4, **batch(after)}
    found = slipstick("diff", first, second, "--json").json
    assert found["settings"] == {"tp": {"before": None, "after": 2}}
    moved = sum(row["change_s"] for row in found["moved"])
    assert moved == pytest.approx(after["step_time_s"] - before["step_time_s"], rel=1e-6)
    page = slipstick("diff", first, second, "--top", "2").out
    assert "smaller changes" in page
    assert "default" in page
    assert "no part of the time differs" in slipstick("diff", first, first).out
    formula = slipstick("train", "--scenario", first, "--save", second).out.splitlines()[-1]
    assert "--save" not in formula


def batch(answer: dict[str, Any]) -> dict[str, Any]:
    """What follows from the data parallel degree where no batch is given."""
    return {key: answer["setting"][key] for key in ("global_batch", "micro_batches")}


def test_a_list_and_a_search_are_saved_as_they_were_asked(slipstick: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "a.toml")
    words = ("serve", "llama-3.1-8b", "--on", "h100-sxm,b200", "--tp", "1,2", "--gpus", "2")
    first = slipstick(*words, "--save", path, "--json").json
    assert slipstick("serve", "--scenario", path, "--json").json == first
    search = slipstick(*SERVE, "--gpus", "8", "--tp", "?", "--save", path, "--json").json
    assert slipstick("serve", "--scenario", path, "--json").json == search


def test_bad_scenarios_are_told(slipstick: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    cases = {
        "schema = 1\ntask = 'serve'\nmodel = 'gpt2'\non = 'l4'": "serve",
        "schema = 1\ntask = 'train'\nmodel = 'gpt2'\non = 'l4'\n[settings]\nttp = 2": "ttp",
        "schema = 1\ntask = 'train'\nmodel = 'gpt2'\non = 'l4'\n[settings]\ntp = 'x'": "--tp",
        "schema = 1\ntask = 'train'\nmodel = 3\non = 'l4'": "model",
        "schema = 9": "schema",
        "nonsense": "TOML",
        "": "schema",
    }
    for text, words in cases.items():
        path.write_text(text)
        line = told(slipstick("train", "--scenario", str(path)))
        assert words in line
        assert "a.toml" in line
    for lost in (str(tmp_path / "none.toml"), "~none/x.toml"):
        assert "no such" in told(slipstick("train", "--scenario", lost))
    for wrong in ("a\0b", ""):
        assert "--scenario" in told(slipstick("train", "--scenario", wrong))
        assert "--save" in told(slipstick(*FITS, "--save", wrong))
    assert "a.toml" in told(slipstick("diff", str(path), str(path)))
    assert "--save" in told(slipstick(*FITS, "--save", str(tmp_path / "none" / "a.toml")))
    other = tmp_path / "b.toml"
    path.write_text("schema = 1\ntask = 'serve'\nmodel = 'gpt2'\non = 'l4'")
    other.write_text("schema = 1\ntask = 'train'\nmodel = 'gpt2'\non = 'l4'")
    assert "nothing to compare" in told(slipstick("diff", str(path), str(other)))


# --- bad values

HUGE = "9" * 4000


@pytest.mark.parametrize(
    "value",
    ["banana", "nan", "NaN", "inf", "-inf", "-1", "0", "1.5", "", " ", "1,,2", ",", "8..1", "1..", "..", "1..2..3",
     "1..64*1", "1..64*0", "??", "1e400", HUGE, "1,banana", "0x10", "1 2", "٣", "1;2", "__import__('os')",
     "1..999999999", "\x00", "$(id)", "-"],
)  # fmt: skip
@pytest.mark.parametrize("flag", ["--tp", "--gpus", "--micro-batch"])
def test_a_count_that_is_none_is_one_line_that_names_the_option(slipstick: Run, flag: str, value: str) -> None:
    assert flag in told(slipstick(*TRAIN, flag, value))


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--precision", "bf17"),
        ("--precision", ""),
        ("--zero", "7"),
        ("--schedule", "1f1c"),
        ("--stack", ""),
        ("--stack", "a\nb"),
        ("--tokens", "banana"),
        ("--tokens", "nan"),
        ("--tokens", "1,2"),
        ("--tokens", "?"),
        ("--price", "-3"),
        ("--load-skew", "0"),
        ("--load-skew", "nan"),
        ("--straggler", "0.9"),
        ("--capacity-factor", "0.5"),
        ("--capacity-factor", "1.25"),
    ],
)
def test_each_other_option_names_itself_too(slipstick: Run, flag: str, value: str) -> None:
    assert flag in told(slipstick(*TRAIN, flag, value))


@pytest.mark.parametrize("value", ["banana", "nan", "30", "30 GB", "-30ms", "", "1ms,2ms", "?"])
def test_a_time_limit_that_is_none(slipstick: Run, value: str) -> None:
    if value == "30":  # a plain number is in seconds
        assert slipstick(*SERVE, "--max-tpot", value).status == 0
    else:
        assert "--max-tpot" in told(slipstick(*SERVE, "--max-tpot", value))


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train"], "MODEL"),
        (["train", "gpt2"], "--on"),
        (["train", "", "--on", "l4"], "MODEL"),
        (["train", "gpt2,,gpt2-xl", "--on", "l4"], "MODEL"),
        (["train", "gpt2", "--on", ""], "--on"),
        (["train", "gpt2", "--on", "l4,,l40s"], "--on"),
        (["train", "gpt4", "--on", "l4"], "model"),
        (["train", "gpt2", "--on", "h100-sxn"], "h100-sxm"),
        (["train", "gpt2", "--on", "../../../etc/passwd"], ".toml"),
        (["train", "../../../etc/passwd", "--on", "l4"], "etc/passwd"),
        (["train", "/", "--on", "l4"], "config.json"),
        (["train", "gpt2\0", "--on", "l4"], "model"),
        (["train", "gpt2", "--on", "l4\0"], "l4"),
        (["train", "gpt2", "--on", "l4", "--node", "nowhere"], "nowhere"),
        (["train", "gpt2", "--on", "l4", "--nonsense", "3"], "--nonsense"),
        (["train", "gpt2", "--on", "l4", "--tp"], "--tp"),
        (["train", "gpt2", "extra", "--on", "l4"], "extra"),
        (["train", "gpt2", "--on", "l4", "--mtp"], "--mtp"),
        (["train", "gpt2", "--on", "l4", "--stack", "nowhere"], "nowhere"),
        (["train", "gpt2", "--on", "l4", "--concurrency", "3"], "--concurrency"),
        (["explain", "trian", "gpt2"], "trian"),
        (["derive"], "train"),
    ],
)
def test_each_mistake_is_one_line(slipstick: Run, words: list[str], hint: str) -> None:
    if words == ["derive"]:
        assert hint in slipstick(*words).out + slipstick(*words).err
    else:
        assert hint in told(slipstick(*words))


# --- options of strategies


def test_each_setting_is_an_option_with_its_unit_and_default(slipstick: Run) -> None:
    for task in ("train", "serve"):
        shown = slipstick(task, "--help").out
        for info in settings_for(task, Host.load()).values():
            assert info.flag in shown
            assert " ".join(help_of(info).split()[:3]) in " ".join(shown.split())
        assert "Strategy tensor:" in shown
        assert "default 1" in shown


PLUGIN = """
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.strategy import Option, Strategy
from slipstick.core.model.layout import Rules

class Extra(Strategy):
    name = "extra"
    options = (Option({option!r}, "bytes of a thing that nobody needs", default=3, unit="bytes", tasks=("train",)),)

    def rules(self, options):
        return Rules()

@hookimpl
def slipstick_strategies():
    return [Extra()]
"""


def test_the_option_of_a_plugin_is_one_like_any_other(slipstick: Run, tmp_path: Path) -> None:
    path = tmp_path / "extra.py"
    path.write_text(PLUGIN.format(option="thing_size"))
    shown = slipstick("--plugin", str(path), "train", "--help").out
    assert "Strategy extra:" in shown
    assert "Bytes of a thing that nobody needs [bytes; default 3;" in " ".join(shown.split())
    found = slipstick("--plugin", str(path), *FITS, "--thing-size", "5", "--json")
    assert found.json["setting"]["thing_size"] == 5
    assert "--thing-size" in told(slipstick("--plugin", str(path), *FITS, "--thing-size", "x"))
    assert "--thing-size" in told(slipstick(*FITS, "--thing-size", "5"))


@pytest.mark.parametrize("option", ["json", "on", "save"])
def test_a_plugin_may_not_take_an_option_of_the_face(slipstick: Run, tmp_path: Path, option: str) -> None:
    path = tmp_path / "extra.py"
    path.write_text(PLUGIN.format(option=option))
    line = told(slipstick("--plugin", str(path), *FITS))
    assert f"--{option}" in line
    assert "extra" in line


def test_names_with_commas_are_lists_unless_a_file_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert listed("a,b, a", "--on") == ("a", "b")
    assert listed("a", "--on") == ("a",)
    monkeypatch.chdir(tmp_path)
    Path("a,b.toml").write_text("")
    assert listed("a,b.toml", "--on") == ("a,b.toml",)


def test_units_are_not_offered_as_symbols_of_a_formula(slipstick: Run) -> None:
    line = told(slipstick("derive", *TRAIN, "--for", "step_time", "--by", "byte"))
    names = line.partition("its symbols: ")[2].strip().split(", ")
    assert "hbm_bandwidth" in names
    assert not {"FLOP", "byte", "second"} & set(names)


# --- plugins that a person writes ---------------------------------------------------------------------------------

STRATEGY = """
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.strategy import Option, Strategy
from slipstick.core.model.layout import Rules


class Acme(Strategy):
    name = "acme"
    options = (Option({name!r}, "how", 1),)

    def rules(self, options):
        {body}


@hookimpl
def slipstick_strategies():
    return [Acme()]
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("acme-mode", "'acme-mode'; a name is small letters, digits and underscores"),
        ("precision", "claims 'precision', which slipstick itself has already"),
        ("tp", "claims 'tp', which strategy 'tensor' brings already"),
    ],
)
def test_an_option_that_cannot_be_one_is_its_plugins_fault(
    slipstick: Run, tmp_path: Path, name: str, message: str
) -> None:
    path = tmp_path / f"options_{name.replace('-', '_')}.py"
    path.write_text(STRATEGY.format(name=name, body="return Rules()"))
    line = told(slipstick("--plugin", str(path), *TRAIN))
    assert "strategy 'acme'" in line
    assert message in line


def test_a_plugin_that_raises_is_named_and_not_called_a_bug_of_slipstick(slipstick: Run, tmp_path: Path) -> None:
    path = tmp_path / "raising_rules.py"
    path.write_text(STRATEGY.format(name="acme_mode", body="raise RuntimeError('boom')"))
    line = told(slipstick("--plugin", str(path), *TRAIN))
    assert line.startswith("error: a plugin failed: RuntimeError: boom (raising_rules.py, line 12)")


def test_a_hook_that_raises_is_told_to_whoever_named_its_file(slipstick: Run, tmp_path: Path) -> None:
    path = tmp_path / "raising_hook.py"
    path.write_text(
        "from slipstick.core.host.hookspecs import hookimpl\n"
        "@hookimpl\ndef slipstick_strategies():\n    raise RuntimeError('boom')\n"
    )
    done = slipstick("--plugin", str(path), *FITS)
    assert done.status == 0
    assert "raising_hook.py is broken: slipstick_strategies failed: RuntimeError: boom" in done.err


def test_an_architecture_that_returns_no_graph_is_its_plugins_fault(slipstick: Run, tmp_path: Path) -> None:
    path = tmp_path / "no_graph.py"
    path.write_text(
        "from slipstick.core.host.hookspecs import hookimpl\n"
        "from slipstick.core.model.interfaces.architecture import Architecture\n"
        "class Acme(Architecture):\n    name = 'acme'\n    model_types = ('acme',)\n"
        "    def graph(self, config):\n        return None\n"
        "@hookimpl\ndef slipstick_architectures():\n    return [Acme()]\n"
    )
    config = tmp_path / "acme.json"
    config.write_text('{"model_type": "acme"}')
    line = told(slipstick("--plugin", str(path), "models", "show", str(config)))
    assert "architecture 'acme' returned a NoneType; ModelGraph is expected" in line


def test_a_formula_of_a_plugin_whose_units_do_not_fit_prices_nothing(slipstick: Run, tmp_path: Path) -> None:
    """The dimension of FLOP + byte is none; seconds are asked for."""
    path = tmp_path / "bad_units.py"
    path.write_text(
        """
from slipstick.core.algebra.formula import Formula
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.kernels import KernelFamily, Priced
from slipstick.plugins.hardware.roofline import Roofline

WRONG = Formula("wrong", {"flops": "FLOP", "bytes": "B"}, (), lambda n: n.flops + n.bytes, "s", "nobody")


class Bad(Roofline):
    name = "bad-units"

    def price(self, work):
        return Priced(WRONG, {"flops": work.flops, "bytes": work.bytes})

    def formulas(self):
        return (WRONG, *super().formulas())


@hookimpl
def slipstick_hardware():
    return [Bad()]
"""
    )
    chip = tmp_path / "chip.toml"
    chip.write_text(
        """
schema = 1
kind = "accelerator"
name = "chip"
title = "chip"
vendor = "Acme"
kernels = "bad-units"

[sources.d]
title = "data sheet"
url = "https://example.com/d"
date = "2026"

[values]
memory_capacity = { value = "80 GB", source = "d" }
memory_bandwidth = { value = "2 TB/s", source = "d" }

[rates]
bf16 = { value = "500 TFLOP/s", source = "d" }
fp32 = { value = "50 TFLOP/s", source = "d" }
"""
    )
    line = told(slipstick("--plugin", str(path), "serve", "llama-3.2-1b", "--on", str(chip)))
    assert "formula 'wrong'" in line
