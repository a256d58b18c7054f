"""What the emulator refuses, with the PTX line."""

from __future__ import annotations

from dgw.errors import DgwError, Exit


class EmulatorError(DgwError):
    """PTX that the emulator cannot read or does not implement, or a launch that does not fit the kernel."""

    exit_code = Exit.FAULT


def at_line(message: str, line: int, hint: str = "") -> EmulatorError:
    """An :class:`EmulatorError` that names the PTX line."""
    return EmulatorError(f"PTX line {line}: {message}", hint or "dgw show VARIANT --ptx prints the PTX with its lines")
