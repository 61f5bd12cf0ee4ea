"""How fast pictures become model input: ours against qwen_vl_utils + transformers' fast processor, one thread, one run.

    build/venv/bin/python tests/bench/preprocess_bench.py [--bin-dir build/dev/bin]

Prints, for each size, the least time of several repeats of (a) the way from RGB pixels to patches, (b) decoding, and the
ratios. The reference writes a patch in each of the frames that a still picture has for it, ours once. Never a timed test: the
numbers are for reading.
"""

import argparse
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
from PIL import Image
from qwen_vl_utils import process_vision_info
from transformers import AutoImageProcessor

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]
from fixtures import pictures  # noqa: E402

# (width, height, what)
SIZES = [
    (448, 448, "448 x 448: no resize"),
    (1288, 1232, "1.6 Mpixel: no resize"),
    (450, 450, "450 x 450: Pillow's resize"),
    (1275, 1250, "1.6 Mpixel: Pillow's resize"),
    (300, 200, "300 x 200: both, growing"),
    (1700, 2200, "3.7 Mpixel scan: both, shrinking"),
]
LIMITS = (200704, 1605632)


def least_seconds(work, repeats):
    work()
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def main(arguments=None):
    source = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", type=pathlib.Path, default=source / "build" / "dev" / "bin")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    probe = subprocess.Popen([options.bin_dir / "vision_probe"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(*words):
        probe.stdin.write("\t".join(str(w) for w in words) + "\n")
        probe.stdin.flush()
        answer = probe.stdout.readline().split()
        assert answer[0] == "ok", answer
        return [float(word) * 1e-6 for word in answer[1:]]

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl"}))
        (folder / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": "Qwen2VLImageProcessor"}))
        processor = AutoImageProcessor.from_pretrained(folder, min_pixels=LIMITS[0], max_pixels=LIMITS[1])
        print(f"{'RGB pixels -> patches':36}{'reference':>12}{'ours':>12}{'ratio':>8}   (its processor alone: ratio)")
        for width, height, what in SIZES:
            array = pictures.pixels(width, height)
            image = Image.fromarray(array)
            message = [[{"role": "user", "content": [{"type": "image", "image": image}]}]]
            array.tofile(folder / "in")
            resize, write = ask("time", folder / "in", width, height, folder, *LIMITS, options.repeats)
            whole = least_seconds(lambda: processor(images=process_vision_info(message)[0], return_tensors="pt"), options.repeats)
            resized = process_vision_info(message)[0]
            alone = least_seconds(lambda: processor(images=resized, return_tensors="pt"), options.repeats)
            ours = resize + write
            print(f"{what:36}{whole * 1e3:9.2f} ms{ours * 1e3:9.2f} ms{whole / ours:8.1f}   ({alone * 1e3:.2f} ms: {alone / ours:.1f}; resize {resize * 1e3:.2f}, patches {write * 1e3:.2f})")
        print(f"\n{'decoding':36}{'Pillow':>12}{'ours':>12}{'ratio':>8}")
        for kind, extra in (("JPEG", {"quality": 90}), ("PNG", {}), ("WEBP", {"quality": 90})):
            data = pictures.save(pictures.picture("RGB", (1275, 1250)), kind, **extra)
            (folder / "file").write_bytes(data)
            (ours,) = ask("time_decode", folder / "file", options.repeats)
            pillow = least_seconds(lambda: Image.open(io.BytesIO(data)).convert("RGB"), options.repeats)
            print(f"{kind + ', 1.6 Mpixel':36}{pillow * 1e3:9.2f} ms{ours * 1e3:9.2f} ms{pillow / ours:8.1f}")
        print(f"\n{'JPEG file -> prepared pixels':36}{'made':>12}{'kept':>12}{'ratio':>8}   (kept: out of the page cache, compared with what was made)")
        for width, height, what in SIZES:
            (folder / "file").write_bytes(pictures.save(pictures.picture("RGB", (width, height)), "JPEG", quality=90))
            made, kept = ask("time_kept", folder / "file", folder, *LIMITS, folder / "pictures", options.repeats)
            print(f"{what:36}{made * 1e3:9.2f} ms{kept * 1e3:9.2f} ms{made / kept:8.1f}")
    probe.stdin.close()
    probe.wait(timeout=10)


if __name__ == "__main__":
    main()
