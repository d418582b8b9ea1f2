"""The software stacks that were fitted to published runs: one record a stack in the data base.

Floor: plugins. ``python -m slipstick.calibration.stacks`` remakes the records from files of published runs.
"""

from __future__ import annotations

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.stack import Stack
from slipstick.core.model.recorded_stack import RecordedStack
from slipstick.hwdb import FOLDER


@hookimpl
def slipstick_stacks() -> list[Stack]:
    """vLLM, SGLang and TensorRT-LLM; Megatron-LM, DeepSpeed and PyTorch FSDP with torchtitan; what else has a file."""
    return [RecordedStack(path.stem, path) for path in sorted((FOLDER / "stacks").glob("*.toml"))]
