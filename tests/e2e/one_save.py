"""One save of a layout, with the files that torture_trainer.py writes, for tests that spoil one of them."""

import torture_trainer

LAYOUTS = torture_trainer.LAYOUTS
# Not of the weights; and trainer_state.json, by which the agent knows that a save has ended.
OTHERS = ("tokenizer", "preprocessor_config", "optimizer", "extra_state", "dataloader_state", "rng_state", "README", "zero_to_fp32", "trainer_state")


class OneSave:
    """files: {path within the checkpoint: bytes}; weights: those of them that its weights are read by; kinds: "regular", maybe "ema"."""

    def __init__(self, home, layout):
        self.base = home / "base"  # the model of an adapter
        torture_trainer.write_base(self.base)
        spec = torture_trainer.Spec(str(home), "", str(home), str(self.base), 5, [layout])
        save = getattr(torture_trainer, f"save_{layout}")(spec, 5, "a label")
        self.files = dict([file for rank in save.ranks for file in rank] + save.last)
        self.weights = [name for name in self.files if not any(part.startswith(OTHERS) for part in name.split("/"))]
        self.kinds = list(save.hashes)

    def write(self, folder):
        for name, data in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)

    def inspect(self, bin_dir, folder, *more):
        """The words of `evalcar inspect` for it."""
        return [bin_dir / "evalcar", "inspect", folder, "--json", "--model_name_or_class", self.base, *more]
