"""The demo's world: pictures of coloured shapes, and one-word questions about them.

A picture has one to four shapes of one kind and one colour, each in a cell of a 2x2 grid, on a pale, noisy ground. The
questions ask for the colour, the kind or the number, in the words and the prompt form of one of three validation sets
(`docvqa_val`, `textvqa_val`, `mmmu_val`), so that a model trained on them can be measured with those tasks.
"""

import dataclasses

import numpy
from PIL import Image, ImageDraw

SIZE = 112  # pixels a side: 4x4 image tokens of 28 pixels
COLOURS = {
    "red": (208, 32, 32), "green": (32, 150, 48), "blue": (32, 64, 208), "yellow": (232, 208, 24),
    "black": (24, 24, 24), "purple": (144, 40, 168),
}  # fmt: skip
SHAPES = ["circle", "square", "triangle", "cross"]
NUMBERS = ["one", "two", "three", "four"]
SHORT = "\nAnswer the question using a single word or phrase."
LETTER = "\n\nAnswer with the option's letter from the given choices directly."


@dataclasses.dataclass(frozen=True)
class Scene:
    colour: str
    shape: str
    count: int  # 1..4


@dataclasses.dataclass(frozen=True)
class Question:
    text: str  # as the data set has it
    answer: str  # what the model shall say
    options: tuple = ()  # of a multiple-choice question; the answer is then a letter


def random_scene(rng):
    return Scene(rng.choice(list(COLOURS)).item(), rng.choice(SHAPES).item(), int(rng.integers(1, 5)))


def draw(scene, rng):
    """The scene as a (112, 112, 3) uint8 array; place, size and ground vary."""
    ground = rng.integers(200, 256, 3)
    picture = Image.new("RGB", (SIZE, SIZE), tuple(int(c) for c in ground))
    pen = ImageDraw.Draw(picture)
    colour = COLOURS[scene.colour]
    cell = SIZE // 2
    for place in rng.choice(4, scene.count, replace=False):
        radius = int(rng.integers(17, 24))
        x = int(place) % 2 * cell + cell // 2 + int(rng.integers(radius - 27, 28 - radius))
        y = int(place) // 2 * cell + cell // 2 + int(rng.integers(radius - 27, 28 - radius))
        _draw_shape(pen, scene.shape, x, y, radius, colour)
    pixels = numpy.asarray(picture, dtype=numpy.int16) + rng.integers(-8, 9, (SIZE, SIZE, 3))
    return pixels.clip(0, 255).astype(numpy.uint8)


def _draw_shape(pen, shape, x, y, r, colour):
    if shape == "circle":
        pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    elif shape == "square":
        pen.rectangle((x - r, y - r, x + r, y + r), fill=colour)
    elif shape == "triangle":
        pen.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill=colour)
    else:
        w = max(4, r // 3)
        pen.rectangle((x - r, y - w, x + r, y + w), fill=colour)
        pen.rectangle((x - w, y - r, x + w, y + r), fill=colour)


def docvqa_questions(scene):
    return [
        Question("What is the colour of the shapes?", scene.colour),
        Question("What is the kind of the shapes?", scene.shape),
    ]


def textvqa_question(scene):
    return Question("how many shapes are there?", NUMBERS[scene.count - 1])


def mmmu_question(scene):
    return Question("<image 1> Which kind of shape is this?", "ABCD"[SHAPES.index(scene.shape)], tuple(SHAPES))


def random_question(scene, rng):
    """(task, question): each task equally often."""
    questions = {
        "docvqa_val": docvqa_questions(scene)[rng.integers(2)],
        "textvqa_val": textvqa_question(scene),
        "mmmu_val": mmmu_question(scene),
    }
    task = list(questions)[rng.integers(3)]
    return task, questions[task]


def prompt(task, question):
    """The user's text after the picture, exactly as lmms-eval 0.7.3 builds it for the task."""
    if task == "docvqa_val":
        return question.text + SHORT
    if task == "textvqa_val":
        return question.text.capitalize() + SHORT
    choices = "\n".join(f"{letter}. {option}" for letter, option in zip("ABCDEFG", question.options))
    return f"{question.text}\n{choices}{LETTER}".removeprefix("<image 1>").strip()

