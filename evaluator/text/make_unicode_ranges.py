"""Writes unicode_ranges.cpp: what the `tokenizers` library knows about each code point.

Run with the project's virtual environment: python make_unicode_ranges.py > unicode_ranges.cpp
The general categories are asked of tokenizers' own regular expressions (Oniguruma, Unicode 16), since those cut the text
that our tokenizer must cut in the same way. "Inert" code points are those that its normaliser (older than Unicode 10) leaves
where they stand although Unicode 16 gives them a decomposition or a combining class.
tests/parity/text/test_unicode.py checks the committed file against the library, code point by code point.
"""

import ctypes
import ctypes.util
import sys

from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
# One mark of each combining class from 1 to 240, in order: a mark behind them moves before those of a higher class.
LADDER = "q" + "".join(map(chr, [
    0x334, 0x93C, 0x3099, 0x94D, 0x5B0, 0x64B, 0xC55, 0xE38, 0xF71, 0x321, 0x1DCE, 0x31B, 0x302A, 0x316, 0x1D16D, 0x301,
    0x315, 0x35C, 0x35D, 0x345]))  # fmt: skip


def library_categories():
    """{code point: index in CATEGORIES}, by tokenizers."""
    text = "".join(map(chr, CODE_POINTS))
    result = dict.fromkeys(range(0xD800, 0xE000), CATEGORIES.index("Cs"))
    for index, name in enumerate(CATEGORIES):
        if name != "Cs":
            for piece, _ in pre_tokenizers.Split(Regex(rf"\p{{{name}}}"), "removed", invert=True).pre_tokenize_str(text):
                result[ord(piece)] = index
    return [result[c] for c in range(0x110000)]


def inert_code_points(categories):
    """Those that utf8proc would move, decompose or compose (or a newer one will), and tokenizers does not."""
    utf8proc = ctypes.CDLL(ctypes.util.find_library("utf8proc"))
    utf8proc.utf8proc_NFD.restype = ctypes.c_void_p
    libc = ctypes.CDLL(None)

    def their_nfd(text):
        pointer = utf8proc.utf8proc_NFD(text.encode())
        value = ctypes.string_at(pointer).decode()
        libc.free(ctypes.c_void_p(pointer))
        return value

    our_nfd = normalizers.NFD().normalize_str
    unassigned, found = CATEGORIES.index("Cn"), {0x11930}  # the second half of U+11938 (Unicode 13)
    for c in CODE_POINTS[1:]:
        if categories[c] == unassigned:
            continue
        if utf8proc.utf8proc_category(c) == 0 or their_nfd(LADDER + chr(c)) != our_nfd(LADDER + chr(c)):
            found.add(c)
    return found


def main():
    categories = library_categories()
    inert = sorted(inert_code_points(categories))
    starts = [(0, categories[0])]
    starts += [(c, categories[c]) for c in range(1, 0x110000) if categories[c] != categories[c - 1]]
    ranges = []
    for c in inert:
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    out = sys.stdout
    out.write("// Written by make_unicode_ranges.py; do not edit.\n// clang-format off\n")
    out.write('#include "evaluator/text/unicode_ranges.h"\n\nnamespace evalcar::text {\n\n')

    def rows(items, per_row):
        for i in range(0, len(items), per_row):
            out.write("    " + " ".join(items[i : i + per_row]) + "\n")

    out.write("const CategoryRange kCategoryRanges[] = {\n")
    rows([f"{{0x{start:x}, {category}}}," for start, category in starts], 8)
    out.write("};\nconst std::size_t kCategoryRangeCount = sizeof(kCategoryRanges) / sizeof(kCategoryRanges[0]);\n\n")
    out.write("const InertRange kInertRanges[] = {\n")
    rows([f"{{0x{first:x}, 0x{last:x}}}," for first, last in ranges], 6)
    out.write("};\nconst std::size_t kInertRangeCount = sizeof(kInertRanges) / sizeof(kInertRanges[0]);\n\n")
    out.write("}  // namespace evalcar::text\n")


if __name__ == "__main__":
    main()
