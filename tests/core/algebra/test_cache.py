"""The cache of programs: never trusted, never in the way, bounded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstick.core.algebra import cache as module
from slipstick.core.algebra.cache import ProgramCache, code_fingerprint, key

PAYLOAD = {"tape": {"constants": [1.5, 2.5], "names": ["a", "ü"]}, "notes": "x" * 50}
KEY = key("train", {"model": "m", "tp": 8})


def entry(cache: ProgramCache) -> Path:
    (path,) = cache.folder.glob("*.json")
    return path


def test_what_was_put_is_got_and_by_another_process_object_too(tmp_path: Path) -> None:
    assert ProgramCache(tmp_path).get(KEY) is None
    assert ProgramCache(tmp_path).put(KEY, PAYLOAD)
    assert ProgramCache(tmp_path).get(KEY) == PAYLOAD
    assert ProgramCache(tmp_path).get(key("other")) is None


def test_a_key_depends_on_content_and_not_on_order() -> None:
    assert key("a", {"x": 1, "y": [1, 2]}) == key("a", {"y": [1, 2], "x": 1})
    different = [key("a"), key("b"), key("a", "b"), key(["a", "b"]), key("ab"), key(1), key("1"), key(1.5), key(None)]
    assert len(set(different)) == len(different)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(place=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255))
def test_a_corrupt_byte_anywhere_is_no_entry(tmp_path: Path, place: float, bits: int) -> None:
    cache = ProgramCache(tmp_path)
    cache.put(KEY, PAYLOAD)
    path = entry(cache)
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= bits
    path.write_bytes(data)
    assert cache.get(KEY) is None
    assert cache.put(KEY, PAYLOAD)  # and it is built again
    assert cache.get(KEY) == PAYLOAD


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), more=st.binary(min_size=1, max_size=9))
def test_a_file_cut_short_or_with_more_behind_is_no_entry(tmp_path: Path, place: float, more: bytes) -> None:
    cache = ProgramCache(tmp_path)
    cache.put(KEY, PAYLOAD)
    path = entry(cache)
    whole = path.read_bytes()
    for damaged in (whole[: int(place * len(whole))], whole + more, b"", more):
        path.write_bytes(damaged)
        assert cache.get(KEY) is None


def test_an_entry_under_another_key_or_of_another_format_is_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ProgramCache(tmp_path)
    cache.put(KEY, PAYLOAD)
    other = key("serve")
    entry(cache).rename(cache.folder / f"{other}.json")
    assert cache.get(other) is None
    cache.put(KEY, PAYLOAD)
    monkeypatch.setattr(module, "FORMAT", module.FORMAT + 1)
    assert cache.get(KEY) is None


def test_a_payload_that_is_no_object_is_no_entry(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path)
    cache.put(KEY, PAYLOAD)
    for body in (b"[1]", b"not json", b"[" * 200_000):
        entry(cache).write_bytes(module._head(KEY, body) + b"\n" + body)
        assert cache.get(KEY) is None


def test_folders_and_huge_files_in_place_of_an_entry_are_no_entry(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path)
    (tmp_path / f"{KEY}.json").mkdir()
    assert cache.get(KEY) is None
    assert not cache.put(KEY, PAYLOAD)
    huge = tmp_path / f"{key('huge')}.json"
    with open(huge, "wb") as file:
        file.truncate(2**40)
    start = time.perf_counter()
    assert cache.get(key("huge")) is None
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("wrong", ["", "../../etc/passwd", "a" * 63, "A" * 64, KEY + "\n"])
def test_only_a_hash_is_a_key(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal"):
        ProgramCache(tmp_path).get(wrong)


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        cache = ProgramCache(folder)
        assert cache.put(KEY, PAYLOAD) is False
        assert cache.get(KEY) is None
    if os.path.isdir("/proc/self"):
        assert ProgramCache("/proc/self/cache").put(KEY, PAYLOAD) is False


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write to a read-only folder")
def test_a_read_only_folder_still_gives_what_it_has(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path)
    cache.put(KEY, PAYLOAD)
    tmp_path.chmod(0o500)
    try:
        assert cache.get(KEY) == PAYLOAD
        assert cache.put(key("other"), PAYLOAD) is False
    finally:
        tmp_path.chmod(0o700)


def test_the_environment_moves_it_and_switches_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTICK_CACHE_DIR", str(tmp_path))
    assert ProgramCache().folder.is_relative_to(tmp_path)
    ProgramCache().put(KEY, PAYLOAD)
    monkeypatch.setenv("SLIPSTICK_NO_CACHE", "1")
    off = ProgramCache()
    assert off.get(KEY) is None
    assert off.put(KEY, PAYLOAD) is False
    monkeypatch.setenv("SLIPSTICK_NO_CACHE", "0")
    assert ProgramCache().get(KEY) == PAYLOAD
    monkeypatch.delenv("SLIPSTICK_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert "slipstick" in str(ProgramCache().folder)


def test_the_entries_unused_for_longest_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ENTRIES", 3)
    cache = ProgramCache(tmp_path)
    keys = [key(number) for number in range(5)]
    for age, name in enumerate(keys[:3]):
        cache.put(name, PAYLOAD)
        os.utime(cache.folder / f"{name}.json", (1000 + age, 1000 + age))
    assert cache.get(keys[0]) == PAYLOAD  # used, so no longer the oldest
    cache.put(keys[3], PAYLOAD)
    assert [cache.get(name) is not None for name in keys[:4]] == [True, False, True, True]
    monkeypatch.setattr(module, "MOST_BYTES", 1)
    cache.put(keys[4], PAYLOAD)
    assert [cache.get(name) is not None for name in keys] == [False, False, False, False, True]


def test_drafts_of_a_killed_process_are_removed_and_young_ones_are_not(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path)
    old, young = tmp_path / ".old.tmp", tmp_path / ".young.tmp"
    for draft in (old, young):
        draft.write_text("half")
    os.utime(old, (1000, 1000))
    cache.put(KEY, PAYLOAD)
    assert not old.exists()
    assert young.exists()
    assert cache.get(KEY) == PAYLOAD


WRITER = """
import sys
from slipstick.core.algebra.cache import ProgramCache
folder, key, own = sys.argv[1:]
cache = ProgramCache(folder)
for turn in range(60):
    assert cache.put(key, {"writer": own, "body": own * (2000 + turn)})
    found = cache.get(key)
    assert found is not None and set(found["body"]) == {found["writer"]}, found
