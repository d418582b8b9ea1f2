"""The laws on whole steps: bundled families under all bundled strategies at once, at random sizes and degrees."""

from __future__ import annotations

from math import lcm, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.strategy import Strategy
from slipstick.core.testkit import laws
from slipstick.core.testkit.scene import Scene
from slipstick.plugins.hardware.roofline import Roofline
from slipstick.plugins.strategies.data import DataParallel
from slipstick.plugins.strategies.expert import ExpertParallel
from slipstick.plugins.strategies.pipeline import PipelineParallel
from slipstick.plugins.strategies.tensor import TensorParallel

FAMILIES = ("gpt2", "llama", "mixtral", "deepseek", "falcon")
ALL = (TensorParallel(), DataParallel(), PipelineParallel(), ExpertParallel())
FAST = settings(max_examples=10, deadline=None)


class Scenes:
    """Scenes by family and choices, each compiled once."""

    def __init__(self, graphs: dict[str, ModelGraph], more: tuple[Strategy, ...]) -> None:
        self.graphs, self.more = graphs, more
        self.made: dict[Any, Scene] = {}

    def __call__(self, family: str, split: bool = True, **choices: Any) -> Scene:
        key = (family, split, tuple(sorted(choices.items())))
        if key not in self.made:
            options = {name: choices.pop(name) for name in ("zero", "sequence_parallel", "schedule") if name in choices}
            strategies = (*ALL, *self.more) if split else ()
            self.made[key] = Scene.of(self.graphs[family], strategies, options if split else {}, Roofline(), **choices)
        return self.made[key]


@pytest.fixture(scope="module")
def scenes(graphs: dict[str, ModelGraph], context_parallel: Strategy) -> Scenes:
    return Scenes(graphs, (context_parallel,))


def sizes(scene: Scene, scale: int) -> dict[str, int]:
    """Every width of the model times ``scale``."""
    widths = ("hidden", "ffn", "vocab", "head_dim", "latent")
    return {n: v * scale for n, v in scene.graph.sizes.items() if n.partition("@")[0] in widths}


shapes = st.fixed_dictionaries({
    "micro_batch": st.integers(1, 5), "micro_batches": st.integers(1, 9),
    "sequence": st.one_of(st.just(16), st.integers(16, 3000)),
})  # fmt: skip
degrees = st.fixed_dictionaries({
    "tp": st.sampled_from([1, 2, 4]), "dp": st.sampled_from([1, 2, 4]), "pp": st.sampled_from([1, 2, 4]),
    "cp": st.sampled_from([1, 2]), "ep": st.sampled_from([1, 2, 4]),
})  # fmt: skip


def within(scene: Scene, wanted: dict[str, int]) -> dict[str, int]:
    """The degrees that a scene has; expert ranks no more than the devices they are taken from."""
    found = {name: degree for name, degree in wanted.items() if name in scene.degrees}
    if "ep" in found:
        assume(found["ep"] <= found["dp"] * found["tp"])
    return found


FULL: dict[str, Any] = {"zero": 3, "recompute": "full"}
PLAIN: dict[str, Any] = {"zero": 0, "sequence_parallel": False, "recompute": "selective"}
UNFUSED: dict[str, Any] = {"schedule": "gpipe", "fused_attention": False}
CASES: list[tuple[str, dict[str, Any]]] = [
    *((family, {}) for family in FAMILIES),
    ("gpt2", UNFUSED), ("gpt2", FULL), ("llama", PLAIN), ("mixtral", FULL), ("deepseek", PLAIN), ("falcon", UNFUSED),
]  # fmt: skip
cases = pytest.mark.parametrize(
    ("family", "choices"), CASES, ids=["-".join(map(str, (family, *choices.values()))) for family, choices in CASES]
)


@cases
@FAST
@given(shape=shapes, scale=st.integers(1, 40))
def test_degree_one_changes_nothing(
    scenes: Scenes, family: str, choices: dict[str, Any], shape: dict[str, int], scale: int
) -> None:
    shared = {name: value for name, value in choices.items() if name in ("recompute", "fused_attention")}
    without, present = scenes(family, split=False, **shared), scenes(family, **choices)
    laws.degree_one_changes_nothing(without, present, **shape, **sizes(present, scale))


