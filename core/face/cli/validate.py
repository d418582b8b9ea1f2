"""``slipstick validate``: predicted beside measured, for the evidence of plugins or for files of measured points.

Floor: face. May use every floor of the core below.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen

from ...errors import UserError, shown
from .asking import JSON, finite
from .paths import complete_file, path_of
from .session import Session, pass_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...host.host import Host
    from ...study.validation.points import Passed, Points
    from ...study.validation.run import Predicted

SCHEMA = 1
WORTH_A_BAR = 200
"""Points from which on a progress bar is shown."""


@click.command(
    "validate", short_help="Predicted beside measured: the evidence of plugins, or files of measured points."
)
@click.argument("files", metavar="[FILE]...", nargs=-1, shell_complete=complete_file)
@click.option("--plugin", metavar="NAME", help="Only the evidence of this plugin (without FILE).")
@click.option("--on", "machine", metavar="MACHINE", help="The accelerator of files that name none.")
@click.option("--set", "fixed", metavar="SETTING=VALUE", multiple=True,
              help="A setting that the files leave out (devices=8); several times.")  # fmt: skip
@click.option("--stack", metavar="NAME", help="Predict with this software stack, not with the one a row names.")
@click.option("--metric", "metrics", metavar="NAME", multiple=True, help="Only points of this metric; several times.")
@click.option("--filter", "filters", metavar="COLUMN=VALUE", multiple=True,
              help="Only rows with this value in a column; several times.")  # fmt: skip
@click.option("--group-by", metavar="COLUMN,...", help="A further table, by these columns.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N points.")
@click.option("--rows", is_flag=True, help="Every point with its prediction and notes.")
@click.option("--plot", metavar="FILE", shell_complete=complete_file,
              help="Draw predicted against measured (.png, .svg, .pdf; needs matplotlib).")  # fmt: skip
@JSON
@pass_session
def command(
    session: Session, files: tuple[str, ...], plugin: str | None, machine: str | None, fixed: tuple[str, ...],
    stack: str | None, metrics: tuple[str, ...],
    filters: tuple[str, ...], group_by: str | None, limit: int | None, rows: bool, plot: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Predict what was measured, and tell how far off that is.

    Without FILE: every claim that an installed plugin brings, predicted beside published; exit status 1 where one does
    not hold. With files: each row is predicted or listed with the reason why not. A FILE is whatever a trace reader
    knows (results of serving benchmarks, logs of engines and of training), or CSV with columns of one of these forms:

    \b
    training   model gpus gpu_type metric value; and where known: layers hidden
               heads kv_heads ffn vocab seq tp pp dp cp ep interleave micro_batch
               global_batch recompute seq_parallel zero_stage precision
    serving    model system concurrency input_len output_len, ttft_ms and/or
               tpot_ms; and: mode devices engine precision tp pp dp ep
    inference  model gpu_type batch_or_concurrency metric value; and: num_gpus
               engine precision tp pp dp ep input_len output_len
    offload    layers hidden heads seq gbs mbs iter_ms; and: step_ms tflops

    All may have id, source and notes; what is blank is not known. Metrics of the training form: iter_time_s,
    tflops_per_gpu, tokens_per_s_per_gpu, mfu, mem_gb_per_gpu, oom; of the inference form: ttft_ms, tpot_ms,
    output_tok_s, total_tok_s, tok_s_per_gpu, prefill_tok_s, kv_capacity_tokens, kv_cache_gib_per_gpu.
    """
    host = session.host
    if not files:
        for option, given in (
            ("--on", machine), ("--set", fixed), ("--stack", stack), ("--metric", metrics), ("--filter", filters),
            ("--plot", plot), ("--group-by", group_by), ("--limit", limit), ("--rows", rows),
        ):  # fmt: skip
            if given:
                raise UserError(f"{option} is for measured points: give a FILE")
        return _claims(host, plugin, as_json)
    if plugin is not None:
        raise UserError("--plugin is for the evidence of plugins: leave FILE out")
    asked = _Asked(files, machine, _pairs(fixed, "--set"), stack, metrics, _pairs(filters, "--filter"), group_by, limit)
    return _points(host, asked, rows, plot, as_json)


def _claims(host: Host, plugin: str | None, as_json: bool) -> int:
    from ...study.validation.claims import check, claims_json, owned_claims, summary

    checked = check(owned_claims(host, plugin), host)
    counts = summary(checked)
    if as_json:
        click.echo(json.dumps(finite({"schema": SCHEMA, **claims_json(checked)}), allow_nan=False))
    else:
        from ..tables import show
        from ..validation import claims_page

        show(claims_page(checked, counts))
    return 1 if counts["failed"] else 0


@frozen
class _Asked:
    """Which points, and how to predict them."""

    files: tuple[str, ...]
    machine: str | None
    fixed: Mapping[str, str]
    stack: str | None
    metrics: tuple[str, ...]
    filters: Mapping[str, str]
    group_by: str | None
    limit: int | None


def _points(host: Host, asked: _Asked, rows: bool, plot: str | None, as_json: bool) -> int:
    from ...study.validation.points import as_number, read_files
    from ...study.validation.report import report
    from ...study.validation.run import check_columns, completed, limited

    target = path_of(plot, "--plot") if plot is not None else None
    if target is not None:
        from ..plots import check_plot

        check_plot(target)
    columns = tuple(name.strip() for name in asked.group_by.split(",")) if asked.group_by is not None else ()
    points = read_files([path_of(file, "FILE") for file in asked.files], host)
    points = completed(points, asked.machine, {name: as_number(value) for name, value in asked.fixed.items()})
    check_columns(points, {"--filter": asked.filters, "--group-by": columns})
    points = limited(points, asked.limit, asked.metrics, asked.filters)
    if not points.points and not points.passed:
        raise UserError("no point is left: --metric and --filter leave out all there are")
    predicted, passed = _run(host, asked.stack, points)
    found = report(predicted, passed, columns)
    if target is not None:
        from ..plots import plot_errors

        plot_errors(predicted, target)
    if as_json:
        click.echo(json.dumps(finite(found.to_json(rows=rows)), allow_nan=False))
    else:
        from ..tables import show
        from ..validation import report_page

        show(report_page(found, rows=rows))
    return 0


def _run(host: Host, stack: str | None, points: Points) -> tuple[list[Predicted], list[Passed]]:
    from ...study.validation.run import Run

    run = Run(host, stack)
    total = len(points.points)
    if total < WORTH_A_BAR or not sys.stderr.isatty():
        return run(points)
    with click.progressbar(length=total, label="predicting", file=sys.stderr) as bar:
        done: dict[str, Any] = {"n": 0}

        def progress(number: int, _: int) -> None:
            if number - done["n"] >= 20 or number == total:
                bar.update(number - done["n"])
                done["n"] = number

        return run(points, progress)


def _pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UserError(f"{option}: a name and its value are written NAME=VALUE, not {shown(text)}")
        found[name.strip()] = value.strip()
    return found
