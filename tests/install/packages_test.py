#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Contents and dependencies of the Debian packages in a folder; unpacked, they work. Usage:
packages_test.py FOLDER"""

import glob
import gzip
import os
import re
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.abspath(sys.argv[1])
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
WANTED = {
    "libmoe0.1": ["usr/lib/*/libmoe.so.0.1", "usr/lib/*/libmoe_convert.so.0.1", "usr/lib/*/libmoe_serve.so.0.1"],
    "libmoe0-dev": ["usr/include/moe_c.h", "usr/lib/*/libmoe.so", "usr/lib/*/libmoe_convert.so",
                    "usr/lib/*/libmoe_serve.so", "usr/lib/*/pkgconfig/moe.pc", "usr/lib/*/cmake/moe/moe-config.cmake"],
    "moe": ["usr/bin/moe", "usr/share/man/man1/moe.1.gz", "usr/share/bash-completion/completions/moe",
            "usr/share/zsh/vendor-completions/_moe", "usr/share/fish/vendor_completions.d/moe.fish"],
    "moe-cuda": ["usr/lib/*/libmoe_cuda.so"],
}
FOLDERS = re.compile(r"\./usr/(bin|include|lib/[\w-]+|share/(bash-completion/completions|doc|fish/vendor_completions\.d|"
                     r"man/man1|zsh/vendor-completions))/")
NEEDS = {
    "libmoe0.1": r"libc6 \(.*libpcre2-8-0.*libstdc\+\+6.*libutf8proc2",
    "libmoe0-dev": r"^libmoe0\.1 \(= {version}\)$",
    "moe": r"^libmoe0\.1 \(= {version}\), libc6 \(.*libedit2.*libmicrohttpd12.*libstdc\+\+6",
    "moe-cuda": r"^libmoe0\.1 \(= {version}\), libc6 \(",
}
LINKED_IN = {  # without PCRE2 and utf8proc, which are shared libraries of other packages
    "libmoe0.1": ["libflatbuffers-dev", "libxxhash-dev", "libzstd-dev", "nlohmann-json3-dev"],
    "moe": ["libcli11-dev", "nlohmann-json3-dev"],
}
MOST_BYTES = 2400000  # grammars, tool calls, Gemma 4 and GGUF files with a state came last


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def version():
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as f:
        return re.search(r"^project\(moe VERSION ([\d.]+)", f.read(), re.M)[1]


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.tree, cls.scratch = os.path.join(scratch.name, "tree"), scratch.name
        cls.packages = {os.path.basename(p).split("_")[0]: p for p in glob.glob(os.path.join(FOLDER, "*.deb"))}
        for package in cls.packages.values():
            output("dpkg-deb", "-x", package, cls.tree)

    def each(self):
        for name, path in self.packages.items():
            with self.subTest(package=name):
                yield name, path

    def find(self, pattern):
        found = glob.glob(os.path.join(self.tree, pattern))
        self.assertEqual(len(found), 1, pattern)
        return found[0]

    def field(self, path, name):
        return output("dpkg-deb", "-f", path, name).strip()

    def test_all_are_there(self):
        self.assertEqual(set(self.packages) - {"moe-cuda"}, set(WANTED) - {"moe-cuda"})
        for name, path in self.each():
            self.assertEqual(os.path.basename(path), f"{name}_{version()}_{self.field(path, 'Architecture')}.deb")
            for pattern in WANTED[name]:
                self.find(pattern)

    def test_fields(self):
        for name, path in self.each():
            self.assertEqual(self.field(path, "Version"), version())
            self.assertRegex(self.field(path, "Depends"), NEEDS[name].format(version=re.escape(version())))
            self.assertRegex(self.field(path, "Maintainer"), r"^[\w .-]+ <\S+@\S+>$")
            about = self.field(path, "Description").splitlines()
            self.assertGreater(len(about), 1)
            self.assertLessEqual(max(map(len, about)), 79)
        self.assertEqual(self.field(self.packages["libmoe0-dev"], "Conflicts"), "libmoe-dev")

    def test_the_library_is_small(self):
        self.assertLessEqual(os.path.getsize(self.packages["libmoe0.1"]), MOST_BYTES)

    def test_files(self):
        for name, path in self.each():
            for line in output("dpkg-deb", "-c", path).splitlines():
                mode, owner, _, _, _, file = line.split(None, 5)
                self.assertEqual(owner, "root/root", line)
                if mode[0] == "d":
                    self.assertEqual(mode, "drwxr-xr-x", line)
                    continue
                self.assertRegex(file, FOLDERS)
                if mode[0] == "-":
                    self.assertEqual(mode, "-rwxr-xr-x" if "/bin/" in file else "-rw-r--r--", line)

    def test_documents(self):
        for name, _ in self.each():
            folder = os.path.join(self.tree, "usr/share/doc", name)
            with open(os.path.join(folder, "copyright"), encoding="utf-8") as f:
                text = f.read()
            self.assertIn("MIT License", text)
            found = re.findall("^Parts of (.*) are linked in", text, re.M)
            self.assertEqual(sorted(found), LINKED_IN.get(name, []))
            with gzip.open(os.path.join(folder, "changelog.gz"), "rt", encoding="utf-8") as f:
                self.assertRegex(f.readline(), rf"^{name} \({re.escape(version())}\) \w+; urgency=\w+\n$")

    def test_binaries(self):
        for pattern in ("usr/bin/moe", "usr/lib/*/libmoe.so.0.1", "usr/lib/*/libmoe_convert.so.0.1", "usr/lib/*/libmoe_serve.so.0.1"):
            headers = output("readelf", "-dS", "--wide", self.find(pattern))
            self.assertNotRegex(headers, r"RUNPATH|RPATH|\.debug_info")

    def run_moe(self, *arguments):
        libraries = os.path.dirname(self.find("usr/lib/*/libmoe.so.0.1"))
        return output(os.path.join(self.tree, "usr/bin/moe"), *arguments,
                      env={**os.environ, "LD_LIBRARY_PATH": libraries})

    def test_the_command_runs(self):
        self.assertEqual(self.run_moe("--version").splitlines()[0], f"moe {version()}")
        with gzip.open(self.find("usr/share/man/man1/moe.1.gz"), "rt", encoding="utf-8") as f:
            self.assertEqual(f.read(), self.run_moe("man"))
        for shell, pattern in [("bash", WANTED["moe"][2]), ("zsh", WANTED["moe"][3]), ("fish", WANTED["moe"][4])]:
            with open(self.find(pattern), encoding="utf-8") as f:
                self.assertEqual(f.read(), self.run_moe("completion", shell))

    def test_programs_build(self):
        libraries = os.path.dirname(self.find("usr/lib/*/libmoe.so"))
        settings = {**os.environ, "PKG_CONFIG_PATH": os.path.join(libraries, "pkgconfig"), "LD_LIBRARY_PATH": libraries}
        consumer = os.path.join(ROOT, "tests/house/consumer")
        program, build = os.path.join(self.scratch, "program"), os.path.join(self.scratch, "build")
        flags = output("pkg-config", "--cflags", "--libs", "moe", "moe_convert", "moe_serve", env=settings).split()
        output("cc", "-std=c99", os.path.join(consumer, "main.c"), "-o", program, *flags, env=settings)
        output("cmake", "-S", consumer, "-B", build, f"-DCMAKE_PREFIX_PATH={self.tree}/usr")
        output("cmake", "--build", build)
        for built in (program, os.path.join(build, "consumer")):
            self.assertEqual(output(built, version(), env=settings), f"moe {version()}\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
