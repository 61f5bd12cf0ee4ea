"""Strings that tokenizers disagree on if anything is wrong: 5,000 by default, the same for the same seed."""

import random

CODE = [
    "def f(x):\n\treturn x**2  # squared\n\n\nclass A:\n    pass\n",
    "for (int i = 0; i < 10; ++i) {\n\tstd::cout << v[i] << '\\n';\n}\n",
    "SELECT a.id, COUNT(*) FROM t AS a WHERE x >= 3.14159 GROUP BY 1;",
    "<div class=\"x\">&nbsp;it's</div><!-- they'll, we've, I'M, YOU'RE, he'd -->",
    "x=1234567890;y=0xDEADBEEF;z=1e-10\r\n\r\n  \r\nif(x==y){}",
    "https://example.org/a/b?c=d&e=%20f#g  user@example.org",
    "\\frac{a}{b} + \\sum_{i=0}^{n} x_i^2 \\leq \\infty $100.00",
]
PROSE = [
    "The quick brown fox jumps over the lazy dog. It's 3 o'clock; they'll've left.",
    "Élève à l’école, naïve façade, Straße, ĲSSELMEER, ﬁnal, Ångström, cafe\u0301, e\u0301\u0323\u0316",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. 1234",
    "我能吞下玻璃而不伤身体。今天是2024年5月17日，星期五！価格は１２３４円です。",
    "いろはにほへと ちりぬるを カタカナ ｶﾀｶﾅ 한국어 텍스트입니다. 각\u1100\u1161\u11a8",
    "في البدء كان الكلمة ١٢٣٤ וְהָאָרֶץ הָיְתָה תֹהוּ देवनागरी लिपि में हिन्दी १२३ ไทยแลนด์ ๑๒๓",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ☺️ 1️⃣ 🤷🏿‍♀️ e\u0301 ñ n\u0303 Å A\u030a \u212b ﬀ ℵ ½ Ⅷ ² ³",
    "don't DON'T Don'ſ 'S 'ſ 'LL 'Ve 'rE 'd'D ' s ''t '\u017f\u017f I'M\u017f",
]
SPACES = ["\u00a0", "\u1680", "\u180e", "\u2003", "\u2028", "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff", "\x85", "\x0b",
          "\x0c", "\x1c", "\t", "\r", "\n", "\r\n", " ", "  ", "   ", "\n\n", " \n ", "\x00", "\x7f"]  # fmt: skip


def _random_code_points(rng, ranges, count):
    result = []
    for _ in range(count):
        first, last = rng.choice(ranges)
        result.append(chr(rng.randint(first, last)))
    return "".join(result)


def make_corpus(classes, specials, count=5000, seed=20):
    """classes: {"letters": [[first, last], …], …} of Unicode 16, from which random text is drawn: half of it from ranges that
    are new (small ranges are as likely as large ones, so that rare scripts come up). specials: tokens to strew in."""
    rng = random.Random(seed)
    assigned = classes["letters"] + classes["numbers"] + classes["marks"]

    def word():
        kind = rng.randrange(9)
        if kind == 0:
            return "".join(rng.choice("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(rng.randint(1, 12)))
        if kind == 1:
            return str(rng.randrange(10 ** rng.randint(1, 12)))
        if kind == 2:
            return _random_code_points(rng, classes[rng.choice(["letters", "numbers", "marks"])], rng.randint(1, 6))
        if kind == 3:
            return _random_code_points(rng, [[0x21, 0x2F], [0x3A, 0x40], [0x2010, 0x2027], [0x3001, 0x303F]], rng.randint(1, 5))
        if kind == 4:
            return rng.choice(SPACES) * rng.randint(1, 4)
        if kind == 5:
            text = rng.choice(PROSE + CODE)
            begin = rng.randrange(len(text))
            return text[begin : begin + rng.randint(1, 25)]
        if kind == 6:
            base = rng.choice("aeiounAEIOUsdqक")
            return base + _random_code_points(rng, classes["marks"] + [[0x300, 0x36F]] * 60, rng.randint(1, 4))
        if kind == 7:
            return rng.choice(specials)
        return _random_code_points(rng, assigned + [[0x1F300, 0x1FAFF], [0xE000, 0xE010], [0x0, 0x1F], [0x80, 0x9F]], 3)

    corpus = ["", *CODE, *PROSE, *SPACES, *specials, *(a + b for a in specials for b in SPACES)]
    corpus += [" " * n + "x" for n in (1, 2, 3, 80, 1000)] + ["a" * 3000, "\n" * 500, "ab" * 2000 + " ", "1" * 301]
    while len(corpus) < count:
        glue = rng.choice(["", "", " ", "\n"])
        corpus.append(glue.join(word() for _ in range(rng.randint(1, 14))))
    # A lone surrogate is no text; there is none, since the classes of letters, numbers and marks have none.
    return corpus[:count]
