"""Sweeps: every config of a space compiled, checked and screened; the best measured against each other."""
