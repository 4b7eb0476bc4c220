"""Benchmarks that anyone can run; each prints its figures and starts and stops what it needs, on loopback only."""
