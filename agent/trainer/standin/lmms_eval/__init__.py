"""Stands in for lmms-eval on a trainer's machine, so that lmms-engine can submit to evalcar without installing anything:

    PYTHONPATH=.../agent/trainer/standin  EVALCAR_TOKEN_FILE=/path/to/token  <your training command>

Only what lmms-engine imports is here. Where the real lmms-eval is installed it is hidden by this, for this process alone."""

__version__ = "0.7.3+evalcar"
