#!/usr/bin/env python3
"""Refuses phrases that plain technical English does without, in comments, texts and documents.

usage: scripts/phrases.py [--count] [PATH...]

A comment, or a doc comment, opens with a noun or a verb; some words have a plainer one. Files in
`scripts/phrases.allowed`, one `PATH: PHRASE` a line, may have that phrase.

--count   prints the number of places by crate and phrase instead
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMENT = re.compile(r"^\s*//[/!]?(?!/) ?(.*)")
TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
# Where a comment begins.
OPENERS = re.compile(r"^(What|Whether|How|Where|Which|Who|Whose|Of|So many|So much|So long)\b")
# Anywhere.
PHRASES = re.compile(
    r"\b(whoever|whomever|whom|somebody|nobody|anybody|meanwhile|anew"
    r"|so many|so much|so long"
    r"|carry out|carries out|carried out|carrying out"
    r"|under way|tell|tells|told|telling)\b",
    re.IGNORECASE,
)


def prose(path):
    """Line number, text, and whether a comment opens there, of each line of a file with prose."""
    lines = path.read_text(errors="replace").splitlines()
    if path.suffix == ".md":
        yield from ((number, line, False) for number, line in enumerate(lines, 1))
        return
    was_comment = False
    for number, line in enumerate(lines, 1):
        comment = COMMENT.match(line)
        if comment:
            text = comment.group(1)
            yield number, text, not was_comment and bool(text)
            was_comment = True
            continue
        was_comment = False
        # Texts go over several lines at times: a line is prose if it has a quote or continues one.
        for text in TEXT.findall(line):
            yield number, text, False
        _, _, after = line.partition(" // ")
        if after:
            yield number, after, True


def found(path):
    for number, text, opens in prose(path):
        opener = OPENERS.match(text) if opens else None
        if opener:
            yield number, f"{opener.group(1)} …", text
        for phrase in PHRASES.findall(text):
            yield number, phrase.lower(), text


def files(paths):
    listed = subprocess.run(
        ["git", "ls-files", "*.rs", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()
    return [name for name in listed if not paths or any(name.startswith(path) for path in paths)]


def allowed():
    listed = ROOT / "scripts/phrases.allowed"
    lines = listed.read_text().splitlines() if listed.exists() else []
    pairs = (line.split(": ", 1) for line in lines if line and not line.startswith("#"))
    return {(path, phrase) for path, phrase in pairs}


def main():
    arguments = sys.argv[1:]
    count = "--count" in arguments
    may = allowed()
    counts = Counter()
    for name in files([a for a in arguments if a != "--count"]):
        for number, phrase, text in found(ROOT / name):
            if (name, phrase) in may or (name, "*") in may:
                continue
            counts["/".join(name.split("/")[:2]), phrase] += 1
            if not count:
                print(f"{name}:{number}: {phrase}: {text.strip()[:90]}")
    if count:
        for (crate, phrase), number in sorted(counts.items()):
            print(f"{number:6} {crate}: {phrase}")
    if counts:
        print(f"error: {sum(counts.values())} phrases that have a plainer word (docs/internals/style.md)", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
