"""Parameters and matrix FLOPs of real model classes, written to ``architectures.json`` beside this file.

Needs the ``torch`` extra. Run: ``python tests/golden/remake_architectures.py`` (about two minutes on two cores).
The inputs are ``architecture_cases.json`` (small models, options varied) and the bundled presets at full size, which
are instantiated on the meta device, so that no weight is allocated.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CASES = HERE / "architecture_cases.json"
COUNTS = HERE / "architectures.json"
PRESETS = HERE.parent.parent / "plugins" / "architectures" / "presets"
BATCH, QUERY = 2, 24

# Published files say one model_type where the library's causal language model is known under another.
ALIASES = {"kimi_k2": "deepseek_v3"}


def configuration(model_type: str, fields: dict[str, Any]) -> Any:
    """The library's configuration object of ``fields``."""
    from transformers import AutoConfig

    known = {
        k: v for k, v in fields.items() if k not in ("model_type", "architectures", "_slipstick", "quantization_config")
    }
    return AutoConfig.for_model(ALIASES.get(model_type, model_type), **known)


def small(case: dict[str, Any]) -> Any:
    """The configuration of a small case: token ids that fit its vocabulary, no padding row."""
    ids = {"pad_token_id": None, "bos_token_id": 0, "eos_token_id": 1}
    return configuration(case["model_type"], ids | case["fields"])


def model(config: Any, device: str) -> Any:
    """The causal language model of ``config`` on ``device``, eager attention and eager experts."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager")


def parameters(config: Any) -> int:
    """Trained elements of the model class (tied ones once)."""
    return sum(p.numel() for p in model(config, "meta").parameters())


def flops(config: Any) -> tuple[int, int]:
    """Matrix FLOPs of a forward pass, and of forward and backward together, as PyTorch's own counter sees them."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    torch.manual_seed(0)
    built = model(config, "cpu").float()
    for parameter in built.parameters():
        if parameter.is_floating_point():
            torch.nn.init.normal_(parameter, std=0.02)
    built.eval()
    tokens = torch.randint(2, config.vocab_size, (BATCH, QUERY))
    counts = []
    for training in (False, True):
        counter = FlopCounterMode(display=False)
        with counter:
            # No dropout (eval), no cache: the same multiplications in both runs.
            loss = built(input_ids=tokens, labels=tokens, use_cache=False).loss
            if training:
                loss.backward()
        counts.append(int(counter.get_total_flops()))
    return counts[0], counts[1]


def main() -> None:
    """Count everything and write the file."""
    import torch
    import transformers

    counted: dict[str, Any] = {
        "made_by": "tests/golden/remake_architectures.py",
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
        "tokens": {"batch": BATCH, "query": QUERY},
        "cases": {},
        "presets": {},
    }
    for case in json.loads(CASES.read_text(encoding="utf-8")):
        config = small(case)
        # Every key that the library's class writes: a family must know them all.
        row: dict[str, Any] = {"fields": config.to_dict(), "parameters": parameters(config)}
        try:
            row["forward_flops"], row["training_flops"] = flops(small(case))
        except Exception as error:  # a class that cannot run at this size: said, and left out
            row["no_flops"] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
        print(case["name"], {k: v for k, v in row.items() if k != "fields"}, file=sys.stderr)
        counted["cases"][case["name"]] = row
    for path in sorted(PRESETS.glob("*.json")):
        fields = json.loads(path.read_text(encoding="utf-8"))
        try:
            counted["presets"][path.stem] = parameters(configuration(fields["model_type"], fields))
        except Exception as error:
            print(path.stem, "not counted:", type(error).__name__, str(error).splitlines()[0][:200], file=sys.stderr)
        else:
            print(path.stem, counted["presets"][path.stem], file=sys.stderr)
    COUNTS.write_text(layout(counted), encoding="utf-8")


def layout(counted: dict[str, Any]) -> str:
    """JSON with one line a case, so that a change shows as the lines it touches."""
    parts = []
    for name, value in sorted(counted.items()):
        if isinstance(value, dict) and value:
            rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in sorted(value.items()))
            parts.append(f" {json.dumps(name)}: {{\n{rows}\n }}")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
