"""The contract of a parallel strategy.

Floor: testkit. Subclass it, give the strategy, inherit the laws::

    class TestMine(StrategyContract):
        strategy = Mine()
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ..model.interfaces.strategy import Strategy
from . import laws, models
from .scene import Scene, companions

CONFIGURED = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    report_multiple_bugs=False,
)
"""One test body serves many subclasses, which hypothesis would warn of; draws are small, so none is shrunk."""

shapes = st.fixed_dictionaries({
    "micro_batch": st.sampled_from([1, 2, 4]),
    "micro_batches": st.sampled_from([1, 2, 8]),
    "sequence": st.sampled_from([16, 512, 2048]),
    "hbm_bandwidth": st.sampled_from([1e11, 3e12]),
})  # fmt: skip


@cache
def _scene(strategies: tuple[Strategy, ...], model: str, options: tuple[tuple[str, Any], ...]) -> Scene:
    return Scene.of(models.all_models()[model], strategies, dict(options))


class StrategyContract:
    """Laws of one ``strategy``, tried at ``degrees`` on a dense model, a routed one and one with latent attention.

    Degrees have to meet the strategy's own conditions on the kit's models, whose sizes are powers of two.
    """

    strategy: ClassVar[Strategy]
    degrees: ClassVar[tuple[int, ...]] = (1, 2, 4, 8)

    def scene(self, model: str, options: dict[str, Any] | None = None) -> Scene:
        """The kit's model under the strategy and its companions."""
        beside = companions(self.strategy)
        applies = self.strategy.applies(models.all_models()[model].sizes)
        if not applies:
            pytest.skip(f"{self.strategy.name} has nothing to do for the {model} model")
        return _scene((self.strategy, *beside), model, tuple(sorted((options or {}).items())))

    def without(self, model: str) -> Scene:
        """The same without the strategy."""
        return _scene(companions(self.strategy), model, ())

    def all_options(self) -> list[dict[str, Any]]:
        """Every set of option values that is tried."""
        return laws.settings_of(self.strategy)

    def lent(self, degree: int) -> dict[str, int]:
        """Degrees of the lenders: as many devices as the strategy's dimensions take from them."""
        return {d.lenders[0]: degree for d in self.strategy.dimensions if d.lenders}

    def test_it_has_a_name(self) -> None:
        assert self.strategy.name, "a strategy needs a name"
        assert self.strategy.dimensions or self.strategy.options, (
            f"{self.strategy.name} brings no dimension and no option"
        )

    def test_layouts_are_over_its_own_dimensions(self) -> None:
        laws.states_known_layouts(self.strategy)

    def test_conditions_allow_degree_one(self) -> None:
        known = {
            **models.SIZES,
            "tp": 1,
            "dp": 1,
            "global_batch": 8,
            "micro_batch": 1,
            "layers_total": models.SIZES["layers"],
        }
        laws.allows_degree_one(self.strategy, known)

    def test_schedules_are_sound(self) -> None:
        for options in self.all_options():
            schedule = self.strategy.schedule(options)
            if schedule is not None:
                laws.schedule_is_sound(schedule)

    @pytest.mark.parametrize("model", ["dense", "routed", "latent"])
    def test_degree_one_changes_nothing(self, model: str) -> None:
        @CONFIGURED
        @given(shapes)
        def law(setting: dict[str, Any]) -> None:
            for options in self.all_options():
                laws.degree_one_changes_nothing(self.without(model), self.scene(model, options), **setting)

        law()

    @pytest.mark.parametrize("model", ["dense", "routed", "latent"])
    def test_splitting_conserves_work_and_weights(self, model: str) -> None:
        for options in self.all_options():
            scene = self.scene(model, options)
            for degree in self.degrees[1:3]:
                mine = {d.name: degree for d in self.strategy.dimensions} | self.lent(degree)
                # Latents are gathered and expanded by every rank that splits their context.
                laws.splitting_conserves_flops(scene, exact=model != "latent", **mine)
                laws.splitting_conserves_weights(scene, **mine)

    @pytest.mark.parametrize("model", ["dense", "routed", "latent"])
    def test_sharded_memory_never_grows(self, model: str) -> None:
        for options in self.all_options():
            scene = self.scene(model, options)
            lent = self.lent(max(self.degrees))
            for dimension in self.strategy.dimensions:
                laws.sharded_rows_never_grow(scene, dimension.name, self.degrees, **{"micro_batches": 8, **lent})

    @pytest.mark.parametrize("model", ["dense", "routed", "latent"])
    def test_more_is_never_slower_and_nothing_beats_the_floor(self, model: str) -> None:
        @CONFIGURED
        @given(shapes, st.sampled_from(self.degrees), st.sampled_from([1.3, 2.0, 100.0]))
        def law(setting: dict[str, Any], degree: int, factor: float) -> None:
            for options in self.all_options():
                scene = self.scene(model, options)
                mine = {d.name: degree for d in self.strategy.dimensions} | self.lent(degree)
                laws.more_is_never_slower(scene, factor, **setting, **mine)
                laws.never_beats_the_floor(scene, **setting, **mine)

        law()

    @pytest.mark.parametrize("model", ["dense", "routed", "latent"])
    def test_units_and_evaluations_agree(self, model: str) -> None:
        for options in self.all_options():
            scene = self.scene(model, options)
            laws.units_agree(scene)
            degree = self.degrees[-1]
            mine = {d.name: degree for d in self.strategy.dimensions} | self.lent(degree)
            laws.evaluations_agree(scene, micro_batches=3, **mine)
