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
import unittest.mock

CMAKE = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[2]
MINE = ["notes.txt", "mine_1.0_amd64.deb", "libmoe1.5_1.5.8-5_amd64.deb", "other-1.0-py3-none-any.whl"]
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
        for name in [*MINE, "moe_1.0_amd64.deb", "libmoe0.1_1.0_amd64.deb", *self.wheels]:
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
        others = [*MINE, "libmoe0.1_1.0_amd64.deb", "moe_1.0_amd64.deb", self.wheels[1]]
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

    def tag(self, *arguments):
        done = subprocess.run(["bash", "scripts/tag.sh", *arguments], cwd=self.repository, capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stdout + done.stderr

    def test_a_tag_needs_a_clean_tree_and_one_version(self):
        git = ["git", "-c", "user.name=A", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]

        def commit(name, text):
            (self.repository / name).parent.mkdir(exist_ok=True)
            (self.repository / name).write_text(text, encoding="utf-8")
            for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", name]):
                subprocess.run([*git, *command], cwd=self.repository, check=True)

        for variable in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
            self.enterContext(unittest.mock.patch.dict(os.environ, {variable: "A"}))
        for variable in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
            self.enterContext(unittest.mock.patch.dict(os.environ, {variable: "a@b"}))
        header = "#define MOE_VERSION_MAJOR 1\n#define MOE_VERSION_MINOR {}\n#define MOE_VERSION_PATCH 3\n"
        commit("CMakeLists.txt", "project(moe VERSION 1.2.3 LANGUAGES C)\n")
        commit("CHANGELOG.md", "# Changelog\n\n## 1.2.3 - unreleased\n\n- News.\n\n## 1.2.2 - 2026-01-01\n\n- Old.\n")
        commit("include/moe_c.h", header.format(1))
        (self.repository / "more").touch()
        self.assertIn("the tree has changes", self.tag()[1])
        (self.repository / "more").unlink()
        self.assertIn("expected version 1.2.3 as in CMakeLists.txt, found 1.1.3", self.tag()[1])
        commit("include/moe_c.h", header.format(2))
        self.assertIn("found '## 1.2.3 - unreleased'", self.tag()[1])
        commit("CHANGELOG.md", "## 1.2.4 - 2026-02-03\n\n- News.\n")
        self.assertIn("found '## 1.2.4 - 2026-02-03'", self.tag()[1])
        commit("CHANGELOG.md", "# Changelog\n\n## 1.2.3 - 2026-02-03\n\n## 1.2.2 - 2026-01-01\n\n- Old.\n")
        self.assertIn("says nothing of 1.2.3", self.tag()[1])
        commit("CHANGELOG.md", "# Changelog\n\n## 1.2.3 - 2026-02-03\n\n- News.\n\n## 1.2.2 - 2026-01-01\n\n- Old.\n")
        self.assertEqual(self.tag("--chek")[0], 2)
        code, text = self.tag("--check")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"^would tag [0-9a-f]+ as v1\.2\.3\n$")
        code, text = self.tag()
        self.assertEqual(code, 0, text)
        said = subprocess.run([*git, "tag", "-n9", "-l", "v1.2.3"], cwd=self.repository, check=True, capture_output=True, text=True)
        self.assertIn("- News.", said.stdout)
        self.assertNotIn("- Old.", said.stdout)
        self.assertIn("the tag v1.2.3 exists already", self.tag()[1])

    def document(self, linked_in):
        tree = self.folder / "packed/library/usr"
        (tree / "lib/any").mkdir(parents=True)
        doc = tree / "share/doc/libmoe0.1"
        doc.mkdir(parents=True)
        settings = {"CPACK_COMPONENTS_ALL": "library", "CPACK_TEMPORARY_DIRECTORY": self.folder / "packed",
                    "CPACK_DEBIAN_LIBRARY_PACKAGE_NAME": "libmoe0.1", "CPACK_PACKAGE_VERSION": "1.0",
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
