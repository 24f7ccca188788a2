"""Benchmarks: run as modules from the project root."""
