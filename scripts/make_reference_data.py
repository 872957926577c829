#!/usr/bin/env python3
"""Makes data/text/reference.jsonl: the text of the convergence tests.

    python3 scripts/make_reference_data.py            # no package, no network; always the same bytes

Sentences of made-up words from a small grammar, drawn by a linear congruential generator: enough
structure that a model learns within a few steps, and the same on every machine.
"""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "data" / "text" / "reference.jsonl"
DOCUMENTS = 400


class Draw:
    """Knuth's MMIX generator; the high bits of the state."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n

    def choose(self, items):  # the first items are more likely
        return items[min(self.below(len(items)), self.below(len(items)))]


def words(draw, count, syllables):
    starts, middles = "bdfgklmnprstv", "aeiou"
    return ["".join(starts[draw.below(len(starts))] + middles[draw.below(len(middles))] for _ in range(syllables))
            for _ in range(count)]


def main():
    draw = Draw(2024)
    nouns, verbs, adjectives = words(draw, 60, 2), words(draw, 30, 2), words(draw, 20, 3)

    def phrase():
        noun = draw.choose(nouns)
        return f"the {draw.choose(adjectives)} {noun}" if draw.below(3) == 0 else f"the {noun}"

    def sentence():
        text = f"{phrase()} {draw.choose(verbs)}s {phrase()}"
        if draw.below(4) == 0:
            text += f" and {draw.choose(verbs)}s {draw.below(1000)} {draw.choose(nouns)}s"
        return text[0].upper() + text[1:] + ("?" if draw.below(9) == 0 else ".")

    lines = []
    for _ in range(DOCUMENTS):
        text = " ".join(sentence() for _ in range(2 + draw.below(20)))
        lines.append(json.dumps({"text": text}) + "\n")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text("".join(lines), encoding="utf-8")
    print(f"{OUTPUT.relative_to(ROOT)}: {DOCUMENTS} documents, {OUTPUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
