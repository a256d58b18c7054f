from __future__ import annotations

from pathlib import Path

import pytest

from dgw.errors import Exit, UsageError
from dgw.model import Record
from dgw.workbench.collectors import sanitizer
from dgw.workbench.passes import Found, Target
from dgw.workbench.sanitizer_pass import SanitizerPass
from tests.workbench.collectors import stub_tools
from tests.workbench.collectors.stub_tools import Children, target

MEMCHECK = """========= COMPUTE-SANITIZER
Program output, and ========= no finding
========= Invalid __global__ write of size 4 bytes
=========     at out_of_bounds_function()+0xb0 in memcheck_demo.cu:39
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x87654320 is out of bounds
=========     and is 137,179,965,340,896 bytes before the nearest allocation at 0x7cc43a800000 of size 1,024 bytes
=========         Device Frame: out_of_bounds_kernel()+0x30 in memcheck_demo.cu:44
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: run_out_of_bounds() [0xadb6] in memcheck_demo
=========
========= Invalid __global__ write of size 4 bytes
=========     at out_of_bounds_function()+0xb0 in memcheck_demo.cu:39
=========     by thread (1,0,0) in block (0,0,0)
=========     Address 0x87654324 is out of bounds
=========
========= ERROR SUMMARY: 769 errors
========= ERROR SUMMARY: 767 errors were not printed. Use --print-limit option to adjust the number of printed errors
"""
OLD = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at 0x460 in /home/a/myapp.cu:41:sumKernel(int*,int*)
=========     and Read access at 0x7a0 in /home/a/myapp.cu:51:sumKernel(int*,int*) [508 hazards]
=========     and Write access at 0x460 in /home/a/myapp.cu:41:sumKernel(int*,int*) [5 hazards]
=========
========= Warning: Race reported between Read access at void Kernel<(int)256>(const int *, int, int *)+0x20
=========     and Write access at void Kernel<(int)256>(const int *, int, int *)+0x40 [1 hazard]
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""

CRASH = """========= COMPUTE-SANITIZER
========= Error: process didn't terminate successfully
=========     The application may have hit an error when dereferencing Unified Memory from the host. Please rerun it
"""


def test_findings_of_one_place_are_one_row_with_kernel_line_count_thread_and_block() -> None:
    found = sanitizer.examine("memcheck", MEMCHECK, sanitizer.FOUND)
    (defect,) = found.defects
    assert (defect.kind, defect.kernel) == ("Invalid __global__ write of size 4 bytes", "out_of_bounds_function()")
    assert (defect.place, defect.count, defect.thread, defect.block) == ("memcheck_demo.cu:39", 2, (0, 0, 0), (0, 0, 0))
    assert "called from out_of_bounds_kernel() at memcheck_demo.cu:44" in defect.detail
    assert "Host Frame" not in defect.detail
    assert found.errors == 769  # what was not printed counts too
    assert not found.clean


def test_races_carry_their_hazards_both_places_and_their_severity_in_old_and_new_formats() -> None:
    found = sanitizer.examine("racecheck", OLD, sanitizer.FOUND)
    race, warning = found.defects
    assert (race.kind, race.kernel, race.place) == (
        "race between write and read accesses",
        "sumKernel(int*,int*)",
        "myapp.cu:41",
    )
    assert race.count == 513
    assert race.detail.startswith("against read access at myapp.cu:51, 508 hazards")
    assert (warning.severity, warning.kernel, warning.place) == (
        "warning",
        "void Kernel<(int)256>(const int *, int, int *)",
        "",
    )
    assert found.errors == 513
    assert race.sentence == (
        "racecheck: race between write and read accesses at myapp.cu:41 in sumKernel(int*,int*), 513 times; "
        "against read access at myapp.cu:51, 508 hazards"
    )


