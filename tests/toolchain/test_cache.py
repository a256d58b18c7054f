from __future__ import annotations

import json
import multiprocessing
import shutil
from pathlib import Path

import pytest

from dgw.model import Source
from dgw.toolchain import build as build_module
from dgw.toolchain.build import Build, build
from dgw.toolchain.cache import CompileCache, Recipe
from dgw.toolchain.headers import project_headers
from dgw.toolchain.nvrtc import Compiled

CUDA = Path(__file__).parents[1] / "data" / "cuda"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CUDA, tmp_path / "project"))


@pytest.fixture
def cache(tmp_path: Path) -> CompileCache:
    return CompileCache(tmp_path / "cache")


def made(project: Path, cache: CompileCache, arch: str = "sm_80", **fields: object) -> Build:
    return build(Source(path="mma.cu", **fields), project, [project / "include"], arch, cache)  # type: ignore[arg-type]


def only_entry(cache: CompileCache) -> Path:
    (entry,) = (path for path in cache.folder.iterdir())
    return entry


def test_a_second_build_comes_from_the_cache_and_is_the_same(project: Path, cache: CompileCache) -> None:
    first, second = made(project, cache), made(project, cache)
    assert (first.cached, second.cached) == (False, True)
    assert (first.ptx, first.cubin, first.log, first.seconds) == (second.ptx, second.cubin, second.log, second.seconds)
    assert second.resources("mma") == first.resources("mma")
    assert "bytes spill stores" in second.log


