"""Vocabularies of SentencePiece's kind (Llama 2, Mistral, Gemma) give the ids and the text of Hugging Face's tokenizers."""

import json

import pytest
import sentencepiece_tokenizer
import tokenizers
from test_text_tokenizer import same_ids_and_text
from text_corpus import CODE, PROSE, make_corpus
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPACE = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
NAMED = ["<unk>", "<s>", "</s>"]
# Characters that the vocabulary has none of, bytes that are no UTF-8, names that only look like bytes, spaces of every kind.
TEXTS = ["", " ", "  ", "a", " a", "a ", f"{SPACE}a", f" {SPACE} a", "x\n\ny\t z", "\u00a0x\u3000y", "日本語 テスト", "👩‍👩‍👧‍👦 family", "é\u0301e\u0301", "<0x0A>",
         "<0x0a><0xZZ>", "<unk>", "a<s>b", "<s> a </s> b", "<s>", "[INST] hi [/INST] a<s>[INST]b", "  a\n  b", "\x00\x01", "\ufeffbom", "ÿþ"]  # fmt: skip
SPECIAL = [*NAMED, "[INST]", " [/INST]", "<left>", "<right>", "word"]


def trained(alphabet=BYTES, vocab_size=1500, limit=90, **options):
    """A vocabulary whose tokens begin with the visible space, and its merges; bytes by name in `alphabet`."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False, special_tokens=NAMED, limit_alphabet=limit)
    tokenizer.train_from_iterator(PROSE + CODE * 3, trainer)
    made = json.loads(tokenizer.to_str())["model"]
    vocab = {token: i for i, token in enumerate([*NAMED, *alphabet])}
    for token in sorted(made["vocab"], key=made["vocab"].get):
        vocab.setdefault(token, len(vocab))
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in made["merges"]]
    return Tokenizer(models.BPE(vocab, merges, **{"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, **options}))


def text_of_bytes(strip=True):
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * strip)


def llama_of_4x(**options):
    """As converted by transformers 4 (legacy): a space before each stretch of text."""
    made = trained(**options)
    made.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    made.decoder = text_of_bytes()
    return made


def metaspace(scheme, split, decoder=None, **options):
    made = trained(**options)
    made.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, scheme, split)
    made.decoder = decoder or text_of_bytes()
    return made


def llama_of_5x():
    return metaspace("first", False)


def mistral_never():
    return metaspace("never", False, text_of_bytes(strip=False))


def metaspace_always():
    return metaspace("always", True, decoders.Metaspace(SPACE, "always", True))


def metaspace_first_split():
    return metaspace("first", True, decoders.Metaspace(SPACE, "first", True))


def metaspace_never_split():
    return metaspace("never", True, decoders.Metaspace(SPACE, "never", True))


def gemma():
    made = trained()
    made.normalizer = normalizers.Replace(" ", SPACE)
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = text_of_bytes(strip=False)
    return made


def without_bytes():
    return llama_of_4x(alphabet=[], byte_fallback=False)


def without_bytes_one_unknown_each():
    return llama_of_4x(alphabet=[], byte_fallback=False, fuse_unk=False)


def with_some_bytes():
    """What has no bytes is unknown, and comes behind the bytes that follow it."""
    return llama_of_4x(alphabet=[name for name in BYTES if name < "<0xC0>" or name > "<0xE7>"], limit=40)


def with_some_bytes_one_unknown_each():
    return llama_of_4x(alphabet=[name for name in BYTES if name < "<0xC0>" or name > "<0xE7>"], limit=40, fuse_unk=False)


def whole_words():
    return metaspace("always", True, ignore_merges=True)


def first_behind_what_is_cut_off():
    """Only what begins the text has the space before it, and not where something that begins it is cut off."""
    made = trained()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"^[\sx]+|\d"), "removed"), pre_tokenizers.Metaspace(SPACE, "first", False)]
    )
    made.decoder = text_of_bytes()
    return made


def patterns_replaced():
    made = trained()
    made.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.Replace(Regex(r"\p{M}+|[ \n]{2,}"), ""), normalizers.Replace(Regex(r"\d"), "0"),
         normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])  # fmt: skip
    made.decoder = text_of_bytes()
    return made


MADE = [llama_of_4x, llama_of_5x, mistral_never, metaspace_always, metaspace_first_split, metaspace_never_split, gemma, without_bytes,
        without_bytes_one_unknown_each, with_some_bytes, with_some_bytes_one_unknown_each, whole_words, first_behind_what_is_cut_off,
        patterns_replaced]  # fmt: skip


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_ids_and_text_equal_those_of_tokenizers(probe, tmp_path, make):
    reference = make()
    reference.add_special_tokens(NAMED)
    reference.add_tokens(["[INST]", AddedToken(" [/INST]", normalized=False), AddedToken("<left>", lstrip=True),
                          AddedToken("<right>", rstrip=True), AddedToken("word", single_word=True)])  # fmt: skip
    reference.save(str(tmp_path / "tokenizer.json"))
    reference = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    probe.value("ok", load=str(tmp_path))
    same_ids_and_text(probe, reference, TEXTS + make_corpus(probe.ask(categories=True), SPECIAL, 1200, seed=7))


@pytest.mark.parametrize("legacy", [True, False])
def test_what_transformers_makes_of_a_sentencepiece_model(probe, tmp_path, legacy):
    """Of the tokenizer that wrote the folder, which is the one that training used. transformers 5 does not save `legacy`: where it was
    true, what it makes of the folder it wrote has other ids."""
    reference = sentencepiece_tokenizer.write_tokenizer(tmp_path, legacy=legacy)
    probe.value("ok", load=str(tmp_path))
    chat = ["<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nWhat is it? [/INST] A cat. </s><s>[INST] And now? [/INST]"]
    for text in TEXTS + chat + make_corpus(probe.ask(categories=True), SPECIAL, 800, seed=11):
        ids = reference(text).input_ids
        assert probe.value("ids", encode=text) == ids, repr(text)
        for skip in (True, False):
            assert probe.value("text", decode=ids, skip=skip) == reference.decode(ids, skip_special_tokens=skip), repr(text)
        answer = ids[len(ids) // 2 :]  # begins in the middle of a word
        assert probe.value("text", decode=answer, skip=True) == reference.decode(answer, skip_special_tokens=True), repr(text)
    info = probe.ask(info=True)
    assert (info["eos"], info["pad"], info["size"]) == (reference.eos_token_id, reference.pad_token_id, len(reference))


def test_its_own_tokens_around_a_text(probe, tmp_path):
    made = llama_of_4x()
    made.add_special_tokens(NAMED)
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    made.save(str(tmp_path / "tokenizer.json"))
    probe.value("ok", load=str(tmp_path))
    for text in TEXTS:
        assert probe.value("ids", encode=text) == made.encode(text).ids
