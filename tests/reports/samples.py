from __future__ import annotations

from dgw.model import Case, Check, Environment, Measurement, Record, gemm

GPU = Environment(device="h200", arch="sm_90a", driver="580.159", engine="gpu")
LAPTOP = Environment(device="h200", arch="sm_90a", engine="emulator")


def timed(metric: str, value: float, spread: float = 0.002, unit: str = "s") -> Measurement:
    return Measurement(
        metric=metric, value=value, unit=unit, low=value * (1 - spread), high=value * (1 + spread),
        collector="timing", protocol="graph/1",
    )  # fmt: skip


def counted(metric: str, value: float | str, unit: str = "") -> Measurement:
    return Measurement(metric=metric, value=value, unit=unit, collector="ncu", protocol="std")


def full_record(name: str = "swizzled", seconds: float = 2.124e-3, **changes: object) -> Record:
    problem = gemm(4096, 4096, 4096)
    fields: dict[str, object] = {
        "case": Case(problem=problem, variant=f"cuda/{name}", config={"BM": 128, "BN": 128, "BK": 16}),
        "outcome": "ok",
        "environment": GPU,
        "check": Check(passed=True, compared=4096 * 4096, worst=(3, 5), error=0.001, bound=0.004),
        "measurements": (
            timed("time_cold", seconds),
            timed("time_hot", seconds * 0.98),
            timed("tflops", problem.flops / seconds, unit="FLOP/s"),
            timed("ratio_to_cublas", 0.0002 / seconds, unit="ratio"),
            timed("energy", 1.2, unit="J"),
            counted("achieved_occupancy", 0.245, "ratio"),
            counted("theoretical_occupancy", 0.25, "ratio"),
            counted("registers_per_thread", 128, "register"),
            counted("conflict_ratio_ld", 0.0, "ratio"),
            counted("conflict_ratio_st", 0.031, "ratio"),
            counted("dram_bytes", 148e6, "B"),
            counted("stall_long_scoreboard", 0.4, "ratio"),
            counted("stall_barrier", 0.2, "ratio"),
            counted("stall_selected", 0.33, "ratio"),
            counted("stall_wait", 0.067, "ratio"),
            counted("stall_wait_per_issue", 0.2, "warp/issue"),
            Measurement(metric="tensor_pipe_util", collector="ncu", absent="ncu has no permission to read counters"),
        ),
    }
    return Record(**{**fields, **changes})  # type: ignore[arg-type]


def ladder() -> list[Record]:
    wrong = Check(passed=False, compared=10, worst=(1, 2), error=3.0, bound=0.5, detail="D[1, 2] is 4, not 1")
    return [
        full_record("naive", 30.1e-3),
        full_record("tiled", 2.9e-3, flags=("SM clock 1.2 GHz below boost",)),
        full_record("swizzled"),
        full_record("broken", outcome="wrong", check=wrong, measurements=()),
        full_record("greedy", outcome="refused", reason="needs 260 KB of shared memory, h200 has 227 KB", check=None,
                    measurements=()),
    ]  # fmt: skip
