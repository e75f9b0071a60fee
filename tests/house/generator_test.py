#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The generator of the bindings' declarations: its files are up to date, its layouts are those of a C compiler, and
it reads what a header may hold or says what it does not understand. Usage: generator_test.py ROOT"""

import ast
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "bindings"))
import generate  # noqa: E402
from generator import enums, header, layout, probe, python, rust  # noqa: E402

EVERYTHING = """#ifndef T_H
#define T_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#if defined(__GNUC__)
#define MOE_API __attribute__((visibility("default")))
#define MOE_DEPRECATED(text) __attribute__((deprecated(text)))
#endif
#define MOE_INIT(type) ((type){.struct_size = sizeof(type)})
#define MOE_TEXT_BYTES 16 /* of a text */
#define MOE_ALL (-1)
#define MOE_LONG "text"
typedef uint32_t moe_flags;
enum { MOE_FLAG_A = 1 << 2, MOE_FLAG_B = MOE_FLAG_A | 1 };
/* Kinds
 * of routers. */
typedef enum moe_kind {
  MOE_KIND_TOP_K, /* the best */
  /* those that reach a sum, which
   * is given */
  MOE_KIND_SUM,
  MOE_KIND_LAST = 7 /* last */
} moe_kind;
typedef struct moe_late moe_late;
typedef struct moe_handle moe_handle; /* one thread */

/* A banner.
 */

typedef struct moe_router {
  uint32_t struct_size;
  moe_kind kind;
  float shares[3];
  moe_flags flags;
} moe_router;
typedef void (*moe_note_fn)(void* user, const struct moe_late* late, const char* text, size_t n_bytes);
typedef struct moe_params {
  uint32_t struct_size;
  moe_router router; /* by value */
  const moe_late* late;
  const char* const* names;
  bool on;
  int (*read)(void* user, uint64_t offset);
  moe_note_fn note;
  const float* x;
} moe_params;
struct moe_late {
  uint64_t type;
  char text[MOE_TEXT_BYTES];
  const float* y;
  const char* label;
  size_t n_label;
};
/* Opens.
 *   an example */
MOE_API int moe_open(const moe_params* params, moe_handle** out);
MOE_API MOE_DEPRECATED("use moe_open") void moe_old(moe_handle* handle, moe_handle* const* others, size_t n,
                                                   double* const x, struct moe_late* out);
