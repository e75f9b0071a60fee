#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Links of the documents lead to a file of the repository and, after a #, to one of its headings.
Usage: lint_links.py ROOT"""

import os
import re
import sys
import urllib.parse

import lint

FENCED = re.compile(r"^( *)(```+|~~~+).*?(?:^ *\2[`~]*[ \t]*$|\Z)", re.M | re.S)
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*$", re.M)
LINK = re.compile(r"""\]\(\s*<?([^\s()<>]+)>?(?:\s+"[^"]*")?\s*\)|^ {0,3}\[[^]]+\]:\s*(\S+)|\b(?:src|href)="([^"]*)\"""", re.M)
ANCHOR = re.compile(r"""<a\s+(?:name|id)="([^"]*)\"""")
EXTERNAL = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.I)


def blank(found):
    """Spaces instead of code, so that positions are kept."""
    return re.sub(r"[^\n]", " ", found[0])


def slug(heading):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", heading)  # of a link, its text
    text = re.sub(r"(?<!\w)_(.+?)_(?!\w)", r"\1", text)  # emphasis; an underscore within a word stays
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def anchors(text):
    """All of a document."""
    text = FENCED.sub(blank, text)
    found, count = set(ANCHOR.findall(text)), {}
    for heading in HEADING.findall(text):
        name = slug(heading)
        n = count[name] = count.get(name, -1) + 1
        found.add(f"{name}-{n}" if n else name)
    return found


def links(text):
    """[(line, target)] of a document, without those to other sites."""
    text = CODE.sub(blank, FENCED.sub(blank, text))
    found = [(text.count("\n", 0, m.start()) + 1, next(filter(None, m.groups()), "")) for m in LINK.finditer(text)]
    return [(line, target) for line, target in found if not EXTERNAL.match(target)]


def faults(documents, paths):
    """Faulty links of documents, {path: text}, which may lead to `paths` and their folders."""
    folders = {path[:i] for path in paths for i, c in enumerate(path) if c == "/"} | {"."}
    headings = {path: anchors(text) for path, text in documents.items()}
    for path, text in documents.items():
        for line, target in links(text):
            name, _, anchor = urllib.parse.unquote(target).partition("#")
            to = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
            if to in folders and anchor:
                to = os.path.normpath(os.path.join(to, "README.md"))
            if to not in paths and to not in folders:
                yield f"{path}:{line}: {target}: no such file"
            elif anchor and anchor not in headings.get(to, ()):
                yield f"{path}:{line}: {target}: no such heading"


def main():
    root = sys.argv[1]
    paths = set(lint.files(root))
    documents = {}
    for path in sorted(p for p in paths if p.endswith(".md")):
        with open(os.path.join(root, path), encoding="utf-8") as f:
            documents[path] = f.read()
    n_links = sum(len(links(text)) for text in documents.values())
    lint.report("links", list(faults(documents, paths)), n_links)


if __name__ == "__main__":
    main()
