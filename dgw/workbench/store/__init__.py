"""Runs, records and artifacts, kept."""
