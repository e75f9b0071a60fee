# SPDX-License-Identifier: MIT
"""What bindings/generate.py consists of: a reader of the header, and a writer for each language."""
