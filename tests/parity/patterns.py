#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the patterns of tokenizers with the package `tokenizers`, whose patterns are Oniguruma's.

    patterns.py --match_patterns build/release/tests/match_patterns    compare
    patterns.py --write                                                write tests/data/text/patterns.json
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Regex, pre_tokenizers

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "text" / "patterns.json"
SHORT = "aBc-1_9 éÉ中文ǅ\n\tβΒ&^[]z%$😀ª²Ⅷ‿\u0301~+|]\r\n pLpL Hello, world's 3.14 日本語カナ。 über-Straße"
# Characters of every kind, those that Python's Unicode (14, as PCRE2's in Debian 12) has; later versions gave
# Alphabetic to some marks.
LONG = "".join(chr(c) + " " for c in [*range(1, 0x250), *range(0x250, 0x3100, 53), *range(0x3100, 0xD800, 997),
                                      *range(0xE000, 0x10000, 397), *range(0x10000, 0x1F700, 1499), 0x1F600, 0x20001]
               if unicodedata.category(chr(c)) != "Cn" and c != 0x1DD9)

KIMI = "|".join([r"[\p{Han}]+", r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                 r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                 r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
NAMES = """alnum alpha blank cntrl digit lower punct space upper xdigit L Lu Ll Lt Lm Lo LC M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc
Sk So Z Zs Zl Zp C Cc Cf Co Letter Cased_Letter Uppercase_Letter Lowercase_Letter Titlecase_Letter Modifier_Letter Other_Letter Mark
Nonspacing_Mark Spacing_Mark Enclosing_Mark Number Decimal_Number Letter_Number Other_Number Punctuation Connector_Punctuation Dash_Punctuation
Open_Punctuation Close_Punctuation Initial_Punctuation Final_Punctuation Other_Punctuation Symbol Math_Symbol Currency_Symbol Modifier_Symbol
Other_Symbol Separator Space_Separator Control Format Private_Use Any Alphabetic Lowercase Uppercase White_Space Emoji Extended_Pictographic
Ideographic Han Hiragana Katakana Hangul Thai Arabic Cyrillic Greek Latin Common ID_Start Math Hex_Digit Cased Latn greek HAN white-space ASCII""".split()
BRACKETS = "alnum alpha blank cntrl digit graph lower print punct space upper xdigit word ascii".split()
PATTERNS = [
    KIMI, *(r"\p{%s}+" % n for n in NAMES), *(r"[\p{%s}]+" % n for n in NAMES), *(r"[^\P{%s}a]+" % n for n in NAMES),
    r"\w+", r"\W+", r"\d+", r"\D+", r"\s+", r"\S+", r"[\w]+", r"[\d]+", r"[\D]+", r"[\s]+", r"[\S]+", r"\b.", r"\B.", *("[[:%s:]]+" % b for b in BRACKETS), *("[[:^%s:]]+" % b for b in BRACKETS),
    *(r"(?i:[^\p{%s}])" % n for n in ("L", "N", "P")),
    # set operations
    *r"""[a-z&&[^b]]+ [^a&&b] [a-z&&] [&&a] [a&&&&b] [a-z&&[a-c]&&b-z]+ [[a-c]x]+ [[^a-c]&&\w]+ [^[a-c]]+ [\W]+ [^\W]+ [\H]+ [a[^\S]]+ [[:alpha:]&&[^a]]+
    [\p{L}&&[^\p{Han}]]+ [\p{L}&&\P{Han}]+ [\p{L}&&\p{^Han}]+ [^\p{L}&&[^\p{Han}]]+ [^\s\p{L}&&[^é]] [[a-z][A-Z]&&[^aB]]+ [a-z&&[^aeiou]&&[^x-z]]+
    [\p{L}\p{N}&&[^\p{Han}\p{Hiragana}]]+ [\s&&[^\r\n]]+ [\S&&\D]+ [^\S\n]+ (?<=[a&&[^b]])B (?<![a-z&&[^b]])B [\p{L}&&\p{ASCII}]+ [a-z&&[b[c&&[^d]]z]]+
    [^[^a-z]&&[^0-9]]+ [[[[a]]]]+ [[a]-c]+ [^[^[^a]]]+ [\p{^L}&&\S]+ [^\p{^L}]+ [[:^alpha:]&&[:ascii:]]+ [a&&b|c]+ ([\p{L}&&[^\p{Han}]]|\d)+ [\w&&\D]{2}
    [\p{L}&&[^a]]{1,2}+ [\p{L}&&[^a]]*? [^&&] [a-&&-]+ [\w&&[^\d_]]++ (?>[\p{L}&&[^c]]+)c? [[^\p{L}][^\p{N}]]+ [\W\d]+ [^\W\d]+ [\P{L}&&\P{N}]+""".split(),
    # other parts of classes
    *r"""[]a]+ [^]a]+ []] [a-z-9]+ [a-c-e]+ [^^]+ [&]+ [a&b]+ [a\]]+ [\[a]+ [a-]+ [-a]+ [+-]+ [\b] [\B]+ [\x41-\x43]+ [\xE4\xB8\xAD]+ [\x{4e2d}\u6587]+
    [\101]+ [\0-a]+ [\x00-\x7F]+ [^\x00-\x7F]+ [\t\n\r\f\v\a\e]+ [\.\*\+\?\|\^\$\{\}\(\)]+ [.*+?|^${}()]+ [{-~]+ [\--9]+ [é-ÿ]+ [一-龥]+ [\d\.]+ [~]+ [#]+ [a#b]+""".split(),
    # without regard to case
    *r"""(?i:k) (?i:[k]) (?i:[^k])+ (?i:[a-z])+ (?i:\p{Lu})+ (?i:[\p{L}])+ (?i:[^\p{L}])+ (?i:[\s\w])+ (?i:[[a-c]x])+ (?i:[^[a-c]])+ (?i)b (?i)hello|WORLD
    a(?i)b|c (a(?i)b|C)|d (?i:a(?-i)B|c) (?i-m:b) (?i:é)+ (?-i:b) (?i:[\W])+ (?i:[\H])+""".split(),
    # groups, quantifiers, anchors
    *r"""a++ a?+ (a|B)*+ a{,2} a{2,} \p{L}{2}+ \p{N}{1,3}+(?!\p{N}) \d++\w (?>a)B (?<x>p)L\k<x>? (p)L\1 (?#x)a (?#\))a \A. .\z .\Z ^. .$ \R \X+ \N+ \O+ . (?m:.)+
    \bz \Bz \h+ \H+ \v+ \e|a \x41|\x{42}|\103 \xE4\xB8\xAD \u4e2d pL+ \Qa a\E (?<=é)É (?<!é)É (?=a)a (?!a)\w (?:ab|aB)c?""".split(),
    # negated properties and the like next to each other
    *(a + b for a in (r"\P{N}+", r"\P{L}*?", r"\P{P}+", r"\p{^S}{2,}?", r"\D+", r"\P{Lu}*?", r"\N{2,}?", r"\R*?", r"\W+", r"\S+", r"\X*?", ".+")
      for b in (r"\P{L}", r"\P{N}++", r"\P{S}", r"\p{^P}", r"\P{Lu}", r"\D", r"\N", r"\R++", r"\W", r"\S", r"\X", ".")),
    "(?x: a B # [comment](\n c )", "(?x) a B #]\n| z", r"(?x:[a B])+", r"\ +", "a b|\\ p",
    # refused by Oniguruma, by us, or both
    *r"""[] [a [[a] [a&&[b] [[]a] [[:foo:]] [b-a] (?s:.) (?a:\w) (?P<n>a) \p{Script=Greek} \p{L&} \p{Nosuch} (?(1)a|b) a) (a""".split(),
]
# Ours to refuse: the two libraries of `tokenizers` differ, or PCRE2 has nothing like it.
REFUSED = r"""[a-z--b] [\w--\d] [a-z~~b] [--a] [%--] [a-[b]] [a&&[b]-c~~d] (?i:[a-z&&[^B]]) (?i:[[^a]]) (?i:[\p{Lu}]) (?i:[[:upper:]]) [\R] [\X] \pL \PL [\pL] \p{In_Basic_Latin}
\p{Word} \p{Graph} \p{Assigned} \p{Age=6.0} \K \Ga \y (?~a) (?W:\w) \M-a \C-a (*ACCEPT) [\xE4] [\377] (?(1)a|b)""".split()


def reference(pattern, text):
    try:
        split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
        return [text[a:b] for _, (a, b) in split.pre_tokenize_str(text)]
    except Exception as e:  # the package raises Exception itself
        return f"error: {e}"


def cases():
    for pattern in PATTERNS:
        for text in (SHORT, LONG):
            yield {"pattern": pattern, "text": text}


def ours(program, all_cases):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(all_cases, f, ensure_ascii=False)
        f.flush()
        return json.loads(subprocess.run([program, f.name], check=True, capture_output=True).stdout)


def compare(program):
    todo = list(cases())
    faults = 0
    for case, found in zip(todo, ours(program, todo)):
        expected = reference(**case)
        if isinstance(expected, str):
            same = isinstance(found, str)
        else:
            same = expected == found
        if not same:
            faults += 1
            print(f"{case['pattern']}\n  expected {str(expected):.120}\n  found    {str(found):.120}")
            if isinstance(found, list) and isinstance(expected, list):
                a, b = "".join(expected), "".join(found)
                print(f"  only expected {sorted(set(a) - set(b))!r:.100}, only found {sorted(set(b) - set(a))!r:.100}")
    refused = ours(program, [{"pattern": p, "text": SHORT} for p in REFUSED])
    for pattern, found in zip(REFUSED, refused):
        if not isinstance(found, str):
            faults += 1
            print(f"{pattern}\n  expected an error, found {found!r:.100}")
    print(f"{faults} faults in {len(todo)} cases and {len(REFUSED)} refusals")
    return faults


def write():
    out = [{**case, "matches": reference(**case)} for case in cases() if case["text"] == SHORT]
    for case in out:
        del case["text"]
    DATA.write_text(json.dumps({"text": SHORT, "cases": out, "refused": REFUSED}, ensure_ascii=False, indent=0) + "\n")
    print(f"{len(out)} cases")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--match_patterns")
    args = parser.parse_args()
    if args.write:
        return write()
    return 1 if compare(args.match_patterns) else 0


sys.exit(main())
