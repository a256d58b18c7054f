"""Explains and never measures."""
