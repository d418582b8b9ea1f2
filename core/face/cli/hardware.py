"""``slipstick hardware``: accelerators, hosts, links and node forms, each value with its source; a check of files.

Floor: face. May use every floor of the core below.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import SlipstickError, UserError, unknown
from .paths import path_of
from .session import Session, pass_session

if TYPE_CHECKING:
    from ...host.host import Host
    from ...records.hardware import Accelerator, Machine
    from ...records.hardware_toml import Record

SCHEMA = 1
_KINDS = ("accelerator", "node", "host", "link")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, in SI units.")


@click.group("hardware", short_help="List, show and validate accelerators, hosts, links and nodes.")
def command() -> None:
    """Machines that slipstick knows, where each of their values comes from, and the check of a file of your own.

    A machine of your own is one TOML file, used by its path: `--on ./mychip.toml` (see docs/hardware.md).
    """


@command.command("list", short_help="List every machine by name.")
@click.option("--vendor", metavar="TEXT", help="Only records of this vendor, such as amd.")
@click.option("--kind", type=click.Choice(_KINDS), help="Only records of this kind; without it accelerators alone.")
@_JSON
@pass_session
def list_command(session: Session, vendor: str | None, kind: str | None, as_json: bool) -> None:
    """List machines by name; a record that does not load is told and does not hide the others.

    --json lists all kinds of records unless --kind is given.
    """
    host = session.host
    kinds = (kind,) if kind else _KINDS if as_json else ("accelerator",)
    found, problems = _all(host, kinds)
    if vendor is not None:
        if kind in ("node", "link"):
            raise UserError(f"--vendor: a {kind} names no vendor")
        vendors = sorted({_vendor(record) for records in found.values() for record in records} - {""})
        wanted = [name for name in vendors if vendor.casefold() in name.casefold()]
        if not wanted:
            raise unknown("vendor", vendor, vendors, "see `slipstick hardware list`")
        found = {k: [record for record in records if _vendor(record) in wanted] for k, records in found.items()}
    for line in problems:
        click.echo(f"warning: {line}", err=True)
    if as_json:
        listed = {f"{k}s": [_summary(record, k, host) for record in records] for k, records in found.items()}
        click.echo(json.dumps({"schema": SCHEMA, **listed, "problems": problems}))
        return
    from ..machines import listing
    from ..tables import show

    show(listing(found))


@command.command("show", short_help="Show every value of a machine with its source.")
@click.argument("name", metavar="NAME|FILE.toml")
@click.option("--kind", type=click.Choice(_KINDS), help="The kind of record, where several have the name.")
@click.option("--node", metavar="NAME", default="", help="Show an accelerator in this node form, not its own.")
@_JSON
@pass_session
def show_command(session: Session, name: str, kind: str | None, node: str, as_json: bool) -> None:
    """Show a record: an accelerator with its node form, network and host, or a node form, host or link."""
    host = session.host
    record = _find(name, kind, host)
    machine = _assembled(record, name, node, host)
    if as_json:
        from ..records_json import machine_json, record_json

        body = machine_json(machine) if machine else record_json(record)
        click.echo(json.dumps({"schema": SCHEMA, **body}))
        return
    from ..machines import machine_page, record_page
    from ..tables import show

    show(machine_page(machine) if machine else record_page(record))


@command.command("validate", short_help="Check files of machines; tell every problem.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@_JSON
@pass_session
def validate_command(session: Session, files: tuple[str, ...], as_json: bool) -> int:
    """Check TOML files of accelerators, hosts, links or node forms, and what they name.

    Every problem is told, with its file and place; exit status 2 when there is one.
    """
    results = [_validated(file, session.host) for file in files]
    sound = all(result["ok"] for result in results)
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, "ok": sound, "files": results}))
    else:
        for result in results:
            if result["ok"]:
                click.echo(f"{result['file']}: sound: {result['kind']} {result['name']}")
            for line in result["problems"]:
                click.echo(f"{result['file']}: {line}", err=True)
            for line in result["notes"]:
                click.echo(f"{result['file']}: note: {line}")
    return 0 if sound else 2


def _all(host: Host, kinds: tuple[str, ...]) -> tuple[dict[str, list[Record]], list[str]]:
    """Every record of ``kinds`` that loads, and a line for each that does not."""
    found: dict[str, list[Record]] = {}
    problems: list[str] = []
    for kind in kinds:
        found[kind] = []
        for name in host.machines().owners(kind):
            try:
                found[kind].append(host.record(kind, name))
            except SlipstickError as error:
                problems.append(f"{kind} {name}: {' '.join(str(error).split())}")
    return found, problems


def _vendor(record: Record) -> str:
    return getattr(record, "vendor", "")


def _summary(record: Record, kind: str, host: Host) -> dict[str, Any]:
    from ..records_json import summary_json

    return {**summary_json(record), "origin": host.machines().owner(kind, record.name).name}


def _find(name: str, kind: str | None, host: Host) -> Record:
    """The record that ``name`` or the file of that path describes."""
    from ...host.machines import is_path

    if is_path(name):
        from ...records.hardware_toml import load_file

        return load_file(path_of(name, "file"), host.record)
    if kind:
        return host.record(kind, name)
    machines = host.machines()
    for candidate in _KINDS:
        if name in machines.owners(candidate):
            return machines.record(candidate, name)
    known: list[str] = []
    for candidate in _KINDS:
        aliases = machines.aliases(candidate)
        if name in aliases:
            return machines.record(candidate, name)
        known += [*machines.owners(candidate), *aliases]
    raise unknown("machine", name, known, "see `slipstick hardware list`, or give the path of a .toml file")


def _assembled(record: Record, name: str, node: str, host: Host) -> Machine | None:
    from ...records.hardware import Accelerator

    if isinstance(record, Accelerator):
        from ...host.machines import is_path

        return host.machine(name if is_path(name) else record.name, node)
    if node:
        raise UserError("--node: only an accelerator stands in a node form")
    return None


def _validated(file: str, host: Host) -> dict[str, Any]:
    """What is right or wrong with one file, as plain data."""
    from ...records.hardware import Accelerator
    from ...records.hardware_toml import load_file
    from ...records.toml_walk import place

    path = path_of(file, "file")
    where = place(Path(file))
    found: dict[str, Any] = {"file": where, "ok": False, "kind": "", "name": "", "problems": [], "notes": []}
    try:
        if not path.name.casefold().endswith(".toml") and path.is_file():
            raise UserError("the file's name has to end in .toml")
        record = load_file(path, host.record)
        found["kind"], found["name"] = type(record).__name__.lower(), record.name
        if isinstance(record, Accelerator):
            _check_accelerator(record, file, host)
    except SlipstickError as error:
        head = f"{place(path)}: "
        lines = [line.strip() for line in str(error).splitlines()]
        lines = lines[1:] or [lines[0].removeprefix(head)]
        found["problems"] = lines
        return found
    found["ok"] = True
    owners = host.machines().owners(found["kind"]).get(record.name)
    if owners and not _same_file(owners[0][1], found["kind"], record.name, path):
        found["notes"].append(
            f"{found['kind']} {record.name} is also brought by {owners[0][0].name}: by its path this file is used, "
            "in a folder of records the two would clash"
        )
    return found


def _check_accelerator(record: Accelerator, file: str, host: Host) -> None:
    """What the record names has to exist: its node form, the host of that, its kernel formulas."""
    families = host.kernel_families()
    if record.kernels not in families:
        raise UserError(f"kernels: {unknown('family of kernel formulas', record.kernels, families)}")
    host.machine(file, "")


def _same_file(catalog: object, kind: str, name: str, path: Path) -> bool:
    """Whether ``path`` is the very file behind a known record."""
    finder = getattr(catalog, "path", None)
    if finder is None:
        return False
    try:
        return Path(finder(kind, name)).resolve() == path.resolve()
    except (OSError, SlipstickError):
        return False
