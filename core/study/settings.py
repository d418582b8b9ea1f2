"""Every setting of a question: its name, what it may be, its default, who brings it.

Floor: study. No sympy. The core's own settings stand here; mesh dimensions and options come from strategies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from attrs import frozen

from ..errors import PluginError, shown
from ..model.interfaces.strategy import Strategy
from ..records.numerics import BASES, GRADIENTS, MOMENTS, TRAINING, WIDTHS

if TYPE_CHECKING:
    from ..host.host import Host

Kind = Literal["count", "number", "choice", "flag", "text"]


@frozen
class SettingInfo:
    """One setting.

    ``flag``: how the command line calls it; ``default``: None where it follows from others (told in ``help``);
    ``searchable``: takes a list, a range or "?"; ``structural``: decides which formula is compiled; ``owner``: "core"
    or the strategy that brings it; ``lower`` and ``upper`` bound a number.
    """

    name: str
    flag: str
    kind: Kind
    help: str
    default: Any = None
    choices: tuple[Any, ...] = ()
    unit: str = ""
    aliases: tuple[str, ...] = ()
    searchable: bool = False
    structural: bool = False
    owner: str = "core"
    lower: float = 0.0
    upper: float = 1e15
    tasks: tuple[str, ...] = ("train", "serve")


TRAIN, SERVE = ("train",), ("serve",)

CORE: tuple[SettingInfo, ...] = (
    SettingInfo("devices", "--gpus", "count", "number of accelerators; default: the product of the degrees",
                aliases=("--devices",), searchable=True, lower=1, upper=10_000_000, unit="devices"),
    SettingInfo("global_batch", "--global-batch", "count",
                "sequences of one optimizer step; default: data parallel degree × micro batch × 4 for each stage "
                "beyond the first", searchable=True, lower=1, upper=10**9, unit="sequences", tasks=TRAIN),
    SettingInfo("micro_batch", "--micro-batch", "count", "sequences of one forward pass of a data parallel rank", 1,
                searchable=True, lower=1, upper=10**6, unit="sequences", tasks=TRAIN),
    SettingInfo("sequence", "--sequence", "count",
                "tokens of a sequence; default: 8,192 or the model's maximum if lower",
                aliases=("--seq-length",), searchable=True, lower=1, upper=10**8, unit="tokens", tasks=TRAIN),
    SettingInfo("document_tokens", "--document-tokens", "number",
                "sequences are packed from documents of so many tokens, and attention stays inside each (of varied "
                "lengths l: mean of l² over mean of l); default: nothing is packed",
                searchable=True, structural=True, lower=1, upper=10**8, unit="tokens", tasks=TRAIN),
    SettingInfo("precision", "--precision", "choice", "number formats of the run", "bf16", tuple(TRAINING),
                searchable=True, tasks=TRAIN),
    SettingInfo("gradients", "--gradients", "choice", "what gradients are kept and added up in", "fp32",
                tuple(GRADIENTS), searchable=True, tasks=TRAIN),
    SettingInfo("optimizer_states", "--optimizer-states", "choice", "format of Adam's two moments", "fp32",
                tuple(MOMENTS), searchable=True, tasks=TRAIN),
    SettingInfo("recompute", "--recompute", "choice",
                "what the backward pass computes again: nothing, the attention core, or every layer", "none",
                ("none", "selective", "full"), searchable=True, structural=True, tasks=TRAIN),
    SettingInfo("recompute_ops", "--recompute-ops", "text",
                "further operations that are computed again and whose outputs are not kept, with + between their names",
                "", structural=True, tasks=TRAIN),
    SettingInfo("recompute_layers", "--recompute-layers", "count",
                "with --recompute full: so many layers of each stage; 0: all of them", 0, searchable=True,
                structural=True, lower=0, upper=10_000, unit="layers", tasks=TRAIN),
    SettingInfo("recompute_group", "--recompute-group", "count",
                "with --recompute full: layers between two inputs that are kept", 1, searchable=True, structural=True,
                lower=1, upper=1000, unit="layers", tasks=TRAIN),
    SettingInfo("cuda_graph", "--cuda-graph", "choice",
                "full: every pass is launched as a graph, which the host does not wait for (none, full)", "none",
                ("none", "full"), searchable=True, structural=True, tasks=TRAIN),
    SettingInfo("clip", "--clip", "flag", "take the norm of all gradients before the update, to clip them", True,
                structural=True, tasks=TRAIN),
    SettingInfo("loss_chunks", "--loss-chunks", "count",
                "parts of a micro-batch's tokens that the output layer and its loss (or a fused one) take one by one",
                1, searchable=True, structural=True, lower=1, upper=10_000, tasks=TRAIN),
    SettingInfo("lora_rank", "--lora-rank", "count",
                "train adapters of this rank (LoRA) and leave the model's own weights frozen; default: all are trained",
                searchable=True, structural=True, lower=1, upper=10**6, tasks=TRAIN),
    SettingInfo("lora_targets", "--lora-targets", "text",
                "layers with an adapter: attention, mlp, experts (routed ones), all, or names of layers (q+v); the "
                "up-projections inside latent attention have none; default: all", structural=True, tasks=TRAIN),
    SettingInfo("base_precision", "--base-precision", "choice",
                "format of frozen linear weights, expanded for every product (QLoRA: nf4); default: the recipe's",
                None, BASES, searchable=True, tasks=TRAIN),
    SettingInfo("mtp", "--mtp", "flag", "train the model's multi-token-prediction layer too", False, structural=True,
                tasks=TRAIN),
    SettingInfo("input_tokens", "--input", "count", "tokens of a prompt", 1024, aliases=("--input-tokens",),
                searchable=True, lower=1, upper=10**8, unit="tokens", tasks=SERVE),
    SettingInfo("output_tokens", "--output", "count", "tokens generated for a request", 1024,
                aliases=("--output-tokens",), searchable=True, lower=1, upper=10**8, unit="tokens", tasks=SERVE),
    SettingInfo("concurrency", "--concurrency", "count", "requests in flight at once, over all replicas", 1,
                searchable=True, lower=1, upper=10**7, unit="requests", tasks=SERVE),
    SettingInfo("precision", "--precision", "choice", "format of the linear weights; auto: as the configuration says",
                "auto", ("auto", *WIDTHS), searchable=True, tasks=SERVE),
    SettingInfo("kv_precision", "--kv-precision", "choice", "format of the key-value cache", "auto",
                ("auto", "bf16", "fp16", "fp8", "int8"), searchable=True, tasks=SERVE),
    SettingInfo("memory_utilisation", "--memory-utilisation", "number",
                "fraction of device memory a server may use; default: the stack's",
                aliases=("--gpu-memory-utilization",), lower=0.01, upper=1.0, tasks=SERVE),
    SettingInfo("attention", "--attention", "choice", "fused keeps attention probabilities on chip", "fused",
                ("fused", "unfused"), structural=True, searchable=True),
    SettingInfo("load_skew", "--load-skew", "number", "token copies of the busiest expert rank over the mean", 1.0,
                lower=1.0, upper=1000.0),
    SettingInfo("capacity_factor", "--capacity-factor", "number",
                "most token copies an expert rank takes, over the mean; what is more is dropped; default: no limit",
                lower=1.0, upper=1000.0, tasks=TRAIN),
    SettingInfo("straggler", "--straggler", "number",
                "time of kernels on the slowest device over the typical one; every step waits for it", 1.0, lower=1.0,
                upper=1000.0, tasks=TRAIN),
    SettingInfo("stack", "--stack", "text", "software stack", "ideal", structural=True),
    SettingInfo("kernels", "--kernels", "text",
                "family of kernel formulas, such as roofline; default: the accelerator's", structural=True),
    SettingInfo("node", "--node", "text", "node form; default: the accelerator's", structural=True),
    SettingInfo("tokens", "--tokens", "number", "tokens of a whole training run (15T): adds days, device-hours, cost",
                lower=1, upper=1e18, unit="tokens", tasks=TRAIN),
    SettingInfo("price", "--price", "number", "price of one device for one hour", unit="USD/hour", upper=1e6),
    SettingInfo("max_tpot", "--max-tpot", "number", "longest time per output token that is acceptable (30ms)",
                unit="s", tasks=SERVE, upper=1e6),
    SettingInfo("max_ttft", "--max-ttft", "number", "longest time to first token that is acceptable (2s)", unit="s",
                tasks=SERVE, upper=1e6),
)  # fmt: skip


def settings_for(task: str, host: Host) -> dict[str, SettingInfo]:
    """Every setting of a task by name: core settings, then mesh dimensions and options of the strategies."""
    return settings_of(task, host.strategies().values())


def settings_of(task: str, strategies: Iterable[Strategy]) -> dict[str, SettingInfo]:
    """As ``settings_for``, from the strategies themselves.

    Errors: PluginError for an option or a dimension whose name cannot be a setting's, or is another's.
    """
    found = {info.name: info for info in CORE if task in info.tasks}
    strategies = [strategy for strategy in strategies if task in strategy.tasks]
    degrees = sorted(((d, s) for s in strategies for d in s.dimensions), key=lambda pair: (pair[0].order, pair[0].name))
    for dimension, strategy in degrees:
        _refuse(dimension.name, found, strategy)
        follows = "; default: what the other degrees leave of the devices" if dimension.fills else ""
        found[dimension.name] = SettingInfo(
            dimension.name, f"--{dimension.name}", "count", dimension.title + follows,
            None if dimension.fills else 1, searchable=True, lower=1, upper=10**7, owner=strategy.name,
        )  # fmt: skip
    for strategy in strategies:
        for option in strategy.options:
            if task not in option.tasks:
                continue
            _refuse(option.name, found, strategy)
            kind: Kind = "flag" if isinstance(option.default, bool) else "choice" if option.choices else "text"
            if kind == "text" and isinstance(option.default, int):
                kind = "count"
            found[option.name] = SettingInfo(
                option.name, f"--{option.name.replace('_', '-')}", kind, option.help, option.default, option.choices,
                option.unit, searchable=kind != "flag", structural=True, owner=strategy.name,
            )  # fmt: skip
    return found


def _refuse(name: str, found: Mapping[str, SettingInfo], strategy: Strategy) -> None:
    """Refuse what no option can be called, and what somebody else's setting is called already."""
    if not (name.isascii() and name.isidentifier() and name[0] != "_" and name == name.lower()):
        raise PluginError(
            f"strategy {strategy.name!r} names an option or a mesh dimension {shown(name)}; a name is small letters, "
            "digits and underscores and starts with a letter (the command line writes - for _)"
        )
    if name in found:
        owner = found[name].owner
        whose = "slipstick itself has" if owner == "core" else f"strategy {owner!r} brings"
        raise PluginError(
            f"strategy {strategy.name!r} claims {name!r}, which {whose} already; "
            "switch one off with SLIPSTICK_DISABLE_PLUGINS"
        )


def defaults(infos: Mapping[str, SettingInfo]) -> dict[str, Any]:
    """Name → default of every setting that has one."""
    return {name: info.default for name, info in infos.items() if info.default is not None}
