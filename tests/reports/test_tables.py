from __future__ import annotations

import pytest

from dgw.model import Case, Check, Environment, Launch, Measurement, Plan, Source, gemm
from dgw.reports import notes
from dgw.reports.tables import SPECS, build, machine_text, problem_text, stall_shares
from tests.reports.samples import LAPTOP, counted, full_record, ladder


def test_variants_of_one_problem_share_a_block_and_keep_their_order() -> None:
    (block,) = build(ladder())
    assert [column.title for column in block.columns] == [
        "cuda/naive", "cuda/tiled", "cuda/swizzled", "cuda/broken", "cuda/greedy",
    ]  # fmt: skip


def test_a_rank_sorts_the_columns_as_a_ladder_and_what_has_none_comes_last() -> None:
    (block,) = build(ladder(), {"cuda/swizzled": 0, "cuda/naive": 1})
    assert [column.title for column in block.columns][:3] == ["cuda/swizzled", "cuda/naive", "cuda/tiled"]


def test_problems_and_machines_do_not_share_a_block() -> None:
    other = full_record(case=Case(problem=gemm(8, 8, 8), variant="cuda/naive"))
    assert len(build([full_record(), other, full_record(environment=LAPTOP)])) == 3


def test_two_configs_of_one_variant_are_told_apart_by_what_differs() -> None:
    problem = gemm(4096, 4096, 4096)
    records = [
        full_record(case=Case(problem=problem, variant="cuda/tiled", config={"BM": rows, "BN": 128}))
        for rows in (64, 128)
    ]
    (block,) = build(records)
    assert [column.title for column in block.columns] == ["cuda/tiled BM=64", "cuda/tiled BM=128"]


def test_values_stay_in_base_units() -> None:
    (block,) = build([full_record(seconds=2e-3)])
    line = block.line("time_cold")
    assert line is not None
    assert line.cells[0].value == 2e-3
    assert line.text(0) == "2.000"
    assert line.heading == "time cold, ms"


def test_what_the_card_promises_is_a_line_even_when_nothing_is_known() -> None:
    (block,) = build([full_record(measurements=(), check=None)])
    promised = [spec.key for spec in SPECS if spec.always]
    assert [line.key for line in block.lines] == promised
    assert all(line.cells[0].value is None for line in block.lines if line.key != "outcome")


def test_a_case_that_is_refused_has_no_lower_bound_but_one_that_failed_still_has() -> None:
    bound = (counted("bound_time", 1e-5, "s"), counted("bound_pipe", "dram"), counted("flops", 1e9, "FLOP"))
    refused, failed, good = (
        full_record(name, outcome=outcome, check=None, measurements=bound)
        for name, outcome in (("greedy", "refused"), ("broken", "compile-failed"), ("swizzled", "ok"))
    )
    (block,) = build([refused, failed, good])
    lines = {line.key: [cell.value for cell in line.cells] for line in block.lines}
    assert lines["bound_time"] == [None, 1e-5, 1e-5]
    assert lines["bound_pipe"] == [None, "dram", "dram"]
    assert lines["flops"] == [1e9] * 3
    (alone,) = build([refused])
    assert alone.line("bound_time") is None


@pytest.mark.parametrize(
    ("figures", "line", "value"),
    [
        ({"smem_bank_conflicts_ldsm": 5.0}, "smem_bank_conflicts_ldsm", 5.0),
        ({"smem_bank_conflicts_ldsm": 0.0}, "smem_bank_conflicts_ldsm", None),
        ({"smem_bank_conflicts_ldgsts": 7.0}, "copy_conflicts", 7.0),
        ({"smem_bank_conflicts_ldgsts": 0.0}, "copy_conflicts", None),
        ({"smem_bank_conflicts_ldgsts": 7.0, "smem_wavefronts_sass_ldgsts": 9.0, "smem_wavefronts_least_ldgsts": 9.0},
         "copy_conflicts", None),
        ({"smem_bank_conflicts_ldgsts": 0.0, "smem_wavefronts_sass_ldgsts": 9.0, "smem_wavefronts_least_ldgsts": 3.0},
         "copy_conflicts", 6.0),
    ],
)  # fmt: skip
def test_conflicts_of_ldmatrix_and_of_copies_are_a_line_where_there_are_any(
    figures: dict[str, float], line: str, value: float | None
) -> None:
    measured = tuple(Measurement(metric=name, value=one, collector="emulator") for name, one in figures.items())
    (block,) = build([full_record(measurements=measured, environment=LAPTOP)])
    found = block.line(line)
    assert (None if found is None else found.cells[0].value) == value


def test_of_several_launches_it_is_said_whose_static_figures_stand_there() -> None:
    source = Source(path="k.cu")
    plan = Plan(
        steps=(
            Launch(source=source, entry="product", grid=(4, 1, 1), block=(128, 1, 1), arguments=()),
            Launch(source=source, entry="finish", grid=(64, 1, 1), block=(256, 1, 1), arguments=()),
        )
    )
    figures = {"registers_per_thread": 124, "theoretical_occupancy": 0.25, "shared_mem_per_block": 65536}
    scopes = ("case", "kernel 0", "kernel 1")
    measured = tuple(
        Measurement(metric=name, value=value, scope=scope, collector="static")
        for scope in scopes
        for name, value in {**figures, "spill_store_bytes": 0}.items()
    )
    (block,) = build([full_record(plan=plan, measurements=measured)])
    assert notes.launches(block) == [
        "cuda/swizzled: occupancy, registers, shared memory and spills are those of finish, the largest of 2 launches; "
        "product has 124 registers, occupancy 25.0 %, 65.54 kB of shared memory, 0 B spilled"
    ]
    (single,) = build([full_record(plan=Plan(steps=plan.steps[:1]), measurements=measured)])
    assert notes.launches(single) == []


