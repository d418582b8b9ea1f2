"""What ``train``, ``serve``, ``explain`` and ``derive`` share: a command whose options are the settings of a task.

Floor: face. May use every floor of the core below. The settings are asked of the host when the command is called, so
that an option which a plugin brings is parsed, checked and shown in ``--help`` like the core's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen
from click.shell_completion import CompletionItem

from ...errors import PluginError, UserError
from .paths import complete_file, path_of
from .session import session_of

if TYPE_CHECKING:
    from ...host.host import Host
    from ...records.scenario import Scenario
    from ...study.settings import SettingInfo

WORDS = "slipstick.words"
"""Key of the context's ``meta`` that holds the words of the command line."""

_METAVARS = {"count": "N", "number": "NUMBER", "choice": "CHOICE", "text": "NAME"}


@frozen
class Question:
    """What a person asked: models and machines by name or path, settings by name, and the words themselves."""

    task: str
    models: tuple[str, ...]
    machines: tuple[str, ...]
    settings: Mapping[str, Any]
    words: tuple[str, ...]
    infos: Mapping[str, SettingInfo]
    host: Host

    def scenario(self) -> Scenario:
        """The question as it is saved."""
        from ...records.scenario import Scenario

        return Scenario(self.task, ",".join(self.models), ",".join(self.machines), dict(self.settings))

    @property
    def explain(self) -> str:
        """The command that explains the answer."""
        import shlex

        return shlex.join(["slipstick", "explain", self.task, *self.words])


