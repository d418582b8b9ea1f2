"""Plain pages: aligned, within the width, one line a line, nothing that acts on a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slipstick.core.face.figures import differing, figure_text, setting_text
from slipstick.core.face.text import Grid, Note, Pairs, chunks, clean, plain

WORDS = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=60)


@given(WORDS)
def test_what_is_printed_is_printable_and_on_one_line(text: str) -> None:
    shown = clean(text)
    assert shown.isprintable()
    assert len(shown) == len(text)


@given(st.lists(st.tuples(WORDS, WORDS), max_size=5), st.integers(40, 120))
def test_a_page_ends_each_line_and_leaves_no_blanks_behind(rows: list[tuple[str, str]], width: int) -> None:
    page = plain([Pairs(tuple(rows), "title"), Grid(("a", "b"), tuple(rows)), Note("end", "title")], width)
    assert page.endswith("\nend\n")
    assert all(line == line.rstrip() for line in page.split("\n"))


@given(st.lists(st.lists(st.text("abc de", min_size=1, max_size=70), min_size=3, max_size=3), min_size=1, max_size=4))
def test_words_are_folded_into_the_width_and_none_is_lost(rows: list[list[str]]) -> None:
    grid = Grid(("one", "two", "three"), tuple((row[0][:10], row[1], row[2]) for row in rows))
    page = plain([grid], 80)
    assert max(map(len, page.splitlines())) <= 80
    for row in grid.rows:
        letters = sorted("".join(row).replace(" ", ""))
        assert all(page.count(letter) >= letters.count(letter) for letter in set(letters))


def test_figures_stand_under_one_another() -> None:
    page = plain([Grid(("row", "bytes"), (("weights", "2 GB"), ("optimizer state", "10.5 GB")), right={1})])
    ends = {len(line) for line in page.splitlines()}
    assert len(ends) == 1


def test_a_wide_table_goes_on_below_with_its_first_column() -> None:
    columns = ("name", *(f"column {n}" for n in range(20)))
    grid = Grid(columns, (tuple(f"cell {n}" for n in range(21)),), right=range(1, 21), split=True)
    parts = list(chunks(grid, 60))
    assert len(parts) > 1
    assert [name for part in parts for name in part.columns[1:]] == list(columns[1:])
    assert all(part.columns[0] == "name" and part.rows[0][0] == "cell 0" for part in parts)
    page = plain([grid], 60)
    assert max(map(len, page.splitlines())) <= 60


def test_an_address_is_not_broken() -> None:
    address = "https://example.com/" + "long/" * 20
    assert address in plain([Pairs((("[1]", f"a title of some length ({address})"),))], 80)


def test_figures_have_their_units() -> None:
    # 3.35e-3 s is 3.35 ms; a share of 0.5 is 50 %; a day has 86,400 s; a thousand tokens are grouped.
    assert figure_text("tpot_s", 3.35e-3) == "3.35 ms"
    assert figure_text("mfu", 0.5) == "50.0%"
    assert figure_text("run_days", 2.0) == "2 days"
    assert figure_text("tokens_per_s", 1_234_567.0) == "1,234,567 tokens/s"
    assert figure_text("run_cost_usd", 1_500_000.0) == "1,500,000 USD"
    assert figure_text("something_bytes", 80e9) == "80 GB"
    assert figure_text("mfu", float("inf")) == "∞"
    assert setting_text("sequence_parallel", True) == "yes"
    assert setting_text("sequence", 8192) == "8,192"


def test_what_differs_is_found_also_where_a_row_lacks_it() -> None:
    assert differing([{"tp": 1, "pp": 2}, {"tp": 2, "pp": 2, "ep": 1}]) == ["tp", "ep"]
    assert differing([{"tp": 1}]) == []
