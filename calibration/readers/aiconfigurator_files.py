"""Where AIConfigurator's kernel tables lie: in the installed package, one file a system, table, engine and version.

Calibration. Nothing of the package is imported or run: it is a folder of Parquet files.
Layout: ``systems/data/<system>/<family>/<engine>/<version>/<table>_perf.parquet``.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attrs import frozen

from slipstick.core.errors import UserError, shown, unknown

PACKAGE = "aiconfigurator_core"
PREFIX = "aiconfigurator:"
EXTRA = "pip install 'slipstick[aiconfigurator]'"
"""The command that brings what reads the tables, and the tables."""

SUFFIX = "_perf.parquet"
PARTIAL = 0.1
"""A version with less than this share of the rows of the fullest one is an addition to a collection, not one."""

SYSTEMS = {
    "a100_pcie": "a100-pcie-80gb",
    "a100_sxm": "a100-sxm-80gb",
    "a30": "a30",
    "b200_sxm": "b200",
    "b300_sxm": "b300",
    "b60": "arc-pro-b60",
    "gb200": "gb200",
    "gb300": "gb300",
    "h100_pcie": "h100-pcie",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "l4": "l4",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000",
}
"""System of the package → the accelerator's name in slipstick, or the name it would have."""

DEVICES = {
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA B200": "b200",
    "NVIDIA B300 SXM6 AC": "b300",
    "NVIDIA GB200": "gb200",
    "NVIDIA GB300": "gb300",
    "NVIDIA H100": "h100-sxm",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H200": "h200-sxm",
    "NVIDIA L40S": "l40s",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000",
    "Intel(R) Arc(TM) Pro B60 Graphics": "arc-pro-b60",
    "Intel(R) Graphics [0xe211]": "arc-pro-b60",
}
"""Name of the device in a table → the accelerator's name in slipstick."""


@frozen(order=False)
class Table:
    """One file: ``system`` as the package calls it, ``family`` the folder, ``name`` the table without its suffix."""

    system: str
    family: str
    name: str
    engine: str
    version: str
    path: Path

    @property
    def device(self) -> str:
        """The accelerator's name in slipstick."""
        return SYSTEMS.get(self.system, self.system)

    @property
    def address(self) -> str:
        """What ``find`` takes for this one file."""
        return f"{PREFIX}{self.system}/{self.name}/{self.engine}/{self.version}"


def root() -> Path:
    """The folder of tables in the installed package. Errors: UserError that names the command that installs it."""
    try:
        found = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        found = None
    for place in (found.submodule_search_locations or ()) if found else ():
        folder = Path(place) / "systems" / "data"
        if folder.is_dir():
            return folder
    raise UserError(f"AIConfigurator's tables (aiconfigurator-core) are not installed; {EXTRA}")


def parquet() -> Any:
    """The module that reads Parquet. Errors: UserError that names the extra which brings it."""
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UserError("Parquet files are read with pyarrow, which is not installed; it comes with the extra `data`: "
                        "pip install 'slipstick[data]'") from None  # fmt: skip


def located(path: Path) -> Table | None:
    """The table that a path names by its folders, None where they are not those of the package.

    >>> located(Path("data/h100_sxm/gemm/trtllm/1.3.0rc20/gemm_perf.parquet")).address
    'aiconfigurator:h100_sxm/gemm/trtllm/1.3.0rc20'
    """
    parts = path.parts
    if len(parts) < 5 or not (parts[-5] in SYSTEMS or parts[-7:-5] == ("systems", "data")):
        return None
    return _table(path)


def _table(path: Path) -> Table:
    system, family, engine, version, name = path.parts[-5:]
    return Table(system, family, name.removesuffix(SUFFIX), engine, version, path)


