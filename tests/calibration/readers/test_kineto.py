"""Traces of the PyTorch profiler: a small one with the events of a GPU, real ones of this CPU, damage, and size."""

from __future__ import annotations

import contextlib
import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.calibration.readers.kineto import Kineto
from slipstick.calibration.readers.trace_json import TraceFile
from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.trace_reader import HEAD, TraceRow, Unread

READER = Kineto()
BF16 = "c10::BFloat16"


@pytest.fixture(scope="module")
def golden(root: Path) -> Path:
    return root / "tests" / "golden" / "traces" / "kineto_gpu.json"


def read(path: Path) -> tuple[list[TraceRow], list[Unread]]:
    """Rows, and what was passed over."""
    found = list(READER.rows(path))
    return [row for row in found if isinstance(row, TraceRow)], [row for row in found if isinstance(row, Unread)]


def operator(identifier: int, name: str, dims: list[Any], types: list[str], **more: Any) -> dict[str, Any]:
    args = {"External id": identifier, "Input Dims": dims, "Input type": types, **more.pop("args", {})}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 1.0, "dur": 5.0, "args": args, **more}


def kernel(identifier: int, name: str, length: float, **args: Any) -> dict[str, Any]:
    args = {"External id": identifier, "correlation": identifier + 1000, "device": 0, **args}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 10.0, "dur": length, "args": args}


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
    path.write_text(json.dumps({**head, "traceEvents": events}))
    return path


def test_each_kind_of_work_is_read_with_its_shape(golden: Path) -> None:
    rows, skipped = read(golden)
    attention = {"batch": 2, "query": 4096, "context": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128}
    attention |= {"window": 0, "causal": 1}
    assert [(row.kernel, dict(row.shape), row.format, row.ranks) for row in rows] == [
        ("gemm", {"m": 4096, "n": 4096, "k": 8192}, "bf16", 1),
        ("gemm", {"m": 16, "n": 2048, "k": 4096}, "bf16", 1),
        ("attention", attention, "bf16", 1),
        ("pointwise", {"bytes": 2 * 8192 * 14336 * 2, "elements": 8192 * 14336}, "bf16", 1),
        ("optimizer", {"elements": 4096 * 4096 + 4096}, "fp32", 1),
        ("batched_gemm", {"batch": 64, "m": 128, "n": 128, "k": 64}, "tf32", 1),
        ("lookup", {"bytes": 2 * 8192 * 4096 * 2 + 8192 * 8, "elements": 8192 * 4096}, "bf16", 1),
        ("my_lib::fancy_op", {"bytes": 2 * 1024**2, "elements": 1024**2}, "fp16", 1),
        ("attention_backward", attention, "bf16", 1),
        ("host_to_device", {"bytes": 16777216}, "", 1),
        ("memory_copy", {"bytes": 2 * 67108864}, "", 1),  # read and written
        ("all_gather", {"bytes": 268435456 * 2}, "bf16", 8),  # the gathered result
        ("all_reduce", {"bytes": 536870912 * 2}, "bf16", 8),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", {}, "", 1),  # a graph's kernels are nobody's
        ("triton_poi_fused_mul_silu_0", {}, "", 1),
    ]
    assert {row.device for row in rows} == {"NVIDIA H100 80GB HBM3"}
    assert [(entry.what, entry.why, entry.count) for entry in skipped] == [
        ("aten::mm", "no shapes; record with record_shapes=True", 1),
        ("collective recv", "a receive waits for its sender; the send is read", 1),
    ]


def test_times_sources_and_places_are_those_of_the_file(golden: Path) -> None:
    rows, _ = read(golden)
    by_place = {row.line: row for row in rows}
    text = golden.read_text().splitlines()
    for line, row in by_place.items():
        assert '"cat": "kernel"' in text[line - 1] or '"cat": "gpu_memcpy"' in text[line - 1], row
    assert [row.seconds for row in rows[:3]] == pytest.approx([412.5e-6, (7.3 + 2.1) * 1e-6, 905e-6])
    assert [row.source for row in rows[:3]] == ["cuBLAS", "cuBLAS", "FlashAttention"]
    assert rows[1].facts["kernels"] == "2"
    assert rows[8].seconds == pytest.approx((60 + 2300) * 1e-6)
    assert rows[9].facts["host memory"] == "pinned"


