"""The ten hooks, in the order in which a question meets them.

Floor: host. May use model (types only), records, algebra, errors. This file imports pluggy and nothing heavier.

A hook only registers: it takes no argument, returns a list of objects, and is called at most once a process.
Behaviour lives in the objects. Rules of this file:

* **Only add.** A hook is never renamed or removed, and an argument is only ever added: pluggy hands an
  implementation the arguments it names, so one that names none keeps working.
* ``API`` goes up by one when something is added. A plugin that needs the addition says so with a module attribute
  ``slipstick_api = 2``; an older slipstick then lists it as broken and says which number it offers.
* What is to go is first listed in ``deprecations.py``.
* Every docstring has the same parts: When called, Returns, Example, Errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from .deprecations import argument_warnings, hook_warning

if TYPE_CHECKING:
    import click

    from ..model.interfaces.architecture import Architecture
    from ..model.interfaces.evidence import Claim
    from ..model.interfaces.hardware import FittedRecords, HardwareCatalog
    from ..model.interfaces.kernels import KernelFamily
    from ..model.interfaces.offload import OffloadPolicy
    from ..model.interfaces.scheduler import Scheduler
    from ..model.interfaces.stack import Stack
    from ..model.interfaces.strategy import Strategy
    from ..model.interfaces.trace_reader import TraceReader
    from ..model.interfaces.transform import Transform

API = 1
PROJECT = "slipstick"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

_Hook = TypeVar("_Hook", bound=Callable[..., Any])


def _specified(hook: _Hook) -> _Hook:
    """Mark ``hook`` as specified, with the warnings that the table of deprecations holds for it."""
    name = hook.__name__
    return hookspec(hook, warn_on_impl=hook_warning(name), warn_on_impl_args=argument_warnings(name))


@_specified
def slipstick_hardware() -> Sequence[HardwareCatalog | KernelFamily | FittedRecords]:
    """Bring accelerators, hosts, links and node forms, the kernel formulas that price work on them, and fitted values.

    When called: the first time a machine or a kernel family is asked for.
    Returns: catalogs (a name → a record, read when asked for), kernel families, collections of fitted records.
    Example: ``return [TomlCatalog(Path(__file__).parent / "chips", origin="acme")]``
    Errors: two plugins that bring the same name are refused by naming both.
    """
    raise NotImplementedError


@_specified
def slipstick_architectures() -> Sequence[Architecture]:
    """Bring ways to turn a model configuration (a Hugging Face ``config.json``) into a graph.

    When called: the first time a model is read.
    Returns: architectures, each with the ``model_type`` values it answers for.
    Example: ``return [Llama()]``
    Errors: two architectures with one name are refused by naming both plugins.
    """
    raise NotImplementedError


@_specified
def slipstick_strategies() -> Sequence[Strategy]:
    """Bring parallel strategies: layouts, distributions, schedules and realisations, never a collective.

    When called: the first time a model is placed on devices.
    Returns: strategies, each declaring the mesh dimensions and axes it owns.
    Example: ``return [TensorParallel()]``
    Errors: two strategies with one name are refused by naming both plugins.
    """
    raise NotImplementedError


@_specified
def slipstick_offload_policies() -> Sequence[OffloadPolicy]:
    """Bring policies that keep state, gradients, activations, weights or KV off the device.

    When called: the first time a scenario names an offload policy or the policies are listed.
    Returns: offload policies.
    Example: ``return [OptimizerOnHost()]``
    Errors: two policies with one name are refused by naming both plugins.
    """
    raise NotImplementedError


@_specified
def slipstick_stacks() -> Sequence[Stack]:
    """Bring software stacks: kernel sources, memory reserve, overlap and the coefficients calibrated for them.

    When called: the first time a scenario is priced.
    Returns: stacks.
    Example: ``return [Ideal()]``
    Errors: two stacks with one name are refused by naming both plugins.
    """
    raise NotImplementedError


@_specified
def slipstick_schedulers() -> Sequence[Scheduler]:
    """Bring serving schedulers: admission, batching, chunking and preemption, apart from a stack's coefficients.

    When called: the first time a serving scenario names a scheduler or the schedulers are listed.
    Returns: schedulers.
    Example: ``return [ContinuousBatching()]``
    Errors: two schedulers with one name are refused by naming both plugins.
    """
    raise NotImplementedError


@_specified
def slipstick_transforms() -> Sequence[Transform]:
    """Bring functions from a scenario to a scenario: workloads, speculative decoding, context compression.

    When called: the first time a scenario names a transform or the transforms are listed.
    Returns: transforms, each saying where in the order it stands.
    Example: ``return [SpeculativeDecoding()]``
    Errors: two transforms with one name are refused by naming both plugins.
    """
    raise NotImplementedError


@_specified
def slipstick_trace_readers() -> Sequence[TraceReader]:
    """Bring readers of measured files: a file → rows of kernel, shape, format, device and seconds.

    When called: the first time a measured file is read.
    Returns: trace readers.
    Example: ``return [KinetoReader()]``
    Errors: two readers with one name are refused by naming both plugins.
    """
    raise NotImplementedError


@_specified
def slipstick_evidence() -> Sequence[Claim]:
    """Bring claims: a scenario, a published or measured value, how it must hold, and who stands behind it.

    When called: when claims are listed or validated.
    Returns: claims.
    Example: ``return [Claim(name="acme-one-layer", ...)]``
    Errors: two claims with one name are refused by naming both plugins.
    """
    raise NotImplementedError


@_specified
def slipstick_commands() -> Sequence[click.Command]:
    """Bring further commands of ``slipstick``.

    When called: when a command is asked for that slipstick does not have itself, and when all are listed and the
    list kept from an earlier run is out of date.
    Returns: click commands, each with a name.
    Example: ``return [calibrate]``
    Errors: a command named like one of slipstick's own, or like another plugin's, is refused by naming both.
    """
    raise NotImplementedError