MOE_API const char* moe_convert_name(void);
#endif
"""

RUST = ("/// Kinds\n/// of routers.\npub type moe_kind = c_int;\n/// the best\npub const MOE_KIND_TOP_K: moe_kind = 0;\n"
        "/// those that reach a sum, which\n/// is given\npub const MOE_KIND_SUM: moe_kind = 1;\n/// last\n"
        "pub const MOE_KIND_LAST: moe_kind = 7;\n",
        "pub const MOE_TEXT_BYTES: usize = 16;", "pub const MOE_ALL: i32 = -1;", "pub const MOE_FLAG_B: u32 = 5;",
        "/// one thread\n#[repr(C)]\npub struct moe_handle {\n    _private: [u8; 0],\n}",
        "pub type moe_flags = u32;", "    pub shares: [f32; 3],\n    pub flags: moe_flags,\n",
        "\n#[repr(C)]\n#[derive(Clone, Copy)]\npub struct moe_router {",
        "pub type moe_note_fn =\n    Option<unsafe extern \"C\" fn(*mut c_void, *const moe_late, *const c_char, usize)>;",
        "    /// by value\n    pub router: moe_router,\n    pub late: *const moe_late,\n"
        "    pub names: *const *const c_char,\n    pub on: bool,\n"
        "    pub read: Option<unsafe extern \"C\" fn(*mut c_void, u64) -> c_int>,\n    pub note: moe_note_fn,\n"
        "    pub x: *const f32,\n", "    pub r#type: u64,\n    pub text: [c_char; 16],\n",
        "    /// Opens.\n    ///   an example\n"
        "    pub fn moe_open(params: *const moe_params, out: *mut *mut moe_handle) -> c_int;\n",
        "    pub fn moe_old(\n        handle: *mut moe_handle,\n        others: *const *mut moe_handle,\n        n: usize,\n"
        "        x: *mut f64,\n        out: *mut moe_late,\n    );\n",
        "    layout!(moe_router, 24, {\n        struct_size: 0,\n        kind: 4,\n        shares: 8,\n        flags: 20,\n    });")
PYTHON = ('NoteFn = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Late), c.c_void_p, c.c_size_t)\n',
          'ReadFn = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_uint64)\n',
          'class Router(Sized):\n    """moe_router."""\n\n    _fields_ = [\n        ("struct_size", c.c_uint32),\n'
          '        ("kind", c.c_int),\n        ("shares", c.c_float * 3),\n        ("flags", c.c_uint32),\n    ]\n',
          '        ("router", Router),\n        ("late", c.POINTER(Late)),\n        ("names", c.POINTER(c.c_char_p)),\n'
          '        ("on", c.c_bool),\n        ("read", ReadFn),\n        ("note", NoteFn),\n        ("x", c.c_void_p),\n')
FUNCTIONS = ('    "moe_open": (c.c_int, [c.POINTER(s.Params), c.POINTER(c.c_void_p)]),\n',
             '    "moe_old": (None, [\n        c.c_void_p,\n        c.POINTER(c.c_void_p),\n        c.c_size_t,\n'
             '        c.c_void_p,\n        c.POINTER(s.Late),\n    ]),\n',
             'MOE_CONVERT: Prototypes = {\n    "moe_convert_name": (c.c_char_p, []),\n}')
CONSTANTS = ("TEXT_BYTES = 16\nALL = -1\n", "FLAG_A = 4\nFLAG_B = 5\n",
             'class Kind(Enum):\n    """moe_kind. Kinds of routers."""\n\n    # the best\n    TOP_K = 0\n')

# Faulty declarations with the reason; the line is the fourth.
NOT_UNDERSTOOD = {
    "int moe_count;": "not a typedef, struct, enum or function declaration",
    "void moe_print(const char* text, ...);": "a function with a variable number of parameters",
    "void moe_call();": "a function without a list of parameters",
    "void moe_call(int);": "a parameter without a name",
    "FILE* moe_file(void);": "",
    "unsigned long moe_long(void);": "the type unsigned long is not understood",
    "struct moe_bits { int a : 3; };": "a field without a name, or a bit field",
    "typedef struct { int a; } moe_plain;": "must have the same name",
    "typedef union moe_either { int a; float b; } moe_either;": "Union",
    "typedef struct moe_nest { struct moe_in { int a; } in; } moe_nest;": "a struct or enum inside another declaration",
    "enum { MOE_SIZE = sizeof(int) };": "a constant that is not a whole number",
    "static inline int moe_zero(void) { return 0; }": "FuncDef",
    "#define MOE_RATE 0.5": "MOE_RATE: expected a number, found 0.5",
}
UNDECLARED = {"void moe_take(struct moe_gone* gone);": "moe_take: moe_gone is not declared",
              "typedef struct moe_o moe_o; struct moe_p { moe_o o; };": "moe_p.o: the fields of moe_o are not declared"}


class Generator(unittest.TestCase):
    maxDiff = None

    def read(self, text):
        with tempfile.TemporaryDirectory() as folder:
            self.path = pathlib.Path(folder, "t.h")
            self.path.write_text(text, encoding="utf-8")
            declared = header.read(self.path)
            seen = probe.seen_by_c(self.path, declared) if declared.structs else {}
        return declared, seen

    def test_files_are_up_to_date(self):
        done = subprocess.run([sys.executable, "-B", str(ROOT / "bindings/generate.py"), "--check"],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def assert_layouts(self, declared, seen):
        found = {name: (size, offsets) for name, (size, offsets) in layout.layouts(declared).items()}
        expected = {name: (seen[name], {f.name: seen[f"{name}.{f.name}"][0] for f in struct.fields})
                    for name, struct in declared.structs.items() if struct.fields}
        self.assertEqual(found, expected)
        for value in [c for e in declared.enums for c in e.constants] + declared.macros:
            self.assertEqual(value.what, seen[value.name], value.name)

    @unittest.skipIf(sys.maxsize < 1 << 32, "the layouts are those of 64-bit machines")
    def test_layouts_are_those_of_the_compiler(self):
        declared = header.read(generate.HEADER)
        self.assert_layouts(declared, probe.seen_by_c(generate.HEADER, declared))
        self.assert_layouts(*self.read(EVERYTHING))

    def test_everything_that_a_header_may_hold(self):
        declared, _ = self.read(EVERYTHING)
        for write, expected in ((rust.sys, RUST), (python.structs, PYTHON), (python.functions, FUNCTIONS),
                                (python.constants, CONSTANTS)):
            text = write(declared)
            for part in expected:
                self.assertIn(part, text)
        self.assertNotIn("moe_convert_name", rust.sys(declared))
        self.assertIn("KindTopK Kind = C.MOE_KIND_TOP_K", enums.go(declared))
        self.assertIn("    /// the best\n    #[default]\n    TopK,\n", enums.rust(declared))
        again, _ = self.read("typedef enum moe_x { MOE_X_A = 3, MOE_X_B = MOE_X_A, MOE_X_C } moe_x;\nmoe_x moe_get(void);\n")
        self.assertIn('case XA:\n\t\treturn "a"\n\tcase XC:', enums.go(again))
        self.assertIn("sys::MOE_X_A => X::A,\n            sys::MOE_X_C => X::C,\n            other => X::Other(other),",
                      enums.rust(again))
        self.assertIn('{"top_k", MOE_KIND_TOP_K}', enums.node(declared))
        self.assertIn("export type Kind =\n  | 'top_k'\n", enums.typescript(declared))

    def test_a_struct_of_the_library_has_typed_arrays_and_counted_text(self):
        declared, _ = self.read("#include <stddef.h>\ntypedef struct moe_out {\n  const float* y;\n  const char* label;\n"
                                "  size_t n_label;\n  const char* name;\n} moe_out;\nvoid moe_get(moe_out* out);\n")
        self.assertIn('("y", c.POINTER(c.c_float)),\n        ("label", c.c_void_p),\n        ("n_label", c.c_size_t),\n'
                      '        ("name", c.c_char_p),\n', python.structs(declared))

    def test_comments_are_text_in_every_language(self):
        for text in ('all are "x"', '"""', r"a\tb \\", "first\n *\n *   code(1);\n * last"):
            declared, _ = self.read(f"/* {text} */\ntypedef enum moe_x {{ MOE_X_A, MOE_X_B /* {text} */ }} moe_x;\n")
            code = python.constants(declared)
            docstring = ast.get_docstring(ast.parse(code).body[-1])
            self.assertEqual(" ".join(docstring.split()), "moe_x. " + " ".join(text.replace("\n *", " ").split()))
            for line in (*rust.sys(declared).split("\n"), *enums.go(declared).split("\n")):
                if "code(1)" in line or '"x"' in line:
                    self.assertRegex(line, r"^\s*//")

    def test_what_is_not_understood_has_a_line(self):
        for declaration, fault in NOT_UNDERSTOOD.items():
            with self.assertRaises(header.Unknown, msg=declaration) as raised:
                self.read(f"#include <stdint.h>\n/* two\n */\n{declaration}\n")
            self.assertRegex(str(raised.exception), r"t\.h:4:", declaration)
            self.assertIn(fault, str(raised.exception), declaration)
        for declaration, fault in UNDECLARED.items():
            with self.assertRaises(header.Unknown) as raised:
                self.read(declaration)
            self.assertIn(fault, str(raised.exception))

    def test_a_stale_file_is_found(self):
        texts = generate.generated()
        self.assertEqual(set(texts), set(generate.FILES))
        changed = header.read(generate.HEADER)
        del changed.functions["moe_session_position"]
        self.assertNotEqual(rust.sys(changed), "".join(texts["rust/src/sys.rs"].split("\n\n", 1)[1:]))
        self.assertEqual(rust.sys(header.read(generate.HEADER)), texts["rust/src/sys.rs"].split("\n\n", 1)[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