def test_no_kernel_is_counted_twice_or_lost(golden: Path) -> None:
    events = json.loads(golden.read_text())["traceEvents"]
    whole = sum(event["dur"] for event in events if event.get("cat") in ("kernel", "gpu_memcpy"))
    rows, _ = read(golden)
    unread = 44.0 + 90.0  # the product without shapes and the receive
    assert sum(row.seconds for row in rows) * 1e6 == pytest.approx(whole - unread)


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_the_events_does_not_matter(golden: Path, tmp_path: Path, order: int) -> None:
    events = json.loads(golden.read_text())
    events["traceEvents"] = events["traceEvents"][::order]
    (tmp_path / "trace.json").write_text(json.dumps(events))

    def plain(path: Path) -> list[tuple[Any, ...]]:
        return sorted(
            (row.kernel, sorted(row.shape.items()), row.format, round(row.seconds, 12)) for row in read(path)[0]
        )

    assert plain(tmp_path / "trace.json") == plain(golden)


def test_gzip_and_a_bare_list_of_events_are_read_alike(golden: Path, tmp_path: Path) -> None:
    packed, bare = tmp_path / "trace.json.gz", tmp_path / "bare.json"
    packed.write_bytes(gzip.compress(golden.read_bytes()))
    events = json.loads(golden.read_text())["traceEvents"]
    bare.write_text(json.dumps(events))
    for path in (golden, packed, bare):
        assert READER.sniff(path, path.read_bytes()[:HEAD])
    expected, _ = read(golden)
    assert read(packed)[0] == expected
    assert [row.seconds for row in read(bare)[0]] == [row.seconds for row in expected]
    assert {row.device for row in read(bare)[0]} == {"unnamed GPU"}


SDPA = "aten::_scaled_dot_product_flash_attention"


@pytest.mark.parametrize(
    ("name", "dims", "types", "values", "expected"),
    [
        ("aten::linear", [[4, 7, 16], [32, 16], [32]], [BF16] * 3, [], ("gemm", {"m": 28, "n": 32, "k": 16}, "bf16")),
        ("aten::mv", [[64, 16], [16]], ["float"] * 2, [], ("gemm", {"m": 64, "n": 1, "k": 16}, "fp32")),
        ("aten::bmm", [[1, 5, 6], [1, 6, 7]], ["c10::Half"] * 2, [], ("gemm", {"m": 5, "n": 7, "k": 6}, "fp16")),
        (
            "aten::_scaled_mm",
            [[64, 512], [512, 256], [64, 4], [4, 2], [], [], [], []],
            ["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float", "float", "", "", "Scalar", "Scalar"],
            [],
            ("gemm", {"m": 64, "n": 256, "k": 512}, "fp8_block"),
        ),
        (
            "aten::_scaled_mm",
            [[64, 256], [256, 256], [64, 32], [256, 32], [], [], [], []],
            ["c10::Float4_e2m1fn_x2"] * 2 + ["c10::Float8_e4m3fn"] * 2 + [""] * 4,
            [],
            ("gemm", {"m": 64, "n": 256, "k": 512}, "nvfp4"),  # two numbers in a byte
        ),
        (
            SDPA,
            [[2, 32, 1, 128], [2, 8, 900, 128], [2, 8, 900, 128], [], [], [], []],
            [BF16] * 3 + ["Scalar"] * 4,
            ["", "", "", "0.", "False", "False", ""],
            (
                "attention",
                {"batch": 2, "query": 1, "context": 900, "heads": 32, "kv_heads": 8, "head_dim": 128}
                | {"window": 0, "causal": 0},
                "bf16",
            ),
        ),
        (
            "flash_attn::_flash_attn_varlen_forward",
            [[300, 8, 64], [300, 2, 64], [300, 2, 64], [4], [4], [], [], [], [], [], [], []],
            [BF16] * 3 + ["int", "int"] + ["Scalar"] * 7,
            ["", "", "", "", "", "100", "100", "0.", "0.125", "True", "31", "0"],
            (
                "attention",
                {"batch": 3, "query": 100, "context": 100, "heads": 8, "kv_heads": 2, "head_dim": 64}
                | {"window": 32, "causal": 1},
                "bf16",
            ),
        ),
        (
            "aten::add_",
            [[8, 16], [16], []],
            ["float"] * 2 + ["Scalar"],
            [],
            ("pointwise", {"bytes": 4 * (128 * 2 + 16), "elements": 128}, "fp32"),
        ),
        (
            "aten::mul",
            [[8, 1], [1, 16]],
            [BF16] * 2,
            [],
            ("pointwise", {"bytes": 2 * (8 + 16 + 128), "elements": 128}, "bf16"),
        ),
        ("aten::eq", [[128], []], [BF16, "Scalar"], [], ("pointwise", {"bytes": 256 + 128, "elements": 128}, "bf16")),
        ("aten::copy_", [[128], [128]], [BF16, "float"], [], ("pointwise", {"bytes": 768, "elements": 128}, "bf16")),
        ("aten::zero_", [[128]], ["float"], [], ("pointwise", {"bytes": 512, "elements": 128}, "fp32")),
        (
            "aten::index_select",
            [[50, 8], [], [20]],
            ["float", "Scalar", "long int"],
            ["", "0", ""],
            ("lookup", {"bytes": 2 * 160 * 4 + 160, "elements": 160}, "fp32"),
        ),
    ],
)
def test_operators_and_their_shapes(
    tmp_path: Path, name: str, dims: list[Any], types: list[str], values: list[str], expected: tuple[Any, ...]
) -> None:
    events = [operator(1, name, dims, types, args={"Concrete Inputs": values}), kernel(1, "some_kernel", 3.0)]
    ((row,), skipped) = read(write(tmp_path / "t.json", events))
    assert (row.kernel, dict(row.shape), row.format) == expected
    assert skipped == []


