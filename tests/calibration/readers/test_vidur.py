"""Vidur's profiling files: rows of the published tables, and what a bad one says."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstick.calibration.readers.vidur import Vidur
from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.trace_reader import TraceRow, Unread

MLP = "compute/a100/meta-llama/Llama-2-7b-hf/mlp.csv"


@pytest.fixture
def profiling(root: Path) -> Path:
    return root / "tests" / "golden" / "traces" / "vidur" / "profiling"


def rows_of(path: Path) -> tuple[list[TraceRow], list[Unread]]:
    found = list(Vidur().rows(path))
    return [row for row in found if isinstance(row, TraceRow)], [row for row in found if isinstance(row, Unread)]


def test_linear_layers_are_the_products_of_llama_2_7b(profiling: Path) -> None:
    rows, unread = rows_of(profiling / MLP)
    gemms = {row.facts["operation"]: row for row in rows if row.kernel == "gemm" and row.line == 2}
    assert {name: dict(row.shape) for name, row in gemms.items()} == {
        "attn_pre_proj": {"m": 4096, "n": 3 * 4096, "k": 4096},  # 32 heads each of query, key and value
        "attn_post_proj": {"m": 4096, "n": 4096, "k": 4096},
        "mlp_up_proj": {"m": 4096, "n": 2 * 11008, "k": 4096},  # gate and up together
        "mlp_down_proj": {"m": 4096, "n": 4096, "k": 11008},
    }
    up = gemms["mlp_up_proj"]
    assert up.seconds == pytest.approx(3.3655e-3)  # the median of the first row of microsoft/vidur's file
    assert up.spread == pytest.approx(0.12552429e-3)
    assert (up.device, up.format, up.samples) == ("a100-sxm-80gb", "fp16", 20)
    for row in gemms.values():  # NVIDIA A100 data sheet: 312 TFLOP/s, dense
        assert 0.5 * 312e12 < 2 * row.shape["m"] * row.shape["n"] * row.shape["k"] / row.seconds < 312e12
    assert not unread


def test_element_wise_operations_move_bytes_at_most_as_fast_as_the_memory(profiling: Path) -> None:
    rows, _ = rows_of(profiling / MLP)
    moved = [row for row in rows if row.kernel in ("pointwise", "lookup") and row.line == 2]
    assert len(moved) == 6
    assert all(row.shape["bytes"] / row.seconds < 2.039e12 for row in moved)  # A100 80 GB: 2,039 GB/s
    act = next(row for row in moved if row.facts["operation"] == "mlp_act")
    assert act.shape == {"bytes": 4096 * 11008 * 3 * 2, "elements": 4096 * 11008}  # two read, one written


def test_tensor_parallel_ranks_have_their_share(tmp_path: Path, profiling: Path) -> None:
    path = tmp_path / "compute" / "h100" / "org" / "model" / "mlp.csv"
    path.parent.mkdir(parents=True)
    text = (profiling / MLP).read_text(encoding="utf-8")
    path.write_text(text.replace(",32,32,4096,11008,32768,True,4096,1", ",32,8,4096,11008,32768,True,4096,4"), "utf-8")
    gemms = {row.facts["operation"]: row for row in rows_of(path)[0] if row.kernel == "gemm" and row.line == 2}
    assert gemms["attn_pre_proj"].shape == {"m": 4096, "n": (8 + 2 * 2) * 128, "k": 4096}
    assert gemms["attn_post_proj"].shape == {"m": 4096, "n": 4096, "k": 1024}
    assert gemms["mlp_up_proj"].shape["n"] == 2 * 11008 / 4
    assert gemms["mlp_down_proj"].shape["k"] == 11008 / 4
    assert gemms["mlp_up_proj"].device == "h100-sxm"


def test_attention_counts_what_is_cached_and_what_is_new(profiling: Path) -> None:
    rows, unread = rows_of(profiling / "a100" / "attention.csv")
    decode, _, chunk, whole = rows
    assert {row.kernel for row in rows} == {"attention"}
    assert (decode.shape["query"], decode.shape["context"], decode.shape["batch"]) == (1, 33, 1)
    assert (chunk.shape["query"], chunk.shape["context"]) == (3968, 3968 + 64)
    assert (whole.shape["query"], whole.shape["context"]) == (4096, 4096)
    assert (whole.shape["heads"], whole.shape["kv_heads"], whole.shape["head_dim"]) == (32, 4, 128)  # two ranks of 70B
    assert whole.seconds == pytest.approx(2.314e-3)
    assert whole.source == "FLASH_ATTENTION"
    assert {(left.what, left.count) for left in unread} == {("attn_input_reshape", 4), ("attn_output_reshape", 4)}


def test_collectives(profiling: Path, tmp_path: Path) -> None:
    reduce, _ = rows_of(profiling / "network" / "a100_dgx" / "all_reduce.csv")
    assert [(row.kernel, row.shape["bytes"], row.ranks) for row in reduce] == [
        ("all_reduce", 2048, 2), ("all_reduce", 1 << 20, 2), ("all_reduce", 2 << 20, 2),
    ]  # fmt: skip
    assert reduce[1].seconds == pytest.approx(0.253e-3)
    assert reduce[1].facts["devices_per_node"] == "1"  # two nodes with a device each
    send, _ = rows_of(profiling / "network" / "h100_dgx" / "send_recv.csv")
    assert [(row.kernel, row.ranks, row.device) for row in send] == [("send", 2, "h100-sxm")] * 2
    # vidur's all-gather sizes the shard of one rank, slipstick the gathered tensor
    path = tmp_path / "network" / "h100_pair_nvlink" / "all_gather.csv"
    path.parent.mkdir(parents=True)
    text = (profiling / "network" / "a100_dgx" / "all_reduce.csv").read_text(encoding="utf-8")
    path.write_text(text.replace("all_reduce", "all_gather").replace("0,2,1048576", "0,4,1048576"), "utf-8")
    gather, _ = rows_of(path)
    assert (gather[1].kernel, gather[1].shape["bytes"], gather[1].ranks) == ("all_gather", 4 << 20, 4)
    assert gather[1].device == "h100-nvl"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("0.253,0.253,", "0.253,-0.253,", r"line 3: time_stats\.all_reduce\.median is '-0\.253'; a positive time"),
        ("0.253,0.253,", "0.253,nan,", r"line 3: time_stats\.all_reduce\.median is 'nan'; a number"),
        ("0.253,0.253,", "0.253,fast,", r"line 3: time_stats\.all_reduce\.median is 'fast'; a number"),
        ("0,2,1048576", "0,0,1048576", "line 3: num_workers is '0'; a positive number"),
        ("0,2,1048576", "0,2,", "line 3: 11 values for 12 columns|line 3: size is ''"),
        ("num_workers", "workers", "has not the columns of Vidur's"),
        ("1048576,all_reduce,1,8", "1048576", "line 3: 9 values for 12 columns"),
    ],
)
def test_bad_rows_are_named(profiling: Path, tmp_path: Path, old: str, new: str, told: str) -> None:
    path = tmp_path / "network" / "a100_dgx" / "all_reduce.csv"
    path.parent.mkdir(parents=True)
    text = (profiling / "network" / "a100_dgx" / "all_reduce.csv").read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(UserError, match=told):
        list(Vidur().rows(path))


def test_what_rounds_to_nothing_and_unknown_collectives_are_counted(profiling: Path, tmp_path: Path) -> None:
    path = tmp_path / "network" / "my_cluster" / "all_reduce.csv"
    path.parent.mkdir(parents=True)
    text = (profiling / "network" / "a100_dgx" / "all_reduce.csv").read_text(encoding="utf-8")
    path.write_text(text.replace("0.253,0.253,", "0.0,0.0,").replace("2048,all_reduce", "2048,broadcast"), "utf-8")
    rows, unread = rows_of(path)
    assert len(rows) == 1
    assert rows[0].device == "my_cluster"
    assert {left.what: left.count for left in unread} == {"all_reduce": 1, "broadcast": 1}


def test_files_without_folders_or_rows(profiling: Path, tmp_path: Path) -> None:
    text = (profiling / MLP).read_text(encoding="utf-8")
    alone = tmp_path / "mlp.csv"
    alone.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="the folder names no device"):
        list(Vidur().rows(alone))
    empty = tmp_path / "compute" / "a40" / "mlp.csv"
    empty.parent.mkdir(parents=True)
    empty.write_text(text.splitlines()[0] + "\n", encoding="utf-8")
    with pytest.raises(UserError, match="a head line and no row"):
        list(Vidur().rows(empty))
