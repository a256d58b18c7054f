from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dgw.errors import Exit, Missing, ReportError
from dgw.workbench.collectors.ncu import KernelCounters, damage, load_reader, read_kernels, read_report
from dgw.workbench.collectors.ncu_reader import opcode


def _file(fakes: ModuleType, path: Path, *keys: str, **fields: Any) -> Path:
    writer = fakes.report_writer()
    path.write_bytes(writer.report([writer.Kernel(key, **fields) for key in keys]))
    return path


def test_kernels_are_joined_by_range_name_and_not_by_position(fakes: ModuleType, tmp_path: Path) -> None:
    path = _file(fakes, tmp_path / "r.ncu-rep", "bbb", "aaa", "bbb", values={"sm__cycles_active.avg": 7.5})
    found = read_report(path)
    assert {key: len(kernels) for key, kernels in found.items()} == {"bbb": 2, "aaa": 1}
    assert found["aaa"][0].values == {"sm__cycles_active.avg": 7.5}
    assert found["aaa"][0].name == "kernel"


def test_ranges_of_other_domains_and_launches_outside_of_ranges_are_no_cases(fakes: ModuleType, tmp_path: Path) -> None:
    writer = fakes.report_writer()
    kernels = [writer.Kernel("x", domain="torch"), writer.Kernel(""), writer.Kernel("inner", ranges=("outer",))]
    path = tmp_path / "r.ncu-rep"
    path.write_bytes(writer.report(kernels))
    assert list(read_report(path)) == ["inner"]
    assert [kernel.key for kernel in read_kernels(path)] == ["", "", "inner"]


def test_integers_floats_and_texts_keep_their_kind(fakes: ModuleType, tmp_path: Path) -> None:
    values = {"smsp__inst_executed.sum": 2**40, "lts__t_sector_hit_rate.pct": 70.8, "device__attribute_name": "H200"}
    path = _file(fakes, tmp_path / "r.ncu-rep", "k", values=values)
    assert read_report(path)["k"][0].values == values


def test_counters_by_opcode_are_read_as_instances(fakes: ModuleType, tmp_path: Path) -> None:
    name = "sass__inst_executed_per_opcode"
    path = _file(fakes, tmp_path / "r.ncu-rep", "k", instances={name: {"FFMA": 4096, "LDS": 128, "NOP": 0}})
    parts = read_report(path)["k"][0].instances[name]
    assert [(part.opcode, part.value) for part in parts] == [("FFMA", 4096.0), ("LDS", 128.0)]


def test_addresses_become_opcodes_and_source_lines(fakes: ModuleType, tmp_path: Path) -> None:
    sass = {0x10: ("@!P0 LDS.128 R4, [R2] ;", "/src/gemm.cu", 12), 0x20: ("STS R4, [R2]", "/src/gemm.cu", 9)}
    metric = fakes.Metric(6.0, "", {0x10: 4.0, 0x20: 2.0})
    reader = fakes.Reader(fakes.Action("k", {"memory_l1_wavefronts_shared": metric}, sass))
    path = _file(fakes, tmp_path / "r.ncu-rep", "k")
    parts = read_report(path, reader)["k"][0].instances["memory_l1_wavefronts_shared"]
    assert [(p.opcode, p.place, p.value) for p in parts] == [("LDS.128", "gemm.cu:12", 4.0), ("STS", "gemm.cu:9", 2.0)]


def test_start_end_ranges_name_cases_too(fakes: ModuleType, tmp_path: Path) -> None:
    reader = fakes.Reader(fakes.Action("k", {"sm__cycles_active.avg": fakes.Metric(1.0, "cycle")}, {}))
    found = read_report(_file(fakes, tmp_path / "r.ncu-rep", "k"), reader)
    assert found["k"] == [
        KernelCounters("k", "gemm", {"sm__cycles_active.avg": 1.0}, {"sm__cycles_active.avg": "cycle"})
    ]


def test_an_opcode_is_read_without_its_predicate() -> None:
    assert opcode("@P1 LDSM.16.M88.4 R4, [R2] ;") == "LDSM.16.M88.4"
    assert opcode("EXIT;") == "EXIT"
    assert opcode("") == ""


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "empty"), (b"no report at all", "not a report"), (b"NVR\0\x05", "cut short"), (None, "no such report")],
)
def test_what_is_no_report_is_one_error_with_advice(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "r.ncu-rep"
    if content is not None:
        path.write_bytes(content)
    assert said in damage(path)
    with pytest.raises(ReportError) as raised:
        read_report(path)
    assert said in raised.value.message
    assert raised.value.hint
    assert raised.value.exit_code == Exit.FAULT


def test_a_report_cut_short_keeps_its_whole_kernels_and_says_so(fakes: ModuleType, tmp_path: Path) -> None:
    keys = [f"case{number}" for number in range(5)]
    whole = _file(fakes, tmp_path / "whole.ncu-rep", *keys, values={"a__b.sum": 3, "c__d.sum": 4.5})
    assert damage(whole) == ""
    content = whole.read_bytes()
    cut = tmp_path / "cut.ncu-rep"
    kept = []
    for size in range(len(content) - 1, len(content) // 4, -40):
        cut.write_bytes(content[:size])
        assert damage(cut) == "the report was cut short"
        kept.append(len(read_report(cut)))
        assert all(kernels[0].values == {"a__b.sum": 3, "c__d.sum": 4.5} for kernels in read_report(cut).values())
    assert kept[0] == 4
    assert kept == sorted(kept, reverse=True)


def test_without_any_reader_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(Missing, match="ncu_report") as raised:
        load_reader(tmp_path)
    assert raised.value.hint == "pip install ncu-report"


def test_the_reader_inside_nsight_compute_is_used_when_no_package_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ncu_report.py").write_text("ORIGIN = 'extras'\n")
    monkeypatch.delitem(sys.modules, "ncu_report", raising=False)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "site-packages" not in entry])
    module = load_reader(tmp_path)
    assert module.ORIGIN == "extras"
    assert str(tmp_path) not in sys.path
    monkeypatch.delitem(sys.modules, "ncu_report")
