"""The table of symbols: inheritance by index, clashes, the names that everything else relies on."""

from __future__ import annotations

import pytest

from slipstick.core.algebra.symbols import (
    TABLE,
    UNIT_SYMBOLS,
    SymbolInfo,
    SymbolTable,
    as_rows,
    info,
    symbol,
    unit_symbol,
)
from slipstick.core.algebra.units import dimension_of_unit
from slipstick.core.errors import PluginError, UserError


def test_an_indexed_name_inherits_the_entry_it_is_an_index_of() -> None:
    for name in ("layers_0", "layers_12", "layers@decode", "layers_3@decode"):
        assert info(name) is info("layers")
        assert symbol(name).is_integer
    assert info("tier_bandwidth_2").unit == "B/s"
    assert symbol("layers_0") != symbol("layers_1")


def test_an_exact_entry_comes_before_an_inherited_one() -> None:
    table = SymbolTable()
    table.register(SymbolInfo("rate", "r", "FLOP/s", "any rate"), "one")
    table.register(SymbolInfo("rate_2", "r", "B/s", "this rate"), "two")
    assert table.info("rate_1").unit == "FLOP/s"
    assert table.info("rate_2").unit == "B/s"
    assert table.owner("rate_1") == "one"
    assert table.owner("rate_2") == "two"


def test_a_clash_names_both_owners_and_a_repetition_is_none() -> None:
    table = SymbolTable()
    entry = SymbolInfo("warp", "w", "1", "lanes of a warp")
    table.register(entry, "alpha")
    table.register(entry, "alpha")
    with pytest.raises(PluginError, match=r"'warp' of beta is already defined by alpha"):
        table.register(entry, "beta")
    with pytest.raises(PluginError, match="alpha"):
        table.register(SymbolInfo("warp", "w", "s", "time"), "alpha")
    with pytest.raises(UserError, match="unknown unit"):
        table.register(SymbolInfo("odd", "o", "furlong", "a length"), "alpha")
    assert table.names() == ("warp",)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown symbol 'hbm_bandwith'; did you mean hbm_bandwidth"):
        symbol("hbm_bandwith")
    assert TABLE.get("nothing_of_the_kind") is None


def test_every_entry_is_whole() -> None:
    names = set()
    for name, latex, unit, bounds, meaning in as_rows():
        assert name.isidentifier()
        assert latex
        assert meaning
        assert "to" in bounds
        dimension_of_unit(unit)
        names.add(name)
    assert {"batch", "query", "context", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "experts"} <= names


def test_a_latex_symbol_stands_for_one_name() -> None:
    latex = [row[1] for row in as_rows()]
    assert len(latex) == len(set(latex))


def test_symbols_are_positive_and_one_object_a_name() -> None:
    assert symbol("hidden") is symbol("hidden")
    assert symbol("context").is_positive
    assert symbol("hidden").is_integer
    assert symbol("context").is_integer is None


def test_unit_symbols_carry_their_dimension() -> None:
    for name, unit in UNIT_SYMBOLS.items():
        assert unit_symbol(name).name == name
        assert info(name).unit == unit
    with pytest.raises(UserError, match="unknown unit symbol 'bytes'; did you mean byte"):
        unit_symbol("bytes")
