"""What GPU there is, asked of a child, because only children open one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from dgw.errors import ChildFault, Missing
from dgw.model import Device, Environment
from dgw.workbench.children import Child
from dgw.workbench.protocol import ChildJob, Hello, Unavailable


def probe(
    child_argv: Sequence[str], deadline_s: float = 60.0, environment: Mapping[str, str] | None = None
) -> tuple[Environment, Device]:
    """What GPU a child sees, with these variables added to its environment.

    Raises Missing when there is none, ChildFault when the child does not answer.
    """
    around = {**os.environ, **(environment or {})}
    with tempfile.TemporaryDirectory(prefix="dgw-") as folder:
        child = Child(child_argv, ChildJob(kind="probe"), Path(folder), environment=around)
        answer: tuple[Environment, Device] | None = None
        missing = ""
        try:
            for message in child.messages(deadline_s, deadline_s):
                if isinstance(message, Hello):
                    answer = (message.environment, message.device)
                elif isinstance(message, Unavailable):
                    missing = message.reason
        finally:
            end = child.finish()
    if missing:
        raise Missing(f"no GPU can be used: {missing}", "dgw doctor, or --engine emulator")
    if answer is None:
        raise ChildFault(f"the child process did not answer: {end.describe(deadline_s)}", "dgw doctor")
    return answer
