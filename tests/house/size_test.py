#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reports the size of a stripped library. MAX_BYTES, above it, finds what came in unseen, such as a C++ library
or a second copy of something. Usage: size_test.py LIBRARY MAX_BYTES"""

import os
import subprocess
import sys
import tempfile

library, most = sys.argv[1], int(sys.argv[2])
with tempfile.TemporaryDirectory() as folder:
    stripped = os.path.join(folder, "stripped.so")
    subprocess.run(["strip", "--strip-unneeded", "-o", stripped, library], check=True)
    size = os.path.getsize(stripped)
print(f"{library}: {size} bytes stripped, at most {most}")
sys.exit(0 if size <= most else 1)
