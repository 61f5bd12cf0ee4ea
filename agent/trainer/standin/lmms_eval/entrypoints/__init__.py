from lmms_eval.entrypoints.client import AsyncEvalClient, EvalClient

__all__ = ["AsyncEvalClient", "EvalClient"]
