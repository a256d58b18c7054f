from __future__ import annotations

from pathlib import Path

import pytest

from dgw.errors import ReportError
from dgw.workbench.collectors.ncu import measurements, read_csv
from dgw.workbench.collectors.ncu_units import parse_number, to_base
from dgw.workbench.metrics import resolve

NAME = '"void gemm<float, (int)128>(const float *, ""q"", int)"'
RAW = f"""==PROF== Connected to process 1 (/usr/bin/python3)
hello from the program, with a comma
"ID","Process ID","Kernel Name","thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg","gpu__time_duration.sum","dram__bytes.sum","lts__t_sector_hit_rate.pct","smsp__inst_executed.sum","sm__cycles_active.avg","launch__block_size"
"","","","","{{time}}","{{bytes}}","%","inst","cycle",""
"0","1",{NAME},"1 <default domain>:x:none:none:none:none:none:none, dgw:abcdef:none:none:none:none:none:none","{{duration}}","{{size}}","70.81","1,234,567","n/a","128"
"1","1",{NAME},"","{{duration}}","{{size}}","(!) nan","7","inf","128"
Available Kernels:
1. gemm<float, int>, 2
"""  # noqa: E501
DETAILS = f""""ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"
"0","1","python","h",{NAME},"1","7","(128, 1, 1)","(4, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Duration","us","180.2",
"0","1","python","h",{NAME},"1","7","(128, 1, 1)","(4, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Memory Throughput","%","61.5",
"0","1","python","h",{NAME},"1","7","(128, 1, 1)","(4, 1, 1)","0","9.0","Memory Workload Analysis","Memory Throughput","Tbyte/s","1.5",
"0","1","python","h",{NAME},"1","7","(128, 1, 1)","(4, 1, 1)","0","9.0","Occupancy","Achieved Occupancy","%","14.6",
"0","1","python","h",{NAME},"1","7","(128, 1, 1)","(4, 1, 1)","0","9.0","Occupancy","","","","Occupancy","OPT","a rule, with commas","local","12.3"
"0","1","python","h",{NAME},"1","7","(128, 1, 1)","(4, 1, 1)","0","9.0","Command line profiler metrics","lts__t_bytes.sum","Mbyte","2",
"1","1","python","h","fill","1","7","(128, 1, 1)","(4, 1, 1)","0","9.0","Launch Statistics","Registers Per Thread","register/thread","168",
"""  # noqa: E501
SCALED = {"time": "us", "bytes": "Mbyte", "duration": "180.25", "size": "148.5"}
BASE = {"time": "ns", "bytes": "byte", "duration": "180,250", "size": "148,500,000"}


@pytest.mark.parametrize("units", [SCALED, BASE], ids=["scaled units", "base units"])
def test_the_raw_page_gives_the_same_values_with_and_without_base_units(units: dict[str, str]) -> None:
    kernels = read_csv(RAW.format(**units))
    assert [kernel.name for kernel in kernels] == ['void gemm<float, (int)128>(const float *, "q", int)'] * 2
    assert [kernel.key for kernel in kernels] == ["abcdef", ""]
    found = {m.metric: m for m in measurements(kernels[:1], resolve("dram_bytes,l2_hit_rate,inst_executed"), "sm_90")}
    assert found["dram_bytes"].value == pytest.approx(148.5e6)
    assert found["l2_hit_rate"].value == pytest.approx(0.7081)
    assert found["inst_executed"].value == 1234567


def test_cells_without_a_number_are_absent_and_not_zero() -> None:
    kernels = read_csv(RAW.format(**BASE))
    assert "sm__cycles_active.avg" not in kernels[0].values
    assert "lts__t_sector_hit_rate.pct" not in kernels[1].values
    assert kernels[1].values["smsp__inst_executed.sum"] == 7


def test_the_details_page_is_read_by_label_and_by_name(tmp_path: Path) -> None:
    path = tmp_path / "details.csv"
    path.write_text(DETAILS)
    first, second = read_csv(path)
    keys = "dram_bandwidth,sol_memory,achieved_occupancy,l2_bytes"
    found = {m.metric: m.value for m in measurements([first], resolve(keys), "sm_90")}
    assert found == pytest.approx(
        {"dram_bandwidth": 1.5e12, "sol_memory": 0.615, "achieved_occupancy": 0.146, "l2_bytes": 2e6}
    )
    assert second.name == "fill"
    assert second.values == {"launch__registers_per_thread": 168}


def test_text_without_a_header_of_ncu_is_refused_with_advice() -> None:
    with pytest.raises(ReportError) as raised:
        read_csv("==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. a, b\n")
    assert "--page raw" in raised.value.hint


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("1,234,567", 1234567),
        ("1,234.5", 1234.5),
        ("12,5", 12.5),
        ("1.5e+09", 1.5e9),
        ("42", 42),
        ("-3", -3),
        ("10 (1; 2; 7)", 10),
        ("n/a", None),
        ("nan", None),
        ("(!) nan", None),
        ("inf", None),
        ("", None),
    ],
)
def test_numbers_are_read_as_ncu_prints_them(cell: str, number: float | None) -> None:
    assert parse_number(cell) == number


@pytest.mark.parametrize(
    ("value", "unit", "expected", "base"),
    [
        (180.0, "us", "", 180e-6),
        (180.0, "usecond", "", 180e-6),
        (5.0, "nsecond", "", 5e-9),
        (5.0, "", "ns", 5e-9),
        (2.0, "Kbyte", "", 2000.0),
        (1.5, "Tbyte/second", "", 1.5e12),
        (4.2, "byte/ns", "", 4.2e9),
        (1.98, "Ghz", "", 1.98e9),
        (1.98, "cycle/nsecond", "", 1.98e9),
        (50.0, "%", "", 0.5),
        (50.0, "", "%", 0.5),
        (3.0, "inst", "", 3.0),
        (3.0, "sector/request", "", 3.0),
        (3.0, "register/thread", "", 3.0),
    ],
)
def test_every_unit_of_ncu_has_its_base_unit(value: float, unit: str, expected: str, base: float) -> None:
    assert to_base(value, unit, expected) == pytest.approx(base)