def test_a_hit_asks_no_compiler(project: Path, cache: CompileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    made(project, cache)
    monkeypatch.setattr(build_module, "compile_program", None)
    assert made(project, cache).cached


def test_an_entry_is_a_readable_folder(project: Path, cache: CompileCache) -> None:
    compiled = made(project, cache, defines=(("TILE", 512),))
    entry = only_entry(cache)
    assert entry.name.startswith("mma-sm_80-")
    assert {path.name for path in entry.iterdir()} == {
        "meta.json", "kernel.cu", "kernel.ptx", "kernel.cubin", "ptxas.log",
    }  # fmt: skip
    meta = json.loads((entry / "meta.json").read_text())
    assert meta["headers"] == ["tile.cuh", "factor.cuh"]
    assert meta["defines"] == [["TILE", 512]]
    assert meta["compiler"].startswith("nvrtc ")
    assert (entry / "kernel.cu").read_text() == (project / "mma.cu").read_text()
    assert (entry / "ptxas.log").read_text() == compiled.log


@pytest.mark.parametrize("changed", ["mma.cu", "include/tile.cuh", "include/factor.cuh"])
def test_a_change_of_the_source_or_of_any_header_it_reaches_is_a_miss(
    changed: str, project: Path, cache: CompileCache
) -> None:
    made(project, cache)
    path = project / changed
    path.write_text(path.read_text() + "\n// changed\n")
    assert not made(project, cache).cached
    assert made(project, cache).cached


def test_a_header_that_is_not_included_changes_nothing(project: Path, cache: CompileCache) -> None:
    made(project, cache)
    (project / "include" / "other.cuh").write_text("#define OTHER 1\n")
    assert made(project, cache).cached


def test_defines_flags_architecture_and_compiler_enter_the_key(
    project: Path, cache: CompileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(project, cache)
    assert not made(project, cache, defines=(("TILE", 512),)).cached
    assert not made(project, cache, flags=("--use_fast_math",)).cached
    assert not made(project, cache, arch="sm_89").cached
    monkeypatch.setattr(build_module, "compiler_identity", lambda: "nvrtc 99.0, headers 99.0")
    assert not made(project, cache).cached


def test_a_project_in_another_folder_shares_entries(project: Path, cache: CompileCache, tmp_path: Path) -> None:
    made(project, cache)
    assert made(Path(shutil.copytree(project, tmp_path / "copy")), cache).cached


@pytest.mark.parametrize("file", ["meta.json", "kernel.ptx", "kernel.cubin", "ptxas.log"])
@pytest.mark.parametrize("damage", ["truncated", "emptied", "missing", "foreign"])
def test_a_damaged_entry_is_a_miss_and_is_repaired(
    file: str, damage: str, project: Path, cache: CompileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = Compiled(ptx="ptx text", cubin=b"cubin bytes", log="log text\n")
    monkeypatch.setattr(build_module, "compile_program", lambda *_: good)
    made(project, cache)
    path = only_entry(cache) / file
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"truncated": content[:-3], "emptied": b"", "foreign": b"\xff\x00{}"}[damage])
    assert not made(project, cache).cached
    assert made(project, cache).cached
    assert [entry for entry in cache.folder.iterdir() if entry.name.startswith(".")] == []


def test_a_file_in_the_place_of_an_entry_is_replaced(project: Path, cache: CompileCache) -> None:
    made(project, cache)
    entry = only_entry(cache)
    shutil.rmtree(entry)
    entry.write_text("in the way")
    assert not made(project, cache).cached
    assert made(project, cache).cached


def test_a_cache_that_cannot_be_written_costs_only_time(project: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    cache = CompileCache(tmp_path / "file" / "cache")
    assert made(project, cache).resources("mma").shared_bytes == 2048
    assert not made(project, cache).cached


def test_a_header_named_by_a_macro_is_never_reused(project: Path, cache: CompileCache) -> None:
    source = project / "mma.cu"
    source.write_text(source.read_text().replace('#include "tile.cuh"', '#define TILES "tile.cuh"\n#include TILES'))
    assert not made(project, cache).cached
    assert not made(project, cache).cached


def test_a_header_given_by_a_flag_enters_the_key(project: Path, cache: CompileCache) -> None:
    (project / "include" / "first.cuh").write_text("#define FIRST 1\n")
    flags = ("--pre-include=first.cuh",)
    made(project, cache, flags=flags)
    (project / "include" / "first.cuh").write_text("#define FIRST 2\n")
    assert not made(project, cache, flags=flags).cached


def test_headers_are_found_as_the_compiler_finds_them(tmp_path: Path) -> None:
    for folder in ("source", "one/deep", "two"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "source" / "near.cuh").write_text("")
    (tmp_path / "two" / "near.cuh").write_text("")
    (tmp_path / "one" / "deep" / "outer.cuh").write_text('#include "inner.cuh"\n#include "outer.cuh"\n')
    (tmp_path / "one" / "deep" / "inner.cuh").write_text("")
    text = '#include "near.cuh"\n  #  include <deep/outer.cuh>\n#include <cuda_fp16.h>\n#if __has_include("no.h")\n'
    found = project_headers(text, tmp_path / "source", [tmp_path / "one", tmp_path / "two"])
    assert found is not None
    assert [header.path.relative_to(tmp_path).as_posix() for header in found] == [
        "source/near.cuh", "one/deep/outer.cuh", "one/deep/inner.cuh",
    ]  # fmt: skip
    angled = project_headers("#include <near.cuh>\n", tmp_path / "source", [tmp_path / "two"])
    assert angled is not None
    assert [header.path.parent.name for header in angled] == ["two"]


def _compete(folder: str, number: int, answers: multiprocessing.Queue[bool]) -> None:
    recipe = Recipe("k.cu", "text", (), (), (), "sm_80", "nvrtc 1")
    cache = CompileCache(Path(folder))
    sound = True
    for turn in range(30):
        place = cache.entry_folder(recipe)
        if turn % 5 == number:  # now and then somebody damages the entry
            for victim in place.glob("kernel.ptx"):
                victim.write_text("damaged")
        cache.put(recipe, Compiled("ptx " * 1000, b"cubin" * 1000, "log"), 1.0)
        found = cache.get(recipe)
        sound &= found is None or found[0] == Compiled("ptx " * 1000, b"cubin" * 1000, "log")
    answers.put(sound)


def test_processes_that_keep_the_same_program_at_once_read_it_whole_or_not_at_all(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [context.Process(target=_compete, args=(str(tmp_path), n, answers)) for n in range(3)]
    for process in processes:
        process.start()
    assert [answers.get(timeout=120) for _ in processes] == [True] * 3
    for process in processes:
        process.join()
    recipe = Recipe("k.cu", "text", (), (), (), "sm_80", "nvrtc 1")
    cache = CompileCache(tmp_path)
    assert cache.put(recipe, Compiled("ptx", b"cubin", "log"), 1.0)
    assert cache.get(recipe) is not None
    assert [path.name for path in tmp_path.iterdir()] == [cache.entry_folder(recipe).name]
