"""Reports that somebody else's tools wrote, read into records: nothing is added to what they say."""

from __future__ import annotations

from dgw.workbench.foreign.files import Imported, read_foreign

__all__ = ["Imported", "read_foreign"]
