"""Measured points from files: the forms of CSV, their units, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slipstick.core.errors import UserError
from slipstick.core.host.host import Host
from slipstick.core.study.validation.points import read_file, source_of
from slipstick.core.study.validation.run import check_columns, completed, limited

TRAINING = "id,source,model,gpus,gpu_type,tp,metric,value,notes\n"


def write(folder: Path, text: str | bytes, name: str = "points.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_units_become_si_and_figures_of_a_device_those_of_all(tmp_path: Path, host: Host) -> None:
    rows = (
        "A-1,a paper,GPT-175B,64,A100-80GB,8,iter_time_s,18.13,\n"
        "A-2,a paper,GPT-175B,64,A100-80GB,8,tflops_per_gpu,140,\n"
        "A-3,a paper,GPT-175B,64,A100-80GB,8,tokens_per_s_per_gpu,10,\n"
        "A-4,a paper,GPT-175B,64,A100-80GB,8,mem_gb_per_gpu,2,\n"
    )
    found = read_file(write(tmp_path, TRAINING + rows), host).points
    assert [p.metric for p in found] == ["iteration", "tflops", "tokens_per_s", "memory"]
    assert [p.value for p in found] == [18.13, 140e12, 640.0, 2 * 2.0**30]
    assert {p.source for p in found} == {"A"}
    assert [p.line for p in found] == [2, 3, 4, 5]
    assert found[0].setting == {"task": "train", "devices": 64, "tp": 8}


def test_a_serving_row_is_two_points_and_a_blank_one_is_told(tmp_path: Path, host: Host) -> None:
    text = (
        "model,system,concurrency,input_len,output_len,ttft_ms,tpot_ms\n"
        "Qwen/Qwen3-32B,h100_sxm,64,1024,512,150,20\n"
        "Qwen/Qwen3-32B,h100_sxm,32,1024,512,,15\n"
    )
    found = read_file(write(tmp_path, text), host)
    assert [(p.metric, p.value) for p in found.points] == [("ttft", 0.15), ("tpot", 0.02), ("tpot", 0.015)]
    assert [(p.name, p.metric, p.reason) for p in found.passed] == [("line 3", "ttft", "ttft_ms is blank")]


def test_a_byte_order_mark_other_columns_and_empty_lines_do_no_harm(tmp_path: Path, host: Host) -> None:
    text = "\ufeffmodel,gpus,gpu_type,metric,value,rack\nGPT,8,H100,iter_time_s,1.5,7\n\n,,,,,\n"
    found = read_file(write(tmp_path, text), host)
    assert [p.facts["rack"] for p in found.points] == ["7"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "no form of measured points has these columns"),
        ("model,gpus,metric,value\n", "a training file lacks the columns gpu_type"),
        (TRAINING, "has a header and no rows"),
        (TRAINING + "A,s,GPT,8,H100,1,iter_time_s,nan,\n", "line 2: value is 'nan'; a finite number is expected"),
        (TRAINING + "A,s,GPT,8,H100,1,iter_time_s,1,\nA,s,GPT,8,H100,1,iter_time_s,0,\n", "line 3: iteration is 0"),
        (TRAINING + "A,s,GPT,8,H100,1,iter_time_s,-1,\n", "line 2: iteration is -1"),
        (TRAINING + "A,s,GPT,8,H100,1,iter_time_s,fast,\n", "line 2: value is 'fast'; a number is expected"),
        (TRAINING + "A,s,GPT,8,H100,1,iter_time,1,\n", "line 2: unknown metric 'iter_time'; did you mean iter_time_s?"),
        (TRAINING + "A,s,GPT,8\n", "line 2: 4 cells under 9 columns"),
        ("model,gpus,gpus,gpu_type,metric,value\nx,1,1,H100,mfu,1\n", "line 1: column 'gpus' stands twice"),
        (b"\xff\xfe\x00", "is no text"),
        (TRAINING.encode() + b"A,s,GPT,8,H100,1,iter_time_s,1,\xff\n", "line 2: not UTF-8 text"),
    ],
)
def test_what_is_no_measured_file_is_one_line(tmp_path: Path, host: Host, text: Any, told: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UserError) as error:
        read_file(path, host)
    assert told in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path, host: Host) -> None:
    with pytest.raises(UserError, match=r"can't be read: No such file"):
        read_file(tmp_path / "none.csv", host)


@pytest.mark.parametrize(
    ("row", "source"),
    [
        ({"id": "NAR21T1-003", "source": "a paper"}, "NAR21T1"),
        ({"id": "run", "source": "a paper"}, "a paper"),
        ({"id": "h100_tp8_c64", "source": ""}, "points"),
    ],
)
def test_a_source_is_what_its_ids_share(row: dict[str, str], source: str) -> None:
    assert source_of(row, "points") == source


def test_points_are_picked_by_metric_column_and_number(tmp_path: Path, host: Host) -> None:
    rows = "".join(f"A-{i},s,GPT,{2**i},H100,1,iter_time_s,{i},\n" for i in range(1, 5))
    points = read_file(write(tmp_path, TRAINING + rows), host)
    assert [p.value for p in limited(points, 2, (), {}).points] == [1, 2]
    assert [p.value for p in limited(points, None, (), {"gpus": "8"}).points] == [3]
    assert limited(points, None, ("tpot",), {}).points == ()
    assert len(limited(points, None, ("iter_time_s",), {}).points) == 4
    with pytest.raises(UserError, match=r"unknown column 'gpu'; did you mean gpus"):
        check_columns(points, {"--filter": ("gpu",)})


def test_what_a_file_leaves_out_can_be_given_and_what_it_says_stays(tmp_path: Path, host: Host) -> None:
    points = read_file(write(tmp_path, TRAINING + "A-1,s,GPT,8,,4,iter_time_s,1,\n"), host)
    made = completed(points, "h100-sxm", {"tp": 8, "pp": 2}).points[0]
    assert made.device == "h100-sxm"
    assert (made.setting["tp"], made.setting["pp"]) == (4, 2)
