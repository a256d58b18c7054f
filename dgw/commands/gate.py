"""`dgw gate`: does a change make a kernel worse?"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from dgw.commands import gate_output, options
from dgw.commands.exact import Deadline, Folder, Pick, Suite
from dgw.errors import UsageError

app = typer.Typer(rich_markup_mode=None, add_completion=False)

Exact = Annotated[bool, typer.Option("--exact", help="Code, resources and the emulator's counts; needs no GPU.")]
OnMissing = Annotated[
    str, typer.Option("--on-missing", metavar="fail|record", help="What a case without anything approved does.")
]


@app.command()
def gate(
    ctx: typer.Context,
    exact: Exact = False,
    suite: Suite = "",
    shape: options.Shapes = None,
    variant: options.Variants = None,
    family: options.Family = "",
    dtype: options.Dtypes = None,
    layout: options.Layouts = None,
    config: options.Config = None,
    kernels: options.Kernels = None,
    kernel: options.Kernel = None,
    device: options.Device = "",
    baselines: Folder = None,
    deadline: Deadline = 120.0,
    on_missing: OnMissing = "fail",
    json: gate_output.AsJson = False,
    report: gate_output.ReportFile = None,
    junit: gate_output.Junit = None,
    markdown: gate_output.Markdown = None,
    annotations: gate_output.Annotations = None,
) -> None:
    """Fail when a kernel became worse.

    With --exact what the compiler and the emulator say of every case is compared with what was approved in
    perf/baselines: no GPU, no noise. Identical code and launch is identical, and a conflict, a spill or an instruction
    more fails.
    """
    from dgw.commands.gate_exact import exact_gate

    if not exact:
        raise UsageError("this version gates exact facts only", "dgw gate --exact")
    policy: dict[str, Literal["fail", "record"]] = {"fail": "fail", "record": "record"}
    if on_missing not in policy:
        raise UsageError(f"--on-missing cannot be {on_missing!r}", "--on-missing fail or record")
    outputs = gate_output.Outputs(json, report, junit, markdown, annotations)
    outputs.demand()
    pick = Pick(suite, shape, variant, family, dtype, layout, config, kernels, kernel, device, baselines, deadline)
    gate_output.publish(exact_gate(pick, tuple(ctx.obj or ()), policy[on_missing]), outputs)