"""


def test_processes_that_write_at_once_leave_a_whole_entry(tmp_path: Path) -> None:
    path = ":".join(filter(None, sys.path))
    environment = {"PYTHONPATH": path}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), KEY, own],
            env=environment, stderr=subprocess.PIPE, text=True,
        )
        for own in "abcd"
    ]  # fmt: skip
    for writer in writers:
        _, told = writer.communicate(timeout=60)
        assert writer.returncode == 0, told
    found = ProgramCache(tmp_path).get(KEY)
    assert found is not None
    assert len(found["body"]) >= 2000
    assert [name for name in os.listdir(tmp_path) if name.endswith(".tmp")] == []


def test_the_fingerprint_follows_every_file(tmp_path: Path) -> None:
    extra = tmp_path / "plugin"
    (extra / "sub").mkdir(parents=True)
    (extra / "sub" / "a.py").write_text("x = 1\n")
    (extra / "data.txt").write_text("not code")
    first = code_fingerprint([extra])
    assert code_fingerprint([extra]) == first != code_fingerprint()
    (extra / "data.txt").write_text("changed")
    (extra / "__pycache__").mkdir()
    (extra / "__pycache__" / "a.py").write_text("")
    assert code_fingerprint([extra]) == first
    times = os.stat(extra / "sub" / "a.py")
    time.sleep(0.02)
    (extra / "sub" / "a.py").write_text("x = 2\n")
    os.utime(extra / "sub" / "a.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    second = code_fingerprint([extra])  # same size, same mtime
    assert second != first
    (extra / "b.py").write_text("")
    assert code_fingerprint([extra]) not in (first, second)
    single = tmp_path / "one.py"
    absent = code_fingerprint([single])
    single.write_text("y = 1\n")
    assert code_fingerprint([single]) != absent


def test_a_stale_fingerprint_is_another_key(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text("a = 1\n")
    cache = ProgramCache(tmp_path / "cache")
    cache.put(key(code_fingerprint([plugin]), "q"), {"a": 1})
    assert cache.get(key(code_fingerprint([plugin]), "q")) == {"a": 1}
    plugin.write_text("a = 22\n")
    assert cache.get(key(code_fingerprint([plugin]), "q")) is None


def test_the_fingerprint_sees_the_folders_of_the_package() -> None:
    rows: list[str] = []
    root = str(Path(module.__file__).parents[2])
    module._collect(root, root, rows)
    names = {row.split("|")[0] for row in rows}
    assert {"__init__.py", os.path.join("core", "errors.py"), os.path.join("core", "algebra", "cache.py")} <= names


def test_a_payload_is_plain_json(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path)
    cache.put(KEY, PAYLOAD)
    assert json.loads(entry(cache).read_bytes().partition(b"\n")[2]) == PAYLOAD
