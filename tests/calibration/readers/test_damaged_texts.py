"""Readers of text files on files that were cut off or scrambled: rows, or one line that says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstick.calibration.readers.aiconfigurator import Aiconfigurator
from slipstick.calibration.readers.benchmarks import Benchmarks
from slipstick.calibration.readers.startup import Startup
from slipstick.calibration.readers.training_logs import TrainingLogs
from slipstick.calibration.readers.vidur import Vidur
from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.trace_reader import HEAD, TraceReader

FILES = {
    "vllm_serve.json": Benchmarks(),
    "vllm_latency.json": Benchmarks(),
    "vllm_throughput.json": Benchmarks(),
    "sglang_serving.jsonl": Benchmarks(),
    "vllm_v1_startup.log": Startup(),
    "vllm_v0_startup.log": Startup(),
    "sglang_startup.log": Startup(),
    "trtllm_startup.log": Startup(),
    "megatron.log": TrainingLogs(),
    "deepspeed.log": TrainingLogs(),
    "torchtitan.log": TrainingLogs(),
    "vidur/profiling/a100/attention.csv": Vidur(),
    "vidur/profiling/compute/a100/meta-llama/Llama-2-7b-hf/mlp.csv": Vidur(),
    "vidur/profiling/network/a100_dgx/all_reduce.csv": Vidur(),
    "vidur/profiling/network/h100_dgx/send_recv.csv": Vidur(),
}
ALL: tuple[TraceReader, ...] = (Aiconfigurator(), Vidur(), Benchmarks(), Startup(), TrainingLogs())
ONCE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def traces(root: Path) -> Path:
    return root / "tests" / "golden" / "traces"


def told(reader: TraceReader, path: Path) -> None:
    """Read to the end; a mistake in the file is one line that names the file."""
    error = ""
    try:
        for _ in reader.rows(path):
            pass
    except UserError as caught:
        error = str(caught)
    assert "\n" not in error
    assert not error or path.name in error


@pytest.mark.parametrize("file", FILES)
def test_one_reader_knows_each_file(traces: Path, file: str) -> None:
    path = traces / file
    with path.open("rb") as opened:
        head = opened.read(HEAD)
    assert [reader.name for reader in ALL if reader.sniff(path, head)] == [FILES[file].name]


@pytest.mark.parametrize("file", FILES)
@ONCE
@given(data=st.data())
def test_cut_off_anywhere(traces: Path, tmp_path: Path, file: str, data: st.DataObject) -> None:
    whole = (traces / file).read_bytes()
    path = tmp_path / Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    told(FILES[file], path)


@pytest.mark.parametrize("file", FILES)
@ONCE
@given(data=st.data())
def test_scrambled_anywhere(traces: Path, tmp_path: Path, file: str, data: st.DataObject) -> None:
    whole = bytearray((traces / file).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, len(whole) - 1))
        piece = data.draw(
            st.sampled_from([b"nan", b"-", b"1e999", b",", b"\0", b"\xff", b'"', b"\n", b"{", "٣".encode()])
        )
        whole[where : where + data.draw(st.integers(0, 3))] = piece
    path = tmp_path / Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(whole))
    told(FILES[file], path)


@ONCE
@given(st.binary(max_size=300))
def test_no_reader_trips_over_any_head(content: bytes) -> None:
    for reader in ALL:
        for name in ("x.json", "x.log", "mlp.csv", "gemm_perf.parquet"):
            reader.sniff(Path(name), content)
