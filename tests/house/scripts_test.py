#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The files that the packaging scripts delete, and those that package_tree.cmake writes. Nothing is built: scripts replace
the build tools. Usage: scripts_test.py CMAKE"""

import gzip
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest

CMAKE = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[2]
MINE = ["notes.txt", "mine_1.0_amd64.deb", "other-1.0-py3-none-any.whl"]
CPACK = 'while [ "$1" != -B ]; do shift; done; mkdir "$2/_CPack_Packages"; touch "$2/moe_2.0_amd64.deb"'
# The file names contain the machine that the wheel is for, as those of the real tools do.
TOOLS = {"pip": "true", "python": 'mkdir "$5"; touch "$5/raw_${_PYTHON_HOST_PLATFORM:-linux-$(uname -m)}.whl"',
         "auditwheel": 'raw=${4##*linux-}; touch "$3/libmoe-2.0-py3-none-any_$raw"'}
VENV = 'mkdir -p "$3/bin"; cp "$TOOLS"/* "$3/bin"'


def wheel(version, machine):
    return f"libmoe-{version}-py3-none-any_{machine}.whl"


class Scripts(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.repository, self.out = self.folder / "repository", self.folder / "here/out"
        shutil.copytree(ROOT / "scripts", self.repository / "scripts")
        self.out.mkdir(parents=True)
        self.wheels = [wheel("1.0", machine) for machine in (platform.machine(), "other")]
        for name in [*MINE, "moe_1.0_amd64.deb", "libmoe0_1.0_amd64.deb", *self.wheels]:
            (self.out / name).touch()

    def program(self, folder, name, script):
        path = self.folder / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh -e\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def run_script(self, name, *arguments):
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        subprocess.run(["bash", self.repository / "scripts" / name, *arguments], check=True, cwd=self.folder / "here",
                       env={**os.environ, "PATH": path, "TOOLS": str(self.folder / "tools")})
        return sorted(os.listdir(self.out))

    def test_packages_replace_only_packages_of_ours(self):
        self.program("bin", "cmake", "true")
        self.program("bin", "cpack", CPACK)
        left = self.run_script("package.sh", "build", "out")
        self.assertEqual(left, sorted([*MINE, *self.wheels, "moe_2.0_amd64.deb"]))

    def test_a_wheel_replaces_only_wheels_of_ours(self):
        self.program("bin", "python3", VENV)
        for name, script in TOOLS.items():
            self.program("tools", name, script)
        left = self.run_script("wheel.sh", "out")
        others = [*MINE, "libmoe0_1.0_amd64.deb", "moe_1.0_amd64.deb", self.wheels[1]]
        self.assertEqual(left, sorted([*others, wheel("2.0", platform.machine())]))
        if platform.machine() == "aarch64":
            return
        libraries = self.repository / "build/arm64-libs"
        libraries.mkdir(parents=True)
        (libraries / "complete").touch()
        left = self.run_script("wheel.sh", "--aarch64", "out")
        self.assertEqual(left, sorted([*others, wheel("2.0", platform.machine()), wheel("2.0", "aarch64")]))

    def test_a_wheel_refuses_wrong_arguments(self):
        for arguments in (["out", "--aarch64"], ["--arm64"], ["--aarch64", "--aarch64"], ["out", "more"]):
            done = subprocess.run(["bash", self.repository / "scripts/wheel.sh", *arguments], cwd=self.folder / "here",
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertIn("usage: wheel.sh", done.stderr)
        self.assertFalse((self.repository / "build").exists())

    def test_a_minimal_system_needs_debootstrap(self):
        self.program("bin", "id", "echo 0")  # root
        for present, lacks in (([], "debootstrap"), (["debootstrap", "chroot"], "unshare")):
            for name in present:
                self.program("bin", name, "true")
            done = subprocess.run([shutil.which("bash"), ROOT / "tests/install/bare.sh", self.out], capture_output=True,
                                  text=True, check=False, env={"PATH": str(self.folder / "bin")})
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"no {lacks} in the PATH; on Debian: apt-get install debootstrap", done.stderr)

    def document(self, linked_in):
        tree = self.folder / "packed/library/usr"
        (tree / "lib/any").mkdir(parents=True)
        doc = tree / "share/doc/libmoe0"
        doc.mkdir(parents=True)
        settings = {"CPACK_COMPONENTS_ALL": "library", "CPACK_TEMPORARY_DIRECTORY": self.folder / "packed",
                    "CPACK_DEBIAN_LIBRARY_PACKAGE_NAME": "libmoe0", "CPACK_PACKAGE_VERSION": "1.0",
                    "CPACK_PACKAGE_CONTACT": "A <a@b>", "CPACK_MOE_LIBRARY_LINKED_IN": linked_in}
        done = subprocess.run([CMAKE, *(f"-D{k}={v}" for k, v in settings.items()), "-P", ROOT / "cmake/package_tree.cmake"],
                              env={**os.environ, "SOURCE_DATE_EPOCH": "86400"}, capture_output=True, text=True, check=False)
        return done, doc

    def test_the_changelog_has_the_date_of_the_source(self):
        done, doc = self.document("")
        self.assertEqual(done.returncode, 0, done.stderr)
        with gzip.open(doc / "changelog.gz", "rt", encoding="utf-8") as f:
            self.assertIn(" -- A <a@b>  Fri, 02 Jan 1970 00:00:00 +0000", f.read())
        self.assertNotIn("linked in", (doc / "copyright").read_text(encoding="utf-8"))

    def test_a_licence_that_is_missing_is_an_error(self):
        done, _ = self.document("libnowhere-dev")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("licence of libnowhere-dev", " ".join(done.stderr.split()))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