def tables(system: str | None = None, engine: str | None = None, folder: Path | None = None) -> list[Table]:
    """All tables, of one ``system`` and one ``engine`` where named, sorted, older versions first.

    ``system``: as the package or as slipstick calls it. ``folder``: of another copy than the installed one.

    Errors: UserError where the package is missing or the folder holds no table.
    """
    place = root() if folder is None else folder
    found = [_table(path) for path in place.glob(f"*/*/*/*/*{SUFFIX}")]
    if not found:
        raise UserError(
            f"no table of AIConfigurator lies in {place}; <system>/<family>/<engine>/<version>/ is expected"
        )
    found.sort(key=lambda table: (table.system, table.name, table.engine, version_key(table.version)))
    if system is not None:
        found = [table for table in found if system in (table.system, table.device)]
    if engine is not None:
        found = [table for table in found if table.engine == engine]
    return found


def find(address: str, folder: Path | None = None) -> list[Path]:
    """The files that ``aiconfigurator:<system>/<table>[/<engine>[/<version>]]`` names.

    ``table``: a table (gemm, context_attention, nccl) or a family of them (attention, comm, mla). Without an engine:
    of every engine. Without a version: of each table and engine the latest collection, that is, the highest version
    whose table holds at least ``PARTIAL`` of the rows of the fullest; ``*`` stands for all versions.

    Errors: UserError that names the nearest system, table, engine or version.
    """
    parts = address.removeprefix(PREFIX).strip("/").split("/")
    if not 2 <= len(parts) <= 4 or not all(parts):
        raise UserError(f"{shown(address)} is no address of a table; write "
                        f"{PREFIX}<system>/<table>[/<engine>[/<version>]]")  # fmt: skip
    found = tables(folder=folder)
    found = _narrowed(found, "system", parts[0], lambda table: (table.system, table.device))
    found = _narrowed(found, "table", parts[1], lambda table: (table.name, table.family))
    if len(parts) > 2:
        found = _narrowed(found, "engine", parts[2], lambda table: (table.engine,))
    if len(parts) > 3:
        if parts[3] != "*":
            found = _narrowed(found, "version", parts[3], lambda table: (table.version,))
        return [table.path for table in found]
    latest = []
    groups: dict[tuple[str, str], list[Table]] = {}
    for table in found:
        groups.setdefault((table.name, table.engine), []).append(table)
    for group in groups.values():
        counts = [_row_count(table.path) for table in group] if len(group) > 1 else [1]
        full = [table for table, count in zip(group, counts, strict=True) if count >= PARTIAL * max(counts)]
        latest.append(full[-1].path)
    return latest


def version_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """What sorts versions by age, ``1.3.0rc5`` before ``1.3.0rc20`` before ``1.3.0`` before ``1.3.0.post1``.

    >>> sorted(["1.3.0", "1.3.0rc20", "1.3.0.post1", "1.3.0rc5", "1.2.9", "1.3.0.dev1"], key=version_key)
    ['1.2.9', '1.3.0.dev1', '1.3.0rc5', '1.3.0rc20', '1.3.0', '1.3.0.post1']
    """
    ranks = {"dev": -4, "a": -3, "b": -2, "rc": -1, "post": 1}
    key = []
    for number, word in re.findall(r"(\d+)|([a-z]+)", version.partition("+")[0].lower()):
        key.append((2, int(number), "") if number else (ranks.get(word, -5), 0, word))
    return (*key, (0, 0, ""))  # an end sorts after rc and before post or a further number


def _row_count(path: Path) -> int:
    try:
        return int(parquet().ParquetFile(path).metadata.num_rows)
    except damage() as error:
        raise UserError(f"{path} is no Parquet file that can be read: {first_line(error)}") from None


def damage() -> tuple[type[Exception], ...]:
    """What pyarrow raises for a file that is damaged or can't be opened."""
    return (OSError, UnicodeDecodeError, importlib.import_module("pyarrow").ArrowException)


def first_line(error: Exception) -> str:
    """The first line of what an error says."""
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def _narrowed(found: list[Table], kind: str, name: str, names: Any) -> list[Table]:
    kept = [table for table in found if name in names(table)]
    if not kept:
        known: Iterable[str] = dict.fromkeys(text for table in found for text in names(table))
        raise unknown(f"{kind} of AIConfigurator's tables", name, known)
    return kept
