"""Adversarial answers: what models say, and what nobody should say."""

import random

ATOMS = [
    "A", "B", "C", "D", "E", "(A)", "(B)", "(C)", "(D)", "A.", "B)", "C:", "D ", "a", "b", "**A**", "\\boxed{B}", "A or B",
    "yes", "no", "Yes.", "none", "zero", "one", "Two", "ten", "TEN", "the", "a", "an", "The", "dont", "dont't", "Im", "Id've",
    "it's", "cat's", "'s", "y'allll", "somebody'd", "ow's'at", "couldn'tve", "oclock", "3", "3.5", "1,000", "12,345,678", "1,00",
    "-5", "-2e3", "2E+10", ".5", "5.", "1e400", "-1e-400", "1_000", "٣٤", "１２", "३.५", "inf", "-Infinity", "nan", "$6", "$7.00",
    "50%", "10-20", "1/2", "x = 3", "x=4", "is 5", "so 7", "answer 8", "the answer is (C).", "could be 9", "final result is 10.",
    "red cat", "blue dog", "Red Cat", "straße", "STRASSE", "İstanbul", "ΑΣ", "ΑΣΑ", "Σ", "ﬁn", "ŉ", "ǆ", "ǅ", "é", "e\u0301",
    "日本語", "答え", "한국", "🙂", "👩‍👩‍👧", "\u00a0", "\u2003", "\u200b", "\u3000", "\ufeff", "\x1c", "\x85", "\x00", "\u2028",
    "\n", "\n\n", "\t", "  ", "\r\n", " ", "", "", ",", ".", "!", "?", ";", ":", "'", '"', "`", "@", "#", "&", "*", "(", ")", "[", "]",
    "{", "}", "<", ">", "/", "\\", "_", "-", "+", "=", "|", "~", "^", "...", "?!", ". ", " .", "1.2.3", "U.S.A.", "a.b", "12/05/1999",
    "<think>", "</think>", "<analysis>", "</analysis>", "<|im_end|>", "ITC Limited", "hello  world", "Hello World",
]  # fmt: skip

JOINS = ["", "", " ", " ", "  ", "\n", ", ", ". ", "."]


def answers(count: int, seed: int) -> list[str]:
    """Strings of one to eight atoms; every tenth of random code points."""
    rng = random.Random(seed)
    result = []
    while len(result) < count:
        if rng.random() < 0.1:
            spaces = [range(0x20, 0x7F), range(0xA0, 0x250), range(0x370, 0x530), range(0x1E00, 0x2070), range(0x4E00, 0x4F00),
                      range(0x660, 0x670), range(0x10400, 0x10450), range(0x1F600, 0x1F640)]  # fmt: skip
            result.append("".join(chr(rng.choice(rng.choice(spaces))) for _ in range(rng.randint(1, 20))))
            continue
        text = rng.choice(ATOMS)
        for _ in range(rng.choice([0, 0, 1, 1, 2, 3, 5, 8])):
            text += rng.choice(JOINS) + rng.choice(ATOMS)
        result.append(text)
    return result
