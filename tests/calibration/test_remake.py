"""Records of AIConfigurator's tables: made by one command each, the same as by the command that makes all of them."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from slipstick.calibration.commands import calibrate
from slipstick.calibration.remake import addresses, line_of, remake
from slipstick.core.errors import UserError
from slipstick.core.face.cli.session import Session
from slipstick.core.host.host import Host
from slipstick.core.records.fitted_toml import read_records

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("aiconfigurator_core") is None or importlib.util.find_spec("pyarrow") is None,
        reason="needs the package aiconfigurator-core and the extra `data`",
    )
]


def test_each_record_names_the_command_that_makes_it_again(toy_file: Path, tmp_path: Path) -> None:
    host = Host.load(files=[str(toy_file)])
    done = remake(host, "l40s", tmp_path / "all", "2026-11-30", "toy", ["custom_allreduce"])
    assert [made.reason for made in done] == ["", "", ""]
    assert "custom_allreduce/trtllm" in line_of(done[1])
    path = tmp_path / "all" / "fitted" / "l40s.trtllm.toml"
    records = read_records(path)
    assert {record.slot for record in records} == {"all_reduce"}
    assert records[0].errors["held_out"].n == records[0].rows
    words = shlex.split(records[0].command)
    assert words[:3] == ["slipstick", "calibrate", "fit"]
    result = CliRunner().invoke(
        calibrate, [*words[2:], "--output", str(tmp_path / "one")], obj=Session((str(toy_file),))
    )
    assert result.exception is None, result.output
    assert (tmp_path / "one" / "fitted" / "l40s.trtllm.toml").read_bytes() == path.read_bytes()


def test_tables_of_a_system_are_found_in_the_order_in_which_they_are_needed() -> None:
    found = addresses("h100_sxm")
    names = [address.split("/")[1] for address in found]
    assert names == sorted(names, key=list(dict.fromkeys(names)).index)  # a table's engines stand together
    assert names.index("scale_matrix") < names.index("gemm")  # what other rows hold comes first
    assert {address.split("/")[2] for address in found} >= {"trtllm", "vllm", "sglang", "nccl"}
    assert not any("wideep" in address for address in found)  # whole modules, no kernels
    with pytest.raises(UserError, match="h100"):
        addresses("h100_sxn")