@pytest.mark.parametrize(
    ("name", "dims", "types", "values", "why"),
    [
        ("aten::mm", [[4, 8], [9, 2]], [BF16] * 2, [], "the inner extents of the product differ"),
        ("aten::mm", [[0, 8], [8, 2]], [BF16] * 2, [], "an empty product"),
        (SDPA, [[2, 4, 9, 8]] * 3, [BF16] * 3, [], "whether it is causal isn't recorded"),
        ("aten::scaled_dot_product_attention", [[2, 4, 9, 8]] * 3 + [[9, 9]], [BF16] * 4, [], "a mask of its own"),
        (
            "flash_attn::_flash_attn_varlen_forward",
            [[250, 8, 64], [250, 2, 64], [250, 2, 64], [4], [4]],
            [BF16] * 3 + ["int"] * 2,
            ["", "", "", "", "", "100", "100", "0.", "0.125", "True"],
            "sequences of unequal lengths in one call",
        ),
        ("aten::_fused_adam_", [], [], [], "no shapes; record with record_shapes=True"),
    ],
)
def test_work_whose_shape_is_not_told_is_counted_and_named(
    tmp_path: Path, name: str, dims: list[Any], types: list[str], values: list[str], why: str
) -> None:
    args = {"Concrete Inputs": values}
    events = [operator(i, name, dims, types, args=args) for i in (1, 2)] + [kernel(i, "k", 3.0) for i in (1, 2)]
    assert list(READER.rows(write(tmp_path / "t.json", events))) == [Unread(name, why, 2)]


