"""Reading hardware records: what loads, what is told of a bad entry, and a folder of files as a catalog."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path

import pytest

from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.hardware import KINDS, HardwareCatalog
from slipstick.core.records import hardware_toml, toml_walk
from slipstick.core.records.hardware import Accelerator, Host
from slipstick.core.records.hardware_toml import KIND_FOLDERS, TomlCatalog, assemble, load_file, read_machine

SOURCE = """
[sources.sheet]
title = "a data sheet"
url = "https://example.com/sheet"
date = "2026-02"
"""
CHIP = f"""
schema = 1
kind = "accelerator"
name = "chip"
title = "A chip"
vendor = "Example"
{SOURCE}
[values]
memory_capacity = {{ value = "80 GB", source = "sheet" }}
memory_bandwidth = {{ value = "2 TB/s", source = "sheet" }}

[rates]
bf16 = {{ value = "400 TFLOP/s", source = "sheet" }}
"""
LINK = f"""
schema = 1
kind = "link"
name = "wire"
title = "A wire"
{SOURCE}
[values]
bandwidth = {{ value = "200 Gbit/s", source = "sheet" }}
latency = {{ value = "5 us", source = "sheet" }}
"""
HOST = f"""
schema = 1
kind = "host"
name = "box"
title = "A box"
vendor = "Example"
sockets = 2
{SOURCE}
[values]
cores = {{ value = 64, source = "sheet" }}
memory_capacity = {{ value = "1 TiB", source = "sheet" }}
memory_bandwidth = {{ value = "400 GB/s", source = "sheet" }}
"""
NODE = f"""
schema = 1
kind = "node"
name = "tray"
title = "A tray"
devices = 4
host = "box"
source = "sheet"
{SOURCE}
[[tiers]]
name = "inside"
span = 4
link = "wire"
links_per_device = 6

