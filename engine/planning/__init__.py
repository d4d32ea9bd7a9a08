"""Measuring and proving: verification, tuning, benchmarks."""
