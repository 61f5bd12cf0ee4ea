"""Writes the demo's validation sets: the pictures of `pictures.py` in the real columns and Parquet form of DocVQA (docvqa_val),
TextVQA (textvqa_val) and MMMU (mmmu_val), laid out as `hf download --local-dir DIR/lmms-lab/<name>` leaves them.

    python validation_sets.py DIR [--count N]
"""

import argparse
import io
import pathlib

import numpy
import pictures
from PIL import Image

SUBJECTS = [
    "Accounting", "Agriculture", "Architecture_and_Engineering", "Art", "Art_Theory", "Basic_Medical_Science", "Biology",
    "Chemistry", "Clinical_Medicine", "Computer_Science", "Design", "Diagnostics_and_Laboratory_Medicine", "Economics",
    "Electronics", "Energy_and_Power", "Finance", "Geography", "History", "Literature", "Manage", "Marketing", "Materials",
    "Math", "Mechanical_Engineering", "Music", "Pharmacy", "Physics", "Psychology", "Public_Health", "Sociology",
]  # fmt: skip


def encoded(pixels, kind, **options):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


def docvqa_rows(count, rng):
    """Two questions a picture, its colour and its kind."""
    rows = []
    for document in range((count + 1) // 2):
        scene = pictures.random_scene(rng)
        image = {"bytes": encoded(pictures.draw(scene, rng), "PNG"), "path": f"document_{document}.png"}
        for question in pictures.docvqa_questions(scene):
            rows.append({
                "questionId": str(49000 + len(rows)), "question": question.text, "question_types": ["figure/diagram"],
                "image": image, "docId": 14000 + document, "ucsf_document_id": f"demo{document:04d}",
                "ucsf_document_page_no": "1", "answers": [question.answer], "data_split": "val",
            })  # fmt: skip
    return rows[:count]


def textvqa_rows(count, rng):
    rows = []
    for i in range(count):
        scene = pictures.random_scene(rng)
        question = pictures.textvqa_question(scene)
        rows.append({
            "image_id": f"{i:016x}", "question_id": 34602 + i, "question": question.text,
            "question_tokens": question.text.rstrip("?").split(),
            "image": {"bytes": encoded(pictures.draw(scene, rng), "JPEG", quality=95), "path": f"{i:016x}.jpg"},
            "image_width": pictures.SIZE, "image_height": pictures.SIZE, "flickr_original_url": "", "flickr_300k_url": "",
            "answers": [question.answer] * 9 + [str(scene.count)], "image_classes": [scene.shape.capitalize()],
            "set_name": "val", "ocr_tokens": [],
        })  # fmt: skip
    return rows


def mmmu_rows(count, rng):
    rows = []
    for i in range(count):
        scene = pictures.random_scene(rng)
        question = pictures.mmmu_question(scene)
        rows.append({
            "id": f"validation_{SUBJECTS[i % len(SUBJECTS)]}_{1 + i // len(SUBJECTS)}",
            "question": question.text, "options": repr(list(question.options)), "explanation": "",
            **{f"image_{k}": None for k in range(2, 8)},
            "image_1": {"bytes": encoded(pictures.draw(scene, rng), "PNG"), "path": "image_1.png"},
            "img_type": "['Diagrams']", "answer": question.answer, "topic_difficulty": "Easy",
            "question_type": "multiple-choice", "subfield": "Shapes",
        })  # fmt: skip
    return rows


def write_all(root, count, seed=20):
    """The three sets, `count` questions each, under `root`."""
    from datasets import Features, Value
    from datasets import Image as Picture
    from datasets import Sequence as List

    text, image, texts = Value("string"), Picture(), List(Value("string"))
    sets = {
        ("DocVQA", "DocVQA", "DocVQA"): (docvqa_rows, {
            "questionId": text, "question": text, "question_types": texts, "image": image, "docId": Value("int64"),
            "ucsf_document_id": text, "ucsf_document_page_no": text, "answers": texts, "data_split": text}),
        ("textvqa", "default", "data"): (textvqa_rows, {
            "image_id": text, "question_id": Value("int32"), "question": text, "question_tokens": texts, "image": image,
            "image_width": Value("int32"), "image_height": Value("int32"), "flickr_original_url": text,
            "flickr_300k_url": text, "answers": texts, "image_classes": texts, "set_name": text, "ocr_tokens": texts}),
        ("MMMU", "default", "data"): (mmmu_rows, {
            "id": text, "question": text, "options": text, "explanation": text,
            **{f"image_{k}": image for k in range(1, 8)}, "img_type": text, "answer": text, "topic_difficulty": text,
            "question_type": text, "subfield": text}),
    }  # fmt: skip
    for (name, config, data_dir), (make_rows, columns) in sets.items():
        rows = make_rows(count, numpy.random.default_rng([seed, *name.encode()]))
        write_set(pathlib.Path(root) / "lmms-lab" / name, config, data_dir, rows, Features(columns))


def write_set(folder, config, data_dir, rows, features):
    from datasets import Dataset

    (folder / data_dir).mkdir(parents=True, exist_ok=True)
    Dataset.from_list(rows, features=features).to_parquet(folder / data_dir / "validation-00000-of-00001.parquet")
    (folder / "README.md").write_text(
        f"---\nconfigs:\n- config_name: {config}\n  data_files:\n  - split: validation\n    path: {data_dir}/validation-*\n---\n"
        "\n# Made by evalcar's demo\n"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=90, help="questions a set")
    arguments = parser.parse_args()
    write_all(arguments.root, arguments.count)
