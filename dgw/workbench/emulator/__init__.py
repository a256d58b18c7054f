"""Executes compiled PTX on the CPU and counts what the hardware would count."""
