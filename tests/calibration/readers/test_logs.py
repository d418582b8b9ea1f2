"""Start-up logs of serving engines and logs of training runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.calibration.readers.startup import Startup
from slipstick.calibration.readers.training_logs import TrainingLogs
from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.trace_reader import Unread
from slipstick.core.records.measured import MeasuredPoint

GIB = 1024**3


@pytest.fixture
def traces(root: Path) -> Path:
    return root / "tests" / "golden" / "traces"


def points_of(reader: Startup | TrainingLogs, path: Path) -> tuple[dict[str, MeasuredPoint], list[Unread]]:
    found = list(reader.rows(path))
    points = {point.metric: point for point in found if isinstance(point, MeasuredPoint)}
    return points, [left for left in found if isinstance(left, Unread)]


def test_vllm(traces: Path) -> None:
    points, unread = points_of(Startup(), traces / "vllm_v1_startup.log")
    assert points["kv_capacity"].value == 447_088
    assert points["max_concurrency"].value == 13.64
    assert points["kv_bytes"].value == pytest.approx(54.62 * GIB)
    # Llama 3.1 8B: 32 layers of 8 heads of 128 elements, key and value, two bytes each
    assert points["kv_bytes"].value / points["kv_capacity"].value == pytest.approx(32 * 8 * 128 * 2 * 2, rel=0.002)
    setting = points["kv_bytes"].setting
    assert (setting["tp"], setting["max_length"], setting["memory_fraction"]) == (1, 32768, 0.9)
    assert (setting["precision"], setting["stack"], setting["stack_version"]) == ("bf16", "vllm", "0.11.0")
    assert points["kv_bytes"].model == "meta-llama/Llama-3.1-8B-Instruct"
    assert points["kv_bytes"].facts["weights"] == "14.9888 GiB"
    assert [left.count for left in unread] == [1]  # the memory of the graphs


def test_vllm_counted_blocks_before(traces: Path) -> None:
    points, _ = points_of(Startup(), traces / "vllm_v0_startup.log")
    assert points["kv_capacity"].value == 1952 * 16
    assert points["max_concurrency"].value == 1.56
    # the same model, so the same bytes a token
    assert points["kv_bytes"].value / points["kv_capacity"].value == pytest.approx(32 * 8 * 128 * 2 * 2, rel=0.002)


def test_ranks_that_found_room_for_more_or_less(traces: Path, tmp_path: Path) -> None:
    text = (traces / "vllm_v1_startup.log").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines(keepends=True) if "Available" in line)
    path = tmp_path / "two_ranks.log"
    path.write_text(text.replace(line, line.replace("54.62", "54.70") + line), encoding="utf-8")
    points, _ = points_of(Startup(), path)
    assert points["kv_bytes"].value == pytest.approx(54.62 * GIB)
    assert points["kv_bytes"].note == "the smallest of 2 lines"


@pytest.mark.parametrize("block", [8, 32])
def test_the_size_of_a_block_follows_from_the_concurrency(tmp_path: Path, block: int) -> None:
    path = tmp_path / "start.log"
    path.write_text(
        f"INFO 12-22 10:55:35 gpu_executor.py:76] # GPU blocks: 1000, # CPU blocks: 10\n"
        f"INFO 12-22 10:55:35 gpu_executor.py:80] Maximum concurrency for 4000 tokens per request: {block / 4:.2f}x\n",
        encoding="utf-8",
    )
    points, _ = points_of(Startup(), path)
    assert points["kv_capacity"].value == 1000 * block


def test_sglang(traces: Path) -> None:
    points, unread = points_of(Startup(), traces / "sglang_startup.log")
    assert points["kv_capacity"].value == 367_404
    assert points["kv_bytes"].value == pytest.approx(2 * 8.23 * GIB)
    # Qwen3-235B-A22B: 94 layers of 4 heads of 128 elements; four ranks hold one head each
    assert points["kv_bytes"].value / 367_404 == pytest.approx(94 * 128 * 2 * 2, rel=0.01)
    assert (points["kv_bytes"].setting["tp"], points["kv_bytes"].setting["max_batch"]) == (4, 2048)
    assert points["kv_bytes"].model == "Qwen/Qwen3-235B-A22B-FP8"
    assert [left.count for left in unread] == [1]  # what is free after loading


def test_sglang_with_one_size_for_key_and_value(tmp_path: Path) -> None:
    path = tmp_path / "mla.log"
    path.write_text(
        "[2025-12-18 22:43:05 TP2] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 60000, KV size: 0.13 GB\n"
        "[2025-12-18 22:43:05 TP3] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 60000, KV size: 0.13 GB\n",
        encoding="utf-8",
    )
    points, _ = points_of(Startup(), path)
    assert points["kv_bytes"].value == pytest.approx(0.13 * GIB)
    # two layers of a latent of 512 and a rotary key of 64
    assert points["kv_bytes"].value / 60_000 == pytest.approx(2 * 576 * 2, rel=0.02)


def test_tensorrt_llm_allocates_twice(traces: Path) -> None:
    points, unread = points_of(Startup(), traces / "trtllm_startup.log")
    assert points["kv_capacity"].value == 294_848 == 4607 * 64
    assert points["kv_bytes"].value == pytest.approx(62.99 * GIB)
    assert sum(left.count for left in unread) == 4


def test_two_starts_in_one_log(traces: Path, tmp_path: Path) -> None:
    one = (traces / "sglang_startup.log").read_text(encoding="utf-8")
    path = tmp_path / "two.log"
    path.write_text(one + one.replace("367404", "400000").replace("tp_size=4", "tp_size=8"), encoding="utf-8")
    found = [p for p in Startup().rows(path) if isinstance(p, MeasuredPoint) and p.metric == "kv_capacity"]
    assert [(point.value, point.setting["tp"]) for point in found] == [(367_404, 4), (400_000, 8)]


def test_megatron(traces: Path) -> None:
    points, unread = points_of(TrainingLogs(), traces / "megatron.log")
    assert points["iteration"].value == pytest.approx(5.5338)  # of 5444.9, 5533.8 and 5718.6 ms
    assert points["tflops"].value == pytest.approx(236.0e12)
    assert points["memory"].value == pytest.approx(61440 * 1024**2)
    assert points["iteration"].note == "median of 3 iterations, the first 2 left out"
    setting = points["iteration"].setting
    assert setting == {"task": "train", "devices": 16, "tp": 4, "pp": 1, "cp": 1, "dp": 4, "global_batch": 128,
                       "micro_batch": 1, "sequence": 4096, "precision": "bf16", "stack": "megatron"}  # fmt: skip
    assert points["iteration"].facts == {"hidden_size": "4096", "num_layers": "32"}
    assert unread == [Unread("iterations", "warm-up", 2)]


def test_deepspeed(traces: Path) -> None:
    points, unread = points_of(TrainingLogs(), traces / "deepspeed.log")
    assert points["iteration"].value == pytest.approx(32 / 8)
    assert points["step"].value == pytest.approx(1.17213)
    assert points["memory"].value == pytest.approx(63.31 * GIB)
    assert points["iteration"].setting == {"task": "train", "global_batch": 32, "micro_batch": 4, "precision": "bf16",
                                           "zero_stage": 3, "stack": "deepspeed"}  # fmt: skip
    assert {left.why: left.count for left in unread} == {
        "warm-up": 1, "not those of an iteration or of its optimizer": 1,
    }  # fmt: skip


def test_deepspeed_without_its_batch_gives_no_time(traces: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text((traces / "deepspeed.log").read_text("utf-8").replace("train_batch_size", "other"), "utf-8")
    points, unread = points_of(TrainingLogs(), path)
    assert set(points) == {"step", "memory"}
    assert any(left.what == "SamplesPerSec" and left.count == 2 for left in unread)


def test_torchtitan_with_colours_and_lines_of_two_ranks(traces: Path) -> None:
    points, _ = points_of(TrainingLogs(), traces / "torchtitan.log")
    assert points["tokens_per_s_per_device"].value == 10_007  # step 5; step 1 is warm-up, step 4 one of two
    assert points["mfu"].value == pytest.approx(0.1393)
    assert points["memory"].value == pytest.approx(66.91 * GIB)
    assert points["mfu"].device == "NVIDIA H100 80GB HBM3"
    assert points["mfu"].model == "llama3 8B"
    assert points["mfu"].setting["dp"] == 8
    assert points["mfu"].setting["sequence"] == 8192


def test_a_batch_that_is_ramped_up(traces: Path, tmp_path: Path) -> None:
    text = (traces / "megatron.log").read_text(encoding="utf-8")
    early = "".join(line.replace("batch size:   128", "batch size:    64").replace("ms): 5", "ms): 2")
                    .replace("iteration       4", "iteration        ") for line in text.splitlines(keepends=True)
                    if "elapsed" in line)  # fmt: skip
    path = tmp_path / "ramp.log"
    path.write_text(early + text, encoding="utf-8")
    points, unread = points_of(TrainingLogs(), path)
    assert points["iteration"].value == pytest.approx(5.5338)
    assert Unread("iterations", "with another global batch than 128", 4) in unread


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("megatron.log", "5533.8", "nan", "line 18: iteration is 'nan'; a positive number"),
        ("megatron.log", "5533.8", "-5533.8", "line 18: iteration is '-5533.8'; a positive number"),
        ("megatron.log", "236.0", "0.0", "line 18: tflops is '0.0'; a positive number"),
        ("megatron.log", "iteration ", "cycle ", "no line of an iteration"),
        ("torchtitan.log", "tps: 10,007", "tps: 0", "line 9: tokens_per_s_per_device is '0'"),
        ("vllm_v1_startup.log", "54.62 GiB", "-1.20 GiB", "line 5: kv_bytes is '-1.20'; a positive number"),
        ("vllm_v1_startup.log", "447,088", "0", "line 6: kv_capacity is '0'; a positive number"),
        ("vllm_v1_startup.log", "KV cache", "cache", "says nothing of the key-value cache"),
    ],
)
def test_bad_lines_are_named(traces: Path, tmp_path: Path, file: str, old: str, new: str, told: str) -> None:
    text = (traces / file).read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / file
    if "nothing" in told:
        text = "\n".join(line for line in text.splitlines() if "concurrency" not in line)
    if "no line" in told:
        text = "\n".join(line for line in text.splitlines() if "max allocated" not in line)
    path.write_text(text.replace(old, new), encoding="utf-8")
    reader = TrainingLogs() if "startup" not in file else Startup()
    with pytest.raises(UserError, match=told):
        list(reader.rows(path))


@pytest.mark.parametrize("reader", [Startup(), TrainingLogs()])
def test_an_empty_log_is_named(tmp_path: Path, reader: Startup | TrainingLogs) -> None:
    path = tmp_path / "empty.log"
    path.write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="is empty; a log is expected"):
        list(reader.rows(path))
