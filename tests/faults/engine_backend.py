"""lmms-engine's EvalServerBackend against the URL that is given; and somebody without a token."""

import sys
import time
import urllib.error
import urllib.request

from lmms_engine.eval.backends import EvalServerBackend

url, bare, folder = sys.argv[1:]
for _ in range(600):
    try:
        urllib.request.urlopen(bare + "/health", timeout=5)
    except urllib.error.HTTPError as error:
        print("stranger", error.code, flush=True)
        break
    except OSError:
        time.sleep(0.1)
backend = EvalServerBackend(url, 0.2, {"model": "vllm", "tasks": ["docvqa_val"], "model_args": {}})
backend.submit_eval(folder, 5, folder + "/eval", checkpoint_type="regular")
while backend.pending_evals:
    for _, metrics in backend.check_and_get_completed():
        print("metrics", *metrics, flush=True)
    time.sleep(0.2)
