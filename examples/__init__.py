"""Worked examples; each runs by itself, without a key or a network, and is executed by a test."""
