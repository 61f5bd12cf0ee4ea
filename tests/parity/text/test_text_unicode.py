"""The generated Unicode table and the normaliser agree with the tokenizers library on every code point."""

import random

from tokenizers import Regex, normalizers, pre_tokenizers

TEXT = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def runs(pattern):
    pieces = pre_tokenizers.Split(Regex(pattern), "removed", invert=True).pre_tokenize_str(TEXT)
    result = []
    for piece, _ in pieces:
        for c in map(ord, piece):
            if result and result[-1][1] == c - 1:
                result[-1][1] = c
            else:
                result.append([c, c])
    return result


def test_letters_numbers_and_marks_are_those_of_the_library(probe):
    ours = probe.ask(categories=True)

    assert ours["letters"] == runs(r"\p{L}")
    assert ours["numbers"] == runs(r"\p{N}")
    assert ours["marks"] == runs(r"\p{M}")


def test_nfc_of_random_letters_and_marks_is_that_of_the_library(probe):
    rng, nfc = random.Random(11), normalizers.NFC()
    classes = probe.ask(categories=True)
    marks = [chr(c) for first, last in classes["marks"] for c in range(first, last + 1)]
    letters = [chr(rng.randint(first, last)) for first, last in classes["letters"] for _ in range(3)]
    jamo = [chr(c) for c in (*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A8, 0x11C3))]

    for _ in range(4000):
        pool = rng.choice([letters + marks, marks, list("aeiounsAEIOU") + marks[:150], jamo + marks])
        text = "".join(rng.choice(pool) for _ in range(rng.randint(1, 12)))
        assert probe.value("text", normalize=text) == nfc.normalize_str(text), [hex(ord(c)) for c in text]
    for mark in marks:  # each one among marks of many combining classes
        text = "e\u0334\u05b0\u0327\u0316\u0301\u0315" + mark + "\u0316\u0327a" + mark + "\u0301"
        assert probe.value("text", normalize=text) == nfc.normalize_str(text), hex(ord(mark))
