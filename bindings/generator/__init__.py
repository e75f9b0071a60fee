# SPDX-License-Identifier: MIT
"""The parts of bindings/generate.py: a reader of the header, and a writer for each language."""