@pytest.mark.parametrize(
    ("log", "status", "kind"),
    [
        ("========= Target application terminated before first instrumented API call\n", 255, "no-cuda"),
        (CRASH, 255, "crashed"),
        (f"{CRASH}========= Error: Target application terminated before first instrumented API call\n", 255, "no-cuda"),
        ("Please see the compute-sanitizer manual for more information.\n", 255, "option"),
        ("========= Error: No attachable process found. compute-sanitizer timed-out.\n", 1, "not-attached"),
        ("Unable to find injection library libsanitizer-collection.so\n", 1, "injection"),
        ("unrecognised option '--check-exit-code'\n", 255, "option"),
        ("========= Internal Sanitizer Error: the device is gone\n", 0, "internal"),
        ("========= COMPUTE-SANITIZER\n", 0, "no-summary"),
        ("", -9, "no-summary"),
        ("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 3 errors\n", 0, "unreadable"),
        ("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", 86, "unreadable"),
    ],
)
def test_no_exit_status_alone_makes_a_program_clean(log: str, status: int, kind: str) -> None:
    found = sanitizer.examine("memcheck", log, status)
    assert found.problem is not None
    assert (found.problem.kind, found.clean, found.defects) == (kind, False, ())
    assert sanitizer.measurement("memcheck", found).absent == found.problem.cause
    assert found.problem.error().exit_code in (Exit.FAULT, Exit.MISSING)


@pytest.mark.parametrize("status", [0, 1, 13])
def test_a_summary_without_errors_is_clean_whatever_the_program_returned(status: int) -> None:
    assert sanitizer.examine("memcheck", "========= ERROR SUMMARY: 0 errors\n", status).clean
    races = "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n"
    assert sanitizer.examine("racecheck", races, status).clean


def test_the_command_asks_for_an_exit_status_of_its_own_and_for_the_launched_kernels_alone() -> None:
    argv = sanitizer.command("cs", "memcheck", "log", ["gemm_a", "gemm_b", "gemm_a"])
    assert argv[argv.index("--error-exitcode") + 1] == "86"
    assert [argv[i + 1] for i, word in enumerate(argv) if word == "--kernel-name"] == [
        "kernel_substring=gemm_a", "kernel_substring=gemm_b",
    ]  # fmt: skip
    assert "--kernel-name" not in sanitizer.command("cs", "initcheck", "log", ["gemm_a"])


def test_an_unknown_tool_is_refused_and_known_ones_are_put_in_order() -> None:
    assert sanitizer.tools(["synccheck", "memcheck"]) == ["memcheck", "synccheck"]
    assert sanitizer.tools(["all"]) == list(sanitizer.TOOLS)
    with pytest.raises(UsageError, match="bankcheck"):
        sanitizer.tools(["bankcheck"])


@pytest.mark.parametrize("variant", stub_tools.every_variant(), ids=lambda variant: variant.id)
def test_racecheck_is_refused_with_the_reason_unless_a_variant_synchronises_by_barriers(variant) -> None:  # type: ignore[no-untyped-def]
    refused = sanitizer.refusal("racecheck", variant)
    assert bool(refused) == (variant.synchronises != "barrier")
    assert not sanitizer.refusal("memcheck", variant)


def examined(children: Children, targets: list[Target], *tools: str) -> dict[str, Found]:
    found: dict[str, Found] = {}
    SanitizerPass(stub_tools.SANITIZER, tools, "2025.3.1").run(
        targets, children.place(), lambda one: found.setdefault(one.key, one)
    )
    return found


def errors(found: Found) -> dict[str, object]:
    return {one.metric: one.value if one.value is not None else one.absent for one in found.measurements}


def test_clean_cases_share_one_process_for_each_tool(tmp_path: Path) -> None:
    children = Children(tmp_path)
    found = examined(children, [target(16), target(32), target(48)], "memcheck", "racecheck")
    assert len(children.jobs) == 2
    assert [errors(one) for one in found.values()] == [{"memcheck_errors": 0, "racecheck_errors": 0}] * 3
    assert all(one.outcome is None for one in found.values())


def test_a_planted_write_out_of_bounds_is_laid_to_its_case_and_names_the_line(tmp_path: Path) -> None:
    guilty, innocent = target(16), target(32)
    keys = tmp_path / "keys"
    keys.write_text(f'"m":{16}')
    children = Children(tmp_path, {"STUB_SANITIZER": "memcheck:oob", "STUB_SANITIZER_KEYS": str(keys)})
    found = examined(children, [guilty, innocent], "memcheck", "racecheck")
    bad, good = found[guilty.member.case.key], found[innocent.member.case.key]
    assert (bad.outcome, good.outcome) == ("wrong", None)
    assert bad.defects[0].place == "planted.cu:12"
    assert bad.defects[0].count == 2
    assert "planted.cu:12 in gemm_planted" in bad.reason
    assert [kind for _, kind, _ in bad.files] == ["log"]
    assert errors(good) == {"memcheck_errors": 0, "racecheck_errors": 0}
    assert "means nothing" in str(errors(bad)["racecheck_errors"])


