#!/usr/bin/env python3
"""Makes data/text/kjv.jsonl, one document a chapter, from Debian's package bible-kjv (public domain).

    python3 scripts/prepare_text.py            # does nothing when the file is there and right

A line is {"id": "Genesis 1", "text": "In the beginning ..."}: the chapter's verses, one a line,
without numbers. The result's hash is checked; another version of the package gives a warning.
"""
import argparse
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "data" / "text" / "kjv.jsonl"
SHA256 = "0627967e58295e051249621127daff95e14dcffd05dbeeee2650486e49b6a4c4"
CHAPTERS = 1189
HEADING = re.compile(r"^[1-3A-Z][A-Za-z0-9 ]* \d+$")
VERSE = re.compile(r"^ +\d+ (.*)$")


def fail(message, code):
    print(f"prepare_text: {message}", file=sys.stderr)
    sys.exit(code)


def read_bible():
    if shutil.which("bible") is None:
        fail("the program 'bible' is not installed; run scripts/install_deps.sh, or: apt-get install bible-kjv", 69)
    result = subprocess.run(["bible", "-l100000", "gen1:1-rev22:21"], capture_output=True, check=False)
    if result.returncode != 0:
        fail(f"'bible' ended with {result.returncode}: {result.stderr.decode(errors='replace').strip()}", 70)
    return result.stdout.decode("utf-8")


def chapters(text):
    heading, verses = None, []
    for line in text.splitlines():
        verse = VERSE.match(line)
        if verse:
            verses.append(" ".join(verse.group(1).split()))
        elif HEADING.match(line):
            if verses:
                yield heading, verses
            heading, verses = line, []
        elif line.strip():
            fail(f"a line of 'bible' is neither heading nor verse: {line[:60]!r}", 65)
    if verses:
        yield heading, verses


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=OUTPUT, help="file to write (%(default)s)")
    output = parser.parse_args().output
    if output.exists() and hashlib.sha256(output.read_bytes()).hexdigest() == SHA256:
        print(f"{output}: there already")
        return
    documents = [json.dumps({"id": heading, "text": "\n".join(verses) + "\n"}, ensure_ascii=False)
                 for heading, verses in chapters(read_bible())]
    if len(documents) != CHAPTERS:
        fail(f"{len(documents)} chapters, expected {CHAPTERS}; is the package bible-kjv-text whole?", 65)
    content = ("\n".join(documents) + "\n").encode("utf-8")
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        print(f"prepare_text: warning: the text's hash is {digest[:16]}..., expected {SHA256[:16]}...: another version "
              "of the package; results will differ a little", file=sys.stderr)
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_suffix(".tmp")
    temporary.write_bytes(content)
    temporary.replace(output)
    print(f"{output}: {len(documents)} chapters, {len(content)} bytes")


if __name__ == "__main__":
    main()