def test_operators_inside_others_are_not_counted_twice(tmp_path: Path) -> None:
    f = ["float", "float"]
    events = [
        operator(1, "aten::linear", [[4, 8], [2, 8]], f, ts=0.0, dur=100.0),
        operator(2, "aten::addmm", [[2], [4, 8], [8, 2]], [*f, "float"], ts=10.0, dur=80.0),
        operator(3, "aten::copy_", [[4, 2], [4, 2]], f, ts=20.0, dur=10.0),
        operator(4, "aten::linear", [[4, 8], [2, 8]], f, ts=200.0, dur=50.0),  # nothing inside: it is the product
        operator(5, "aten::mm", [[4, 8], [8, 2]], f, ts=15.0, dur=30.0, tid=2),  # another thread
        operator(6, "MyBackward0", [[4]], ["float"], ts=300.0, dur=9.0),
        operator(7, "aten::view", [[4]], ["float"], ts=301.0, dur=2.0),
        operator(8, "aten::topk", [[4, 8]], ["float"], ts=400.0, dur=7.0),
        operator(9, "aten::empty", [[]], [""], ts=401.0, dur=1.0),
    ]
    rows, skipped = read(write(tmp_path / "t.json", events[::-1]))
    assert sorted((row.kernel, row.seconds) for row in rows) == [
        ("aten::topk", pytest.approx(7e-6)),
        ("gemm", pytest.approx(30e-6)),
        ("gemm", pytest.approx(50e-6)),
        ("gemm", pytest.approx(80e-6)),
    ]
    assert {row.device for row in rows} == {"cpu"}
    assert {(entry.what, entry.count) for entry in skipped} == {
        ("aten::linear", 1), ("MyBackward0", 1), ("aten::view", 1), ("aten::empty", 1),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the file is empty"),
        ("hello", r"begins with \{ or \["),
        ("{}", "holds no events"),
        ('{"traceEvents": []}', "holds no events"),
        ('{"traceEvents": [{"ph": "M", "name": "x"}]}', "none is an operator or a kernel"),
        ('{"traceEvents": [{"ph": "X"', "line 1: .* the text ends"),
        ('{"traceEvents": [\n\n{"ph": X}]}', "line 3: no JSON of a trace: Expecting value"),
        ('{"traceEvents": [{} {}]}', "a comma is missing"),
        ('{"traceEvents": [{"a": ' + "[" * 100000 + "]}", "nested too deeply"),
        ('{"traceEvents": [{"a": ' + "1" * 10000 + "}]}", "no JSON of a trace"),
        ('{"traceEvents": [\n{"ph": "X", "cat": "kernel", "name": "k", "dur": 0}]}', "line 2: 'k' took 0 µs"),
        ('{"traceEvents": [\n{"ph": "X", "cat": "kernel", "name": "k", "dur": -3}]}', "line 2: 'k' took -3 µs"),
        ('{"traceEvents": [\n{"ph": "X", "cat": "kernel", "name": "k", "dur": NaN}]}', "line 2: 'k' has 'nan' as dur"),
        ('{"traceEvents": [\n{"ph": "X", "cat": "kernel", "name": "k"}]}', "line 2: 'k' has no dur"),
    ],
)
def test_a_bad_trace_is_told_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(UserError, match=told) as caught:
        list(READER.rows(path))
    assert "bad.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.99])
def test_a_cut_off_trace_is_told(golden: Path, tmp_path: Path, part: float) -> None:
    whole = golden.read_bytes()
    for name, content in (("t.json", whole), ("t.json.gz", gzip.compress(whole))):
        path = tmp_path / name
        path.write_bytes(content[: int(len(content) * part)])
        with pytest.raises(UserError, match=name):
            list(READER.rows(path))


@given(st.binary(max_size=300) | st.text(alphabet='{}[]":,0traceEvnsX \n', max_size=200).map(str.encode))
@settings(max_examples=150, deadline=None)
def test_random_bytes_give_nothing_but_an_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "random.json"
    path.write_bytes(content)
    READER.sniff(path, content)
    with pytest.raises(UserError):
        list(READER.rows(path))


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_odd_events_give_rows_or_an_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    odd = st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-3, 2**70)
        | st.floats()
        | st.sampled_from(["", "float", BF16, "1", "True"]),
        lambda inner: st.lists(inner, max_size=4),
        max_leaves=12,
    )
    names = st.sampled_from(
        ["aten::mm", "aten::bmm", "aten::add_", SDPA, "aten::index_select", "aten::_fused_adam_", "x"]
    )
    keys = ["External id", "Input Dims", "Input type", "Concrete Inputs", "correlation", "device", "bytes", "dtype"]
    keys += ["Collective name", "In msg nelems", "Group size"]
    args = st.dictionaries(st.sampled_from(keys), odd, max_size=8)
    times = st.floats(0.1, 1e6) | odd
    events = data.draw(
        st.lists(
            st.fixed_dictionaries(
                {"ph": st.just("X"), "cat": st.sampled_from(["cpu_op", "kernel", "gpu_memcpy", "cuda_runtime"])}
                | {"name": names, "ts": times, "dur": times, "args": args | odd}
            ),
            max_size=6,
        )
    )
    path = write(tmp_path_factory.getbasetemp() / "odd.json", events)
    with contextlib.suppress(UserError):
        list(READER.rows(path))