@cases
@FAST
@given(shape=shapes, split=degrees, scale=st.integers(1, 40), factor=st.floats(1.0, 50.0))
def test_more_is_never_slower_and_nothing_beats_the_floor(
    scenes: Scenes, family: str, choices: dict[str, Any], shape: dict[str, int], split: dict[str, int], scale: int,
    factor: float,
) -> None:  # fmt: skip
    scene = scenes(family, **choices)
    split = within(scene, split)
    laws.more_is_never_slower(scene, factor, **shape, **split, **sizes(scene, scale))
    if not choices.get("fused_attention", True):
        return  # the unfused core computes every pair: more than the causal count below
    laws.never_beats_the_floor(scene, **shape, **split)


@pytest.mark.parametrize("family", FAMILIES)
@FAST
@given(shape=shapes, split=degrees)
def test_more_ranks_never_need_more_of_what_they_shard(
    scenes: Scenes, family: str, shape: dict[str, int], split: dict[str, int]
) -> None:
    scene = scenes(family)
    split = within(scene, split)
    for dimension in set(split) - {"ep"}:
        most = split[dimension]
        laws.sharded_rows_never_grow(scene, dimension, [d for d in (1, 2, 4) if d <= most], **{**shape, **split})


@cases
def test_units_and_evaluations_agree(scenes: Scenes, family: str, choices: dict[str, Any]) -> None:
    scene = scenes(family, **choices)
    laws.units_agree(scene)
    for split in ({"tp": 2, "dp": 4, "pp": 2, "cp": 2, "ep": 4}, {"tp": 4, "dp": 1, "pp": 4, "cp": 1, "ep": 2}):
        found = {name: degree for name, degree in split.items() if name in scene.degrees}
        laws.evaluations_agree(scene, micro_batches=5, sequence=96, **found)


@pytest.mark.parametrize("family", ["gpt2", "llama", "mixtral", "falcon"])
def test_splitting_conserves_work_and_weights(scenes: Scenes, family: str) -> None:
    scene = scenes(family)
    for split in ({"tp": 2, "dp": 2, "cp": 2, "pp": 1, "ep": 2}, {"tp": 4, "dp": 2, "cp": 1, "pp": 2, "ep": 4}):
        found = {name: degree for name, degree in split.items() if name in scene.degrees}
        laws.splitting_conserves_flops(scene, **found)
        laws.splitting_conserves_weights(scene, **found)


@pytest.mark.parametrize("family", FAMILIES)
@FAST
@given(shape=shapes, split=degrees)
def test_an_array_of_settings_is_its_settings_one_by_one(
    scenes: Scenes, family: str, shape: dict[str, int], split: dict[str, int]
) -> None:
    scene = scenes(family)
    split = within(scene, split)
    sequences = np.array([64, shape["sequence"], 4096])
    together = scene.at(**{**shape, "sequence": sequences}, **split)
    for i, sequence in enumerate(sequences):
        alone = scene.at(**{**shape, "sequence": int(sequence)}, **split)
        for name in ("step_time", "memory.peak", "model_flops"):
            assert np.broadcast_to(together[name], (3,))[i] == pytest.approx(alone[name], rel=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
@FAST
@given(shape=shapes, split=degrees)
def test_counted_work_does_not_depend_on_the_split(
    scenes: Scenes, family: str, shape: dict[str, int], split: dict[str, int]
) -> None:
    """Model FLOPs are of the whole step: those of one device on the batch of all data parallel ranks."""
    scene = scenes(family)
    split = within(scene, split)
    one = scenes(family, split=False).at(**{**shape, "micro_batch": shape["micro_batch"] * split["dp"]})
    assert scene.at(**shape, **split)["model_flops"] == pytest.approx(one["model_flops"], rel=1e-12)


def test_degrees_multiply_to_the_devices_of_the_mesh(scenes: Scenes) -> None:
    scene = scenes("mixtral")
    mesh = scene.model.setting.mesh
    split = {"tp": 4, "dp": 2, "cp": 2, "pp": 2, "ep": 8}
    devices = prod(degree for name, degree in split.items() if name != "ep")
    assert scene.number(mesh.degree(mesh.atoms), **split) == devices
    assert lcm(devices, split["ep"]) == devices
