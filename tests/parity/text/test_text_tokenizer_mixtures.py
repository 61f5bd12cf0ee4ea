"""Parts of tokenizer.json put together at random: whatever is accepted gives the ids and the text of Hugging Face's tokenizers. What is
refused by one of the two alone is no difference: a wrong id is worse than none."""

import json
import random

import pytest
import tokenizers

LETTERS = ["a", "b", "c", " ", "\u2581", "1", "2", "é", "e", "\u0301", "☃", "\n", "x", "_", "日", "-"]
PATTERNS = [r"\s+", r"\d", r" ", r"a+", r"^a", r" +$", r"[ab]", r".", r"^\u2581", r"[^a]", r"\p{L}+", r"\p{M}", r"(?<=a)b", r"a|ab", r"x*"]
BEHAVIOURS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
CONTENTS = ["<s>", "</s>", "[I]", " [X]", "a", "ab", "\u2581a", "\u2581", "é", "e\u0301", "word", "1", "b b", " ", "<0x41>"]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
TEXTS = ["", " ", "  ", "a", " a", "\u2581", "1a", "a1", "é", "e\u0301x", "☃☃a☃", "\x00", "<s>a<s> a", "[I] a [I]b", "aword word a", "日日a"]


class Mixture:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def chance(self, share):
        return self.rng.random() < share

    def text(self, least, most, letters=LETTERS):
        return "".join(self.rng.choice(letters) for _ in range(self.rng.randint(least, most)))

    def pattern(self):
        return {"String": self.text(1, 2)} if self.chance(0.5) else {"Regex": self.rng.choice(PATTERNS)}

    def replace(self, pattern=None):
        if self.chance(0.4):
            return {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
        contents = ["", "\u2581", " ", "x", "ab", "\u2581\u2581", "a b", "日"]
        return {"type": "Replace", "pattern": pattern or self.pattern(), "content": self.rng.choice(contents)}

    def some(self, kinds, list_name, depth=0):
        """One of `kinds`, or a Sequence of some."""
        if depth > 1 or self.chance(0.6):
            return self.rng.choice(kinds)()
        return {"type": "Sequence", list_name: [self.some(kinds, list_name, depth + 1) for _ in range(self.rng.randint(0, 3))]}

    def normalizer(self):
        return self.some([self.replace, self.replace, lambda: {"type": "Prepend", "prepend": self.rng.choice(["\u2581", "\u2581", " ", "ab"])},
                          lambda: {"type": self.rng.choice(["NFC", "NFD"])}], "normalizers")  # fmt: skip

    def metaspace(self):
        made = {"type": "Metaspace", "replacement": self.rng.choice(["\u2581"] * 5 + ["_", "a", "é"]),
                "prepend_scheme": self.rng.choice(["first", "always", "never"]), "split": self.chance(0.5)}  # fmt: skip
        if self.chance(0.3):
            made["add_prefix_space"] = made["prepend_scheme"] != "never"
        for field in ("prepend_scheme", "split"):
            if self.chance(0.1):
                made.pop(field)
        return made

    def split(self):
        behaviour = self.rng.choice(BEHAVIOURS)
        return {"type": "Split", "pattern": self.pattern(), "behavior": behaviour, "invert": self.chance(0.2)}

    def pre_tokenizer(self):
        digits = lambda: {"type": "Digits", "individual_digits": self.chance(0.5)}
        made = self.some([self.metaspace, self.metaspace, self.split, digits], "pretokenizers")
        return {"type": "Sequence", "pretokenizers": [made, BYTE_LEVEL]} if self.chance(0.15) else made

    def decoder(self):
        strip = lambda: {"type": "Strip", "content": self.rng.choice([" ", "a"]), "start": self.rng.randint(0, 2), "stop": 0}
        literal = lambda: self.replace({"String": self.text(1, 2)})
        return self.some([literal, lambda: {"type": "ByteFallback"}, lambda: {"type": "Fuse"}, strip, self.metaspace], "decoders")

    def model(self):
        tokens, merges = ["<unk>"] * self.chance(0.8) + [letter for letter in LETTERS if self.chance(0.8)], []
        tokens += [f"<0x{byte:02X}>" for byte in range(256) if self.chance(0.97)] * self.chance(0.8) + ["<0x+A>"] * self.chance(0.1)
        tokens = list(dict.fromkeys(tokens))
        for _ in range(self.rng.randint(0, 25)):
            left, right = self.rng.choice(tokens), self.rng.choice(tokens)
            if " " not in left + right and not left.startswith("<") and not right.startswith("<"):
                merges.append([left, right])
                tokens = list(dict.fromkeys([*tokens, left + right]))
        unknown = "<unk>" if "<unk>" in tokens and self.chance(0.8) else None
        return {"type": "BPE", "unk_token": unknown, "fuse_unk": self.chance(0.5), "byte_fallback": self.chance(0.6),
                "ignore_merges": self.chance(0.2), "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}  # fmt: skip

    def added(self):
        contents = self.rng.sample(CONTENTS, self.rng.randint(0, 5))
        flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
        return [{"id": 1000 + i, "content": content, **{flag: self.chance(0.3) for flag in flags}} for i, content in enumerate(contents)]

    def file(self):
        made = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": self.added(), "post_processor": None,
                "normalizer": self.normalizer() if self.chance(0.5) else None,
                "pre_tokenizer": self.pre_tokenizer() if self.chance(0.8) else None, "decoder": self.decoder(), "model": self.model()}  # fmt: skip
        if "ByteLevel" in json.dumps(made["pre_tokenizer"]):
            made["decoder"] = {"type": "Sequence", "decoders": [BYTE_LEVEL, made["decoder"]]}
        return made


def asked(call, *arguments, **options):
    """What the library answers; None where it refuses, or panics."""
    try:
        return call(*arguments, **options)
    except BaseException:
        return None


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 8))])
def test_what_is_accepted_gives_the_ids_and_the_text_of_tokenizers(probe, tmp_path, seed, capfd):
    mixture, compared = Mixture(seed), 0
    for _ in range(600):
        text = json.dumps(mixture.file())
        (tmp_path / "tokenizer.json").write_text(text)
        if "error" in probe.ask(load=str(tmp_path)):
            continue
        reference = asked(tokenizers.Tokenizer.from_str, text)
        if reference is None:
            continue
        compared += 1
        for sample in TEXTS + [mixture.text(1, 12, LETTERS + CONTENTS) for _ in range(10)]:
            expected, got = asked(reference.encode, sample), probe.ask(encode=sample)
            if expected is not None and "ids" in got:
                assert got["ids"] == expected.ids, (sample, text)
        for _ in range(20):
            ids, skip = [mixture.rng.randrange(reference.get_vocab_size() + 2) for _ in range(mixture.rng.randint(0, 8))], mixture.chance(0.5)
            expected = asked(reference.decode, ids, skip_special_tokens=skip)
            if expected is not None:
                assert probe.value("text", decode=ids, skip=skip) == expected, (ids, skip, text)
    assert compared > 300, compared
    capfd.readouterr()  # Rust prints its panics
