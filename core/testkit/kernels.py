"""The contract of a kernel family: formulas in the right units, with sources, that no machine can beat.

Floor: testkit. Subclass it, give the family, inherit the laws::

    class TestMine(KernelFamilyContract):
        family = Mine()
"""

from __future__ import annotations

from math import isfinite
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ..algebra.dimension import DimensionError, check
from ..algebra.symbols import info
from ..model.interfaces.kernels import KernelFamily
from . import laws, models
from .derivation import derive
from .scene import COMPANIONS, Scene
from .strategy import CONFIGURED

TERMS = ("compute", "memory", "link", "latency", "host")
TRANSFER = {"volume": "B", "bandwidth": "B/s", "hops": "1", "latency": "s"}
KINDS = ("gemm", "grouped_gemm", "attention", "pointwise", "permute", "lookup")


class KernelFamilyContract:
    """Laws of one ``family``, tried on every kind of work that the kit's three models bring."""

    family: ClassVar[KernelFamily]
    _scenes: ClassVar[dict[tuple[int, str], Scene]] = {}

    def scene(self, model: str) -> Scene:
        """A step of the kit's model, priced by the family."""
        key = (id(self.family), model)
        if key not in self._scenes:
            self._scenes[key] = Scene.of(models.all_models()[model], COMPANIONS, family=self.family)
        return self._scenes[key]

    def test_it_has_a_name(self) -> None:
        assert self.family.name, "a kernel family needs a name: accelerators ask for it by that"

    def test_formulas_are_sound(self) -> None:
        formulas = self.family.formulas()
        assert formulas, f"{self.family.name} has no formula"
        for formula in formulas:
            formula.check()
            assert formula.unit == "s", f"formula {formula.name!r} gives {formula.unit}: a kernel's price is seconds"
            assert formula.source, f"formula {formula.name!r} names no source"
            assert formula.terms, f"formula {formula.name!r} has no terms: nobody could say what binds it"
            strange = set(formula.terms) - set(TERMS)
            assert not strange, f"formula {formula.name!r} has terms {sorted(strange)}; known: {', '.join(TERMS)}"

    def test_every_parameter_has_a_value_with_a_source(self) -> None:
        defaults = self.family.defaults()
        for name, quantity in defaults.items():
            assert isfinite(quantity.value), f"the default of {name} is {quantity.value}"
            assert quantity.source.title, f"the default of {name} has no source"
            entry = info(name)
            assert entry.lower <= quantity.value <= entry.upper, (
                f"the default of {name}, {quantity.value:g}, is outside {entry.lower:g} to {entry.upper:g}"
            )
            assert quantity.unit == entry.unit, (
                f"the default of {name} is in {quantity.unit}, the symbol in {entry.unit}"
            )

    def test_transfers_take_what_the_law_gives(self) -> None:
        formula = self.family.transfer()
        given = {**TRANSFER, "ranks": "1"}
        assert TRANSFER.items() <= formula.inputs.items() <= given.items(), (
            f"the transfer formula asks for {formula.inputs}; the law gives {given}, the ranks where it wants them"
        )
        for parameter, symbol in self.family.transfer_parameters().items():
            assert parameter in formula.units, f"the transfer formula has no parameter {parameter!r}"
            assert symbol in self.family.defaults(), (
                f"parameter {parameter!r} stands for {symbol!r}, which has no default"
            )

    @pytest.mark.parametrize("model", ["dense", "routed", "latent"])
    def test_every_kind_of_work_has_a_price(self, model: str) -> None:
        graph = models.all_models()[model]
        rules = self.scene(model).plan.rules
        for block in (graph.embedding, graph.runs[0].cycle[0], graph.output):
            for work in derive(block, rules).works():
                priced = self.family.price(work)
                missing = set(priced.formula.inputs) - set(priced.inputs)
                assert not missing, f"{work.kind} work: formula {priced.formula.name!r} is given no {sorted(missing)}"
                for name, expr in priced.inputs.items():
                    try:
                        check(expr, priced.formula.inputs[name])
                    except DimensionError as error:
                        raise AssertionError(f"{work.kind} work, input {name!r}: {error}") from None
                for parameter, symbol in priced.parameters.items():
                    assert parameter in priced.formula.units, f"{priced.formula.name!r} has no parameter {parameter!r}"
                    assert symbol in self.family.defaults(), f"{work.kind} work: {symbol!r} has no default"

    @pytest.mark.parametrize("model", ["dense", "routed", "latent"])
    def test_units_and_evaluations_agree(self, model: str) -> None:
        scene = self.scene(model)
        laws.units_agree(scene)
        laws.evaluations_agree(scene, tp=2, dp=4, micro_batches=3)

    @pytest.mark.parametrize("model", ["dense", "routed", "latent"])
    def test_more_is_never_slower_and_nothing_beats_the_floor(self, model: str) -> None:
        @CONFIGURED
        @given(
            st.fixed_dictionaries({
                "tp": st.sampled_from([1, 2, 8]), "dp": st.sampled_from([1, 4]), "sequence": st.just(512),
                "micro_batch": st.sampled_from([1, 4]), "hbm_bandwidth": st.floats(1e10, 1e13),
                "gemm_rate": st.floats(1e12, 1e16), "attention_rate": st.floats(1e12, 1e16),
            }),
            st.sampled_from([1.01, 1.5, 10.0]),
        )  # fmt: skip
        def law(setting: dict[str, Any], factor: float) -> None:
            laws.more_is_never_slower(self.scene(model), factor, **setting)
            laws.never_beats_the_floor(self.scene(model), **setting)

        law()