def test_memory_grows_far_less_than_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TraceFile._more, "__defaults__", (1 << 16,))
    monkeypatch.setattr("slipstick.calibration.readers.trace_json.CHUNK", 1 << 16)
    sizes, peaks = [], []
    for count in (100, 2_000, 6_000):  # the first for what is loaded once
        path = tmp_path / f"{count}.json"
        with path.open("w") as file:
            file.write('{"schemaVersion": 1, "deviceProperties": [],\n"traceEvents": [\n')
            for i in range(1, count):
                args = {"filler": "x" * 400}
                file.write(json.dumps(operator(i, "aten::mm", [[i % 50 + 1, 64], [64, 64]], [BF16] * 2, args=args)))
                file.write(",\n" + json.dumps(kernel(i, "nvjet", 2.0)) + ",\n")
            file.write("{}]}")
        tracemalloc.start()
        assert sum(isinstance(row, TraceRow) for row in READER.rows(path)) == count - 1
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        sizes.append(path.stat().st_size)
    assert peaks[2] - peaks[1] < (sizes[2] - sizes[1]) / 4


def test_windows_of_any_size_give_the_same_events(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = json.loads(golden.read_text())["traceEvents"]
    for size in (1, 7, 100, 1 << 20):
        monkeypatch.setattr("slipstick.calibration.readers.trace_json.CHUNK", size)
        monkeypatch.setattr(TraceFile._more, "__defaults__", (size,))
        assert list(TraceFile(golden).events()) == expected


@pytest.mark.torch
def test_a_real_trace_of_this_cpu(tmp_path: Path, torch_profile: Callable[[Path], dict[str, float]]) -> None:
    path = tmp_path / "cpu.json"
    wall = torch_profile(path)["seconds"]
    assert READER.sniff(path, path.read_bytes()[:HEAD])
    rows, skipped = read(path)
    shapes = [(row.kernel, dict(row.shape)) for row in rows]
    assert ("gemm", {"m": 256, "n": 512, "k": 256}) in shapes  # forward
    assert ("gemm", {"m": 512, "n": 256, "k": 256}) in shapes  # gradient of the weight
    attention = {"batch": 4, "query": 64, "context": 64, "heads": 4, "kv_heads": 4, "head_dim": 64}
    assert ("attention", attention | {"window": 0, "causal": 1}) in shapes
    assert ("attention_backward", attention | {"window": 0, "causal": 1}) in shapes
    assert ("optimizer", {"elements": 512 * 256 + 512 + 1000 * 256 + 2 * 256}) in shapes
    assert {row.format for row in rows if row.kernel in ("gemm", "attention")} == {"fp32"}
    assert 0 < sum(row.seconds for row in rows) <= wall * 1.05
    assert all(entry.count > 0 and entry.why for entry in skipped)


@pytest.mark.torch
def test_a_real_trace_without_shapes_says_how_to_record_them(
    tmp_path: Path, torch_profile: Callable[..., dict[str, float]]
) -> None:
    path = tmp_path / "cpu.json"
    torch_profile(path, record_shapes=False)
    rows, skipped = read(path)
    assert not [row for row in rows if row.kernel in ("gemm", "attention", "pointwise")]
    assert ("aten::mm", "no shapes; record with record_shapes=True") in [(entry.what, entry.why) for entry in skipped]
