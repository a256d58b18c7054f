"""Measures and never explains."""
