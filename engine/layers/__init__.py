"""Blocks the model families share: frozen dataclasses of weights with a `__call__`.

A layer never stores anything a forward pass produced; state is an argument.
"""