@pytest.mark.parametrize(
    ("tool", "what", "place"),
    [("racecheck", "race", "planted.cu:41"), ("initcheck", "unread", "planted.cu:41"),
     ("synccheck", "barrier", "planted.cu:20")],
)  # fmt: skip
def test_every_tool_names_the_line_of_what_it_finds(tmp_path: Path, tool: str, what: str, place: str) -> None:
    (found,) = examined(Children(tmp_path, {"STUB_SANITIZER": f"{tool}:{what}"}), [target(16)], tool).values()
    assert (found.outcome, found.defects[0].tool, found.defects[0].place) == ("wrong", tool, place)


def test_a_warning_is_noted_and_no_failure(tmp_path: Path) -> None:
    (found,) = examined(Children(tmp_path, {"STUB_SANITIZER": "racecheck:warning"}), [target(16)], "racecheck").values()
    assert found.outcome is None
    assert found.flags[0].startswith("sanitizer: racecheck: race between write and write accesses")


def test_racecheck_is_not_run_on_a_kernel_that_synchronises_through_mbarriers(tmp_path: Path) -> None:
    children = Children(tmp_path, {"STUB_SANITIZER": "racecheck:race"})
    (found,) = examined(children, [target(16, "mbarrier")], "racecheck").values()
    assert children.jobs == []
    assert "mbarriers" in str(errors(found)["racecheck_errors"])
    assert found.outcome is None


def test_of_foreign_code_every_kernel_is_examined(tmp_path: Path) -> None:
    children = Children(tmp_path)
    examined(children, [target(16, foreign=True)], "memcheck")
    assert "--kernel-name" not in children.prefixes[0]


def test_a_tool_that_gets_to_no_verdict_says_why_and_leaves_the_outcome_alone(tmp_path: Path) -> None:
    for number, what in enumerate(("no-cuda", "killed")):
        children = Children(tmp_path / str(number), {"STUB_SANITIZER": f"memcheck:{what}"})
        children.folder.mkdir()
        (found,) = examined(children, [target(16)], "memcheck").values()
        assert found.outcome is None
        assert found.measurements[0].value is None
        assert found.flags[0].startswith("sanitizer: memcheck came to no verdict")


def test_a_tool_that_cannot_work_here_is_asked_once_and_every_case_says_why(tmp_path: Path) -> None:
    children = Children(tmp_path, {"STUB_SANITIZER": "memcheck:option"})
    found = examined(children, [target(16), target(32)], "memcheck", "synccheck")
    assert len(children.jobs) == 1
    assert all("does not know an option" in str(reason) for one in found.values() for reason in errors(one).values())


def test_a_case_that_fails_under_a_tool_costs_itself_only(tmp_path: Path) -> None:
    failing, fine = target(16), target(32)
    children = Children(tmp_path, fails={failing.member.case.key: "launch-failed"})
    found = examined(children, [failing, fine], "memcheck")
    assert errors(found[fine.member.case.key]) == {"memcheck_errors": 0}
    assert "launch-failed" in str(errors(found[failing.member.case.key])["memcheck_errors"])


def test_crashed_cases_are_examined_and_refused_ones_are_not(tmp_path: Path) -> None:
    crashed, refused = target(16, outcome="crashed"), target(32, outcome="refused")
    found = examined(Children(tmp_path), [crashed, refused], "memcheck")
    assert list(found) == [crashed.member.case.key]


def test_a_record_keeps_its_defects_through_json() -> None:
    import msgspec

    defects = sanitizer.examine("memcheck", MEMCHECK, 86).defects
    record = Record(case=target(16).member.case, outcome="wrong", defects=defects)
    assert msgspec.json.decode(msgspec.json.encode(record), type=Record) == record
