"""Sixty configs of a kernel that is compiled once: they differ in their launch only."""

from __future__ import annotations

from dgw.model import Config, Device, Launch, Plan, Problem, Source, Tunable, Variant


def refuses(problem: Problem, config: Config, device: Device) -> str | None:
    return "X=0 leaves nothing to do" if config["X"] == 0 else None


def plan(problem: Problem, config: Config, device: Device) -> Plan:
    blocks = 10 * int(config["Y"]) + int(config["X"])
    launch = Launch(
        source=Source(path="many.cu"), entry="nothing", grid=(blocks, 1, 1), block=(32, 1, 1), arguments=()
    )  # fmt: skip
    return Plan(steps=(launch,))


VARIANT = Variant(
    id="own/many",
    version=1,
    idea="many configs",
    dtypes=("f16",),
    space=(
        Tunable(name="X", default=1, values=(0, 1, 2, 3, 4, 5, 6), meaning="columns"),
        Tunable(name="Y", default=1, values=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10), meaning="rows"),
    ),
    refuses=refuses,
    plan=plan,
)