[[tiers]]
name = "outside"
link = "wire"
links_per_device = 0.5
latency = {{ value = "9 us", source = "sheet" }}
"""


def put(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.fixture
def catalog(tmp_path: Path) -> TomlCatalog:
    put(tmp_path, "accelerators/chip.toml", CHIP.replace('vendor = "Example"', 'vendor = "Example"\nnode = "tray"'))
    put(tmp_path, "clusters/tray.toml", NODE)
    put(tmp_path, "hosts/box.toml", HOST)
    put(tmp_path, "links/wire.toml", LINK)
    return TomlCatalog(tmp_path, "test")


def refused(path: Path, *told: str) -> str:
    """The message of the error that reading ``path`` raises, within a second, and which holds each of ``told``."""
    start = time.perf_counter()
    with pytest.raises(UserError) as caught:
        load_file(path)
    assert time.perf_counter() - start < 1.0
    message = str(caught.value)
    for part in told:
        assert part in message
    assert all(letter.isprintable() or letter == "\n" for letter in message)
    assert all(len(line) < 600 for line in message.splitlines())
    return message


# --- what loads -----------------------------------------------------------------------------------------------


def test_an_accelerator_alone(tmp_path: Path) -> None:
    chip = load_file(put(tmp_path, "chip.toml", CHIP))
    assert isinstance(chip, Accelerator)
    assert (chip.memory_capacity.value, chip.memory_capacity.unit, chip.memory_capacity.text) == (80e9, "B", "80 GB")
    assert chip.memory_bandwidth.value == 2e12
    assert chip.rates["bf16"].value == 400e12
    assert chip.rates["bf16"].unit == "FLOP/s"
    assert chip.rates["bf16"].source.date == "2026-02"
    machine = assemble(chip, TomlCatalog(tmp_path, "test").load)
    assert (machine.node.devices, machine.node.tiers, machine.host) == (1, (), None)


def test_a_machine_of_four_files(catalog: TomlCatalog) -> None:
    chip = catalog.load("accelerator", "chip")
    assert isinstance(chip, Accelerator)
    machine = assemble(chip, catalog.load)
    inside, outside = machine.node.tiers
    assert machine.node.devices == 4
    assert (inside.span, inside.bandwidth.value, inside.latency.value) == (4, 6 * 25e9, pytest.approx(5e-6))
    assert (outside.span, outside.bandwidth.value, outside.latency.value) == (None, 12.5e9, pytest.approx(9e-6))
    assert inside.bandwidth.source.title == "a data sheet"
    assert isinstance(machine.host, Host)
    assert (machine.host.cores.value, machine.host.memory_capacity.value, machine.host.sockets) == (64, 2.0**40, 2)
    assert machine.name == "chip"


def test_an_embedded_node_form_needs_no_second_file(catalog: TomlCatalog, tmp_path: Path) -> None:
    tiers = NODE[NODE.index("[[tiers]]") :].replace("[[tiers]]", "[[own_node.tiers]]")
    text = CHIP + '\n[own_node]\ndevices = 2\nsource = "sheet"\n\n' + tiers
    path = put(tmp_path, "elsewhere/chip.toml", text)
    machine = read_machine(path, catalog.load)
    assert (machine.node.devices, len(machine.node.tiers), machine.host) == (2, 2, None)
    assert read_machine(path, catalog.load, node="tray").node.devices == 4


@pytest.mark.parametrize(("written", "dated"), [("2026-02-28", "2026-02-28"), ('"2026"', "2026")])
def test_a_date_may_be_a_toml_date(tmp_path: Path, written: str, dated: str) -> None:
    chip = load_file(put(tmp_path, "chip.toml", CHIP.replace('"2026-02"', written)))
    assert isinstance(chip, Accelerator)
    assert chip.memory_capacity.source.date == dated


def test_reported_memory_goes_before_the_data_sheet(tmp_path: Path) -> None:
    text = CHIP.replace("[values]", '[values]\nmemory_reported = { value = "81559 MiB", source = "sheet" }')
    chip = load_file(put(tmp_path, "chip.toml", text))
    assert isinstance(chip, Accelerator)
    assert chip.memory == 81559 * 2**20
    assert chip.memory_capacity.value == 80e9


def test_another_kernel_family_needs_no_rates(tmp_path: Path) -> None:
    text = CHIP.split("[rates]")[0].replace('vendor = "Example"', 'vendor = "Example"\nkernels = "cycles"')
    text += '\n[parameters]\nissue = { value = "0.8", source = "sheet" }\nbusy = { value = "3 us", source = "sheet" }\n'
    chip = load_file(put(tmp_path, "chip.toml", text))
    assert isinstance(chip, Accelerator)
    assert chip.rates == {}
    assert {key: (found.value, found.unit) for key, found in chip.parameters.items()} == {
        "issue": (0.8, "1"),
        "busy": (pytest.approx(3e-6), "s"),
    }


# --- what is told of a bad file -------------------------------------------------------------------------------


def test_all_problems_at_once_each_with_its_path(tmp_path: Path) -> None:
    text = CHIP.replace('"80 GB", source = "sheet"', '"80 GB"')  # no source
    text = text.replace("2 TB/s", "2 TB").replace('vendor = "Example"', 'vendr = "Example"')
    text = text.replace('bf16 = { value = "400 TFLOP/s"', 'bf61 = { value = "400 TFLOP/s"')
    lines = refused(put(tmp_path, "chip.toml", text)).splitlines()
    assert lines[0].endswith("chip.toml: 6 problems")
    assert [line.split(": ")[0].strip() for line in lines[1:]] == [
        "vendr",
        "values.memory_capacity.source",
        "values.memory_bandwidth.value",
        "rates.bf61",
        "rates",
        "vendor",
    ]
    assert "did you mean vendor?" in lines[1]
    assert "did you mean bf16?" in lines[4]


def test_one_problem_is_one_line(tmp_path: Path) -> None:
    message = refused(put(tmp_path, "chip.toml", CHIP.replace("400 TFLOP/s", "400 apples")))
    assert "\n" not in message
    assert "chip.toml: rates.bf16.value: " in message


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("schema = 1", "schema = 2", "schema: '2' is not allowed"),
        ("schema = 1", "", "schema: missing"),
        ('kind = "accelerator"', 'kind = "toaster"', "kind: 'toaster' is not one of accelerator, host, link, node"),
        ('kind = "accelerator"', "kind = 3", "kind: '3' is not a text"),
        ('kind = "accelerator"', "", "kind: missing"),
        ('name = "chip"', 'name = "../chip"', "name: '../chip' is no name"),
        ('name = "chip"', 'name = "a..b"', "name: 'a..b' is no name"),
        ('name = "chip"', 'name = "Chip"', "name: 'Chip' is no name"),
        ('name = "chip"', 'name = ""', "name: '' is not a text"),
        ('title = "A chip"', "title = [1]", "title: '[1]' is not a text"),
        ('title = "A chip"', 'title = "A\\nchip"', "title: a text on one line"),
        ('title = "A chip"', f'title = "{"A" * 200}"', "title: a text of 200 characters; at most 100"),
        ('vendor = "Example"', 'vendor = "Example"\naliases = "c"', "aliases: 'c' is not a list of names"),
        ('vendor = "Example"', 'vendor = "Example"\naliases = ["a/b"]', "is not a list of names"),
        ('vendor = "Example"', 'vendor = "Example"\nyear = 3000', "year: '3000' is not allowed"),
        ('vendor = "Example"', 'vendor = "Example"\nyear = true', "year: 'True' is not allowed"),
        ('date = "2026-02"', 'date = "soon"', "sources.sheet.date: 'soon' is not a date"),
        ('date = "2026-02"', "", "sources.sheet.date: missing"),
        ('date = "2026-02"', 'date = "2026-02"\nkind = "rumour"', "sources.sheet.kind: 'rumour' is not one of"),
        ("[sources.sheet]", "[sources.shet]", "is not declared under [sources]; did you mean shet?"),
        ("80 GB", "80 kB", "out of range; from 1 MB"),
        ("80 GB", "-80 GB", "values.memory_capacity.value"),
        ("80 GB", "0 GB", "values.memory_capacity.value"),
        ("80 GB", "1e40 GB", "values.memory_capacity.value"),
        ("80 GB", "nan GB", "values.memory_capacity.value"),
        ("80 GB", "9" * 70, "a value of 70 characters; at most 64"),
        ('"80 GB"', "80", "has no unit"),
        ('"80 GB"', "nan", "has no unit"),
        ('"80 GB"', "[]", "neither a number nor a text"),
        ('{ value = "80 GB", source = "sheet" }', '"80 GB"', "has no source"),
        ('{ value = "80 GB", source = "sheet" }', '{ source = "sheet" }', "value: missing"),
        ('{ value = "80 GB", source = "sheet" }', '{ value = "80 GB", source = 3 }', "'3' is not declared"),
        ('value = "80 GB"', 'value = "80 GB", unit = "B"', "values.memory_capacity.unit: unknown key"),
        ("[values]", "[[values]]", "values: "),
        ("[rates]", "[rates.x]", "rates.x: unknown key"),
        ("[values]", '[values]\nunits = { value = -3, source = "sheet" }', "values.units.value: '-3' is out of range"),
        ("[values]", '[values]\nunits = { value = inf, source = "sheet" }', "values.units.value: "),
        ("[values]", '[values]\nunits = { value = true, source = "sheet" }', "values.units.value: "),
        ("[rates]", '[own_node]\ndevices = 0\nsource = "sheet"\n[rates]', "own_node.devices: '0' is not allowed"),
        ("[rates]", "[own_node]\ndevices = 2\n[rates]", "own_node.source: missing"),
        ("[rates]", '[parameters]\n"a b" = 1\n[rates]', "is no name of a parameter"),
    ],
)
def test_a_bad_entry(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in CHIP
    refused(put(tmp_path, "chip.toml", CHIP.replace(old, new, 1)), told)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('link = "wire"', 'link = "wire5"', "tiers[0].link: unknown link 'wire5'; did you mean wire?"),
        ('link = "wire"', "", "tiers[0].links_per_device: no link is named"),
        ("span = 4", "", "tiers[0].span: missing; only the last tier"),
        ("span = 4", "span = 1", "tiers[0].span: '1' is not allowed"),
        ("links_per_device = 6", "links_per_device = -1", "tiers[0].links_per_device: '-1' is not allowed"),
        ("links_per_device = 6", "links_per_device = nan", "tiers[0].links_per_device: 'nan' is not allowed"),
        ('name = "outside"', 'name = "inside"', "tiers[1].name: 'inside' names another tier"),
        ('name = "outside"', 'name = "outside"\nspan = 2', "tiers[1].span: 2 is not above the span 4"),
        ("devices = 4", "devices = 4.5", "devices: '4.5' is not allowed"),
        ('source = "sheet"\n\n[sources', "[sources", "source: missing"),
        ("9 us", "9 days", "tiers[1].latency.value: '9 days' is out of range"),
    ],
)
def test_a_bad_node(catalog: TomlCatalog, old: str, new: str, told: str) -> None:
    assert old in NODE
    put(catalog.folder, "clusters/tray.toml", NODE.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        catalog.load("node", "tray")
    assert told in str(caught.value)


def test_links_cannot_be_named_where_none_can_be_found(tmp_path: Path) -> None:
    refused(put(tmp_path, "tray.toml", NODE), "tiers[0].link: 'wire' cannot be looked up here")


def test_two_node_forms_are_one_too_many(tmp_path: Path) -> None:
    text = CHIP.replace('vendor = "Example"', 'vendor = "Example"\nnode = "tray"')
    text += '\n[own_node]\ndevices = 2\nsource = "sheet"\n'
    refused(put(tmp_path, "chip.toml", text), "own_node: the file names a node form too")


def test_a_link_is_no_machine(tmp_path: Path, catalog: TomlCatalog) -> None:
    with pytest.raises(UserError, match=r"describes a link; an accelerator is needed"):
        read_machine(tmp_path / "links/wire.toml", catalog.load)


# --- the catalog ----------------------------------------------------------------------------------------------


def test_the_catalog_keeps_the_interface(catalog: TomlCatalog) -> None:
    assert isinstance(catalog, HardwareCatalog)
    assert tuple(KIND_FOLDERS) == KINDS
    assert catalog.name == catalog.origin == "test"


def test_names_open_no_file(catalog: TomlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware_toml, "read_toml", None)
    monkeypatch.setattr(Path, "open", None)
    assert {kind: catalog.names(kind) for kind in KINDS} == {
        "accelerator": ("chip",),
        "host": ("box",),
        "link": ("wire",),
        "node": ("tray",),
    }


def test_one_machine_opens_only_its_own_files(catalog: TomlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    put(catalog.folder, "accelerators/other.toml", "broken [")
    opened: list[str] = []

    def spied(path: Path) -> dict[str, object]:
        opened.append(path.name)
        return toml_walk.read_toml(path)

    monkeypatch.setattr(hardware_toml, "read_toml", spied)
    chip = catalog.load("accelerator", "chip")
    assert isinstance(chip, Accelerator)
    assemble(chip, catalog.load)
    assert set(opened) == {"chip.toml", "tray.toml", "wire.toml", "box.toml"}


def test_a_folder_of_a_user_may_be_flat(tmp_path: Path) -> None:
    put(tmp_path, "chip.toml", CHIP)
    catalog = TomlCatalog(tmp_path, "user")
    assert catalog.names("accelerator") == ("chip",)
    assert catalog.names("link") == ()
    assert catalog.path("accelerator", "chip") == tmp_path / "chip.toml"


def test_no_folder_is_an_empty_catalog(tmp_path: Path) -> None:
    catalog = TomlCatalog(tmp_path / "none", "user")
    assert [catalog.names(kind) for kind in KINDS] == [()] * 4
    assert catalog.aliases("accelerator") == {}


@pytest.mark.parametrize(
    "name", ["chop", "../accelerators/chip", "/etc/passwd", "..", "", "chip.toml", "a\0b", "x" * 9000]
)
def test_a_name_that_is_not_there(catalog: TomlCatalog, name: str) -> None:
    with pytest.raises(UserError, match="unknown accelerator") as caught:
        catalog.load("accelerator", name)
    assert "\n" not in str(caught.value)


def test_a_kind_that_is_not_there(catalog: TomlCatalog) -> None:
    with pytest.raises(UserError, match="unknown kind of record 'toaster'"):
        catalog.names("toaster")


def test_the_file_name_is_the_name(catalog: TomlCatalog) -> None:
    put(catalog.folder, "accelerators/chip2.toml", CHIP)
    with pytest.raises(UserError, match="name: 'chip' differs from the file name; write \"chip2\""):
        catalog.load("accelerator", "chip2")


def test_the_folder_is_the_kind(catalog: TomlCatalog) -> None:
    put(catalog.folder, "accelerators/wire.toml", LINK)
    with pytest.raises(UserError, match='write kind = "accelerator"'):
        catalog.load("accelerator", "wire")


def test_aliases_pass_over_what_is_broken(catalog: TomlCatalog) -> None:
    put(catalog.folder, "accelerators/broken.toml", "[")
    put(catalog.folder, "accelerators/odd.toml", 'aliases = ["fine", "../bad", 3]')
    put(catalog.folder, "accelerators/odder.toml", "aliases = 3")
    assert catalog.aliases("accelerator") == {"fine": "odd"}


def test_the_texts_of_this_file_are_toml() -> None:
    for text in (CHIP, NODE, HOST, LINK):
        assert tomllib.loads(text)["schema"] == 1
