"""Runs, records and artifacts, kept in SQLite or PostgreSQL."""

from dgw.workbench.store.store import Pruned, RunSummary, Store, open_store

__all__ = ["Pruned", "RunSummary", "Store", "open_store"]