def test_without_a_gpu_lines_that_no_column_knows_are_hidden_and_their_reason_is_kept() -> None:
    absent = [Measurement(metric=m, collector="emulator", absent="no GPU") for m in ("time_cold", "time_hot")]
    ratios = [
        Measurement(metric="conflict_ratio_st", collector="emulator", absent=why) for why in ("no stores", "no GPU")
    ]
    records = [
        full_record(name, measurements=(*absent, ratio), environment=LAPTOP)
        for name, ratio in zip(("tiled", "swizzled"), ratios, strict=True)
    ]
    (block,) = build(records)
    assert block.line("time_cold") is None
    assert block.line("conflict_ratio_st") is not None  # two reasons: which column has which is worth a line
    assert any(sentence == "time cold, time hot: no GPU" for sentence in notes.unknown(block))


def test_what_the_emulator_counts_is_shown_only_where_it_stood_in_for_a_gpu() -> None:
    measurements = (
        counted("smem_wavefronts_actual", 4096), counted("gld_sectors_per_request", 15.5), counted("tensor_inst", 0),
    )  # fmt: skip
    (emulated,) = build([full_record(measurements=measurements, environment=LAPTOP)])
    (measured,) = build([full_record(measurements=measurements)])
    line = emulated.line("gld_sectors_per_request")
    assert line is not None
    assert line.text(0) == "15.50"
    assert emulated.line("smem_wavefronts_actual") is not None
    assert emulated.line("tensor_inst") is None  # no tensor instructions in any column
    assert measured.line("smem_wavefronts_actual") is None


def test_an_unknown_value_names_its_reason_below_the_table() -> None:
    (block,) = build(ladder())
    sentences = notes.unknown(block)
    assert any(s.startswith("tensor pipe active") and "no permission to read counters" in s for s in sentences)


def test_lines_with_the_same_reason_share_a_sentence() -> None:
    absent = [Measurement(metric=m, collector="emulator", absent="no GPU") for m in ("time_cold", "time_hot")]
    (block,) = build([full_record(measurements=tuple(absent), environment=LAPTOP)])
    assert "time cold, time hot: no GPU" in notes.unknown(block)


def test_a_failed_case_is_a_column_with_its_outcome_and_reason() -> None:
    (block,) = build(ladder())
    assert notes.failures(block) == [
        "cuda/broken: wrong: D[1, 2] is 4, not 1",
        "cuda/greedy: refused: needs 260 KB of shared memory, h200 has 227 KB",
    ]


def test_stalls_are_ranked_by_their_share_and_issuing_is_not_one() -> None:
    assert [reason for reason, _, _ in stall_shares(full_record())] == ["long scoreboard", "barrier", "wait"]


def test_the_same_metric_per_kernel_does_not_count_for_the_case() -> None:
    extra = Measurement(metric="stall_barrier", value=0.9, unit="ratio", scope="kernel 0", collector="ncu")
    record = full_record(measurements=(counted("stall_wait", 0.2, "ratio"), extra))
    assert stall_shares(record) == [("wait", 0.2, "ncu (std)")]


def test_an_error_without_a_bound_is_exact_or_shown_as_it_is() -> None:
    (block,) = build([full_record(check=Check(passed=True, compared=4, error=0.0, bound=0.0))])
    line = block.line("error_of_bound")
    assert line is not None
    assert line.text(0) == "exact"


def test_an_error_that_is_no_number_is_said_to_be_none() -> None:
    check = Check(passed=False, compared=4, error=None, bound=0.5)
    (block,) = build([full_record(outcome="wrong", check=check)])
    line = block.line("error_of_bound")
    assert line is not None
    assert line.text(0) == "not finite"


def test_sources_name_collector_and_protocol_once() -> None:
    (block,) = build([full_record()])
    sources = notes.sources(block)
    assert "time: timing (graph/1)" in sources
    assert len(sources) == len({sentence.rpartition(": ")[2] for sentence in sources})


def test_a_problem_says_only_what_differs_from_the_defaults() -> None:
    assert problem_text(gemm(4, 5, 6)) == "4x5x6, f16 -> f16, nn, normal data, seed 0"
    assert "alpha 2, beta 0" in problem_text(gemm(4, 5, 6, alpha=2.0))


def test_the_machine_says_whether_it_was_emulated() -> None:
    assert machine_text(full_record()) == "h200 (sm_90a), driver 580.159"
    assert machine_text(full_record(environment=LAPTOP)) == "h200 (sm_90a), emulated"


def test_where_nothing_ran_only_what_is_known_is_a_line() -> None:
    (block,) = build([full_record(outcome="refused", reason="no", measurements=(), check=None)])
    assert [line.key for line in block.lines] == ["outcome"]


def test_a_case_that_never_reached_the_gpu_stands_beside_those_that_did() -> None:
    nowhere = Environment(device="h200", arch="sm_90a", engine="none")
    refused = full_record("greedy", outcome="refused", reason="no", measurements=(), check=None, environment=nowhere)
    (block,) = build([refused, full_record()])
    assert block.machine == "h200 (sm_90a), driver 580.159"
    assert [column.title for column in block.columns] == ["cuda/greedy", "cuda/swizzled"]