class QuestionCommand(click.Command):
    """A command with the settings of ``task`` as options; its callback gets a ``Question`` first."""

    def __init__(self, *args: Any, task: str, **kwargs: Any) -> None:
        self.task = task
        self._made: tuple[Host, list[click.Parameter]] | None = None
        super().__init__(*args, **kwargs)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own parameters and those of the settings."""
        own = super().get_params(ctx)
        host = session_of(ctx).host
        if self._made is None or self._made[0] is not host:
            self._made = (host, [*_common(), *_options(self.task, host, own)])
        return [*self._made[1], *own]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; the words are kept to write the command that explains the answer."""
        ctx.meta[WORDS] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Ask the command's callback, with what was asked in one object."""
        question = _question(self.task, ctx)
        own = {p.name for p in self.params}
        callback = self.callback
        assert callback is not None
        return ctx.invoke(callback, question, **{name: value for name, value in ctx.params.items() if name in own})

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options grouped by who brings them."""
        infos = _infos(self.task, session_of(ctx).host)
        groups: dict[str, list[tuple[str, str]]] = {"Question": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            info = infos.get(str(param.name))
            if info is None:
                group = "Question" if param.name in ("model", "on", "scenario") else "Output"
            else:
                group = f"Settings of the {self.task} task" if info.owner == "core" else f"Strategy {info.owner}"
            groups.setdefault(group, []).append(record)
        output = groups.pop("Output", [])
        for name, records in [*groups.items(), ("Output", output)]:
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


def question_command(
    task: str, name: str, short_help: str, options: Iterable[Callable[[Any], Any]] = ()
) -> Callable[[Callable[..., Any]], QuestionCommand]:
    """Decorator: a callback ``(question, **own options)`` becomes a command about ``task``."""

    def made(callback: Callable[..., Any]) -> QuestionCommand:
        for option in reversed(list(options)):
            callback = option(callback)
        return click.command(name, cls=QuestionCommand, task=task, short_help=short_help)(callback)

    return made


def _infos(task: str, host: Host) -> Mapping[str, SettingInfo]:
    from ...study.settings import settings_for

    return settings_for(task, host)


def _common() -> list[click.Parameter]:
    """What every question names."""
    return [
        click.Argument(["model"], metavar="MODEL", required=False, default=None, shell_complete=_complete_model),
        click.Option(
            ["--on"],
            metavar="MACHINE",
            multiple=True,
            shell_complete=_complete_machine,
            help="Accelerator by name or path of a .toml file; several, with commas, side by side.",
        ),
        click.Option(
            ["--scenario"],
            metavar="FILE",
            shell_complete=complete_file,
            help="Take model, machine and settings from a saved scenario; what the command line says counts more.",
        ),
    ]


def _options(task: str, host: Host, own: Iterable[click.Parameter]) -> list[click.Parameter]:
    """An option for each setting."""
    owners = {opt: "slipstick" for param in [*own, *_common()] for opt in (*param.opts, *param.secondary_opts)}
    made: list[click.Parameter] = []
    infos = sorted(_infos(task, host).values(), key=lambda info: (info.owner != "core", 0))
    for info in infos:
        flags = [info.flag, *info.aliases]
        secondary = [f"--no-{flag.removeprefix('--')}" for flag in flags] if info.kind == "flag" else []
        for flag in (*flags, *secondary):
            if flag in owners:
                raise PluginError(f"strategy {info.owner!r} brings the option {flag}, which {owners[flag]} has already")
            owners[flag] = info.owner
        made.append(_option(info, flags, secondary))
    return made


def _option(info: SettingInfo, flags: list[str], secondary: list[str]) -> click.Option:
    if info.kind == "flag":
        words = [f"{flag}/{no}" for flag, no in zip(flags, secondary, strict=True)]
        return click.Option([info.name, *words], default=None, help=help_of(info))
    return click.Option(
        [info.name, *flags],
        default=None,
        metavar=_METAVARS[info.kind],
        help=help_of(info),
        shell_complete=_complete_choice(info),
    )


def help_of(info: SettingInfo) -> str:
    """The line of help of a setting: meaning, choices, unit, default, and whether it takes lists and "?"."""
    text = info.help[:1].upper() + info.help[1:]
    notes = []
    if info.choices:
        notes.append("one of " + ", ".join(map(str, info.choices)))
    if info.unit:
        notes.append(info.unit)
    if info.default is not None:
        shown = {True: "on", False: "off"}[info.default] if info.kind == "flag" else str(info.default)
        notes.append(f"default {shown}")
    if info.searchable:
        notes.append("list, range or ?" if info.kind == "count" else "list or ?")
    return f"{text}  [{'; '.join(notes)}]" if notes else text


def _question(task: str, ctx: click.Context) -> Question:
    """The question in the parsed parameters. Errors: UserError that names the option."""
    host = session_of(ctx).host
    infos = _infos(task, host)
    models: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    settings: dict[str, Any] = {}
    if ctx.params.get("scenario") is not None:
        models, machines, settings = _from_file(task, ctx.params["scenario"], infos)
    if ctx.params.get("model") is not None:
        models = listed(ctx.params["model"], "MODEL")
    if ctx.params.get("on"):
        machines = tuple(dict.fromkeys(name for text in ctx.params["on"] for name in listed(text, "--on")))
    if not models:
        raise UserError("MODEL is missing: a preset (see `slipstick models list`) or the path of a config.json")
    if not machines:
        raise UserError("--on is missing: a machine (see `slipstick hardware list`) or the path of a .toml file")
    for name, info in infos.items():
        value = ctx.params.get(name)
        if value is not None:
            settings[name] = _parsed(value, info)
    return Question(task, models, machines, settings, _kept(ctx.meta.get(WORDS, ())), infos, host)


def _parsed(value: Any, info: SettingInfo) -> Any:
    from ...study.values import checked_value

    try:
        return checked_value(value, info)
    except UserError as error:
        text = str(error)
        raise error if info.flag in text else UserError(f"{info.flag}: {text}") from None


def _from_file(
    task: str, path: str, infos: Mapping[str, SettingInfo]
) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, Any]]:
    from ...study.ask import checked_settings
    from ...study.saving import load_scenario

    scenario = load_scenario(path_of(path, "--scenario"))
    if scenario.task != task:
        raise UserError(f"{path}: a question about {scenario.task!r}; ask `slipstick {scenario.task} --scenario ...`")
    try:
        settings = checked_settings(task, scenario.settings, infos)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return listed(scenario.model, path), listed(scenario.machine, path), settings


def listed(text: str, where: str) -> tuple[str, ...]:
    """Names with commas between them; the path of a file may hold commas itself. Errors: UserError for an empty one."""
    try:
        whole = "," not in text or os.path.exists(text)
    except ValueError:
        whole = True
    parts = (text,) if whole else tuple(part.strip() for part in text.split(","))
    if not all(part.strip() for part in parts):
        from ...errors import shown

        raise UserError(f"{where}: the list {shown(text)} has an empty name")
    return tuple(dict.fromkeys(parts))


def _kept(words: Iterable[str]) -> tuple[str, ...]:
    """The words that ask, without those that say where the answer goes."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word == "--save":
            skip = True
        elif not word.startswith("--save=") and word != "--json":
            kept.append(word)
    return tuple(kept)


# --- completion in a shell ------------------------------------------------------------------------------------------


def _complete_model(ctx: click.Context, param: click.Parameter, start: str) -> list[CompletionItem]:
    names = session_of(ctx).host.presets()
    return [CompletionItem(name) for name in names if name.startswith(start)] or [CompletionItem(start, type="file")]


def _complete_machine(ctx: click.Context, param: click.Parameter, start: str) -> list[CompletionItem]:
    head, comma, last = start.rpartition(",")
    names = session_of(ctx).host.machines().owners("accelerator")
    found = [CompletionItem(f"{head}{comma}{name}") for name in names if name.startswith(last)]
    return found or [CompletionItem(start, type="file")]


def _complete_choice(info: SettingInfo) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(ctx: click.Context, param: click.Parameter, start: str) -> list[CompletionItem]:
        return [CompletionItem(str(choice)) for choice in info.choices if str(choice).startswith(start)]

    return complete
