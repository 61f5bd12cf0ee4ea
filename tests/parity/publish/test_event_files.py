"""Our event files, read by TensorBoard itself."""

import json
import struct
import subprocess

import numpy
import pytest


@pytest.fixture
def write(bin_dir, tmp_path):
    def write(events, name="events.out.tfevents.1.evalcar"):
        (tmp_path / "spec.json").write_text(json.dumps(events))
        path = tmp_path / "tensorboard" / name
        subprocess.run([bin_dir / "publish_probe", "events", path, tmp_path / "spec.json"], check=True)
        return path

    return write


EVENTS = [
    {"time": 1795251600.25, "step": 500, "values": {"eval/docvqa_val/anls": 0.712, "eval/docvqa_val/anls_stderr": 0.006}},
    {"time": 1795251700.5, "step": 500, "values": {"eval_ema/docvqa_val/anls": 0.1}},
    {"time": 1795251800.75, "step": 1000, "values": {"eval/docvqa_val/anls": -1e-30, "eval/ä b/x,strict": 3e38}},
    {"time": 1795251900.0, "step": 2**40, "values": {"eval/docvqa_val/anls": 1.0}},
    {"time": 1795252000.0, "step": 2000, "values": {"eval/t/m": 0.5}, "texts": {"eval/results": "|a|b|\n|-|-|\n|1|ä|\n" * 20}},
]


def test_tensorboard_reads_every_value_at_its_step_and_time(write):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    path = write(EVENTS)
    accumulator = EventAccumulator(str(path.parent))
    accumulator.Reload()

    found = {
        (tag, event.step): (event.wall_time, event.value)
        for tag in accumulator.Tags()["scalars"]
        for event in accumulator.Scalars(tag)
    }
    wanted = {
        (tag, event["step"]): (event["time"], float(numpy.float32(value)))
        for event in EVENTS
        for tag, value in event["values"].items()
    }
    assert found == wanted


def test_tensorboard_shows_the_table_as_text(write):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.text import metadata
    from tensorboard.util import tensor_util

    accumulator = EventAccumulator(str(write(EVENTS).parent))
    accumulator.Reload()

    assert accumulator.Tags()["tensors"] == ["eval/results"]
    assert accumulator.SummaryMetadata("eval/results").plugin_data.plugin_name == metadata.PLUGIN_NAME
    (event,) = accumulator.Tensors("eval/results")
    assert event.step == 2000
    assert tensor_util.make_ndarray(event.tensor_proto)[0].decode() == EVENTS[-1]["texts"]["eval/results"]


def test_writing_again_and_after_a_torn_tail_adds_nothing_twice(write):
    path = write(EVENTS)
    whole = path.read_bytes()
    write(EVENTS)
    assert path.read_bytes() == whole
    path.write_bytes(whole[:-7])
    write(EVENTS)
    assert path.read_bytes() == whole


def test_our_bytes_are_those_that_tensorboards_own_writer_makes(write, tmp_path):
    """The same events as protocol buffers by TensorBoard's writer: equal record by record, checksums included."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.summary_pb2 import SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.compat.proto import summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    def text(tag, content):
        tensor = TensorProto(dtype=DT_STRING, tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]), string_val=[content.encode()])
        plugin = SummaryMetadata.PluginData(plugin_name="text")
        metadata = SummaryMetadata(plugin_data=plugin, data_class=summary_pb2.DATA_CLASS_TENSOR)
        return Summary(value=[Summary.Value(tag=tag, tensor=tensor, metadata=metadata)])

    ours = write(EVENTS).read_bytes()
    reference = tmp_path / "reference"
    with open(reference, "wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=EVENTS[0]["time"], file_version="brain.Event:2").SerializeToString())
        for event in EVENTS:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in sorted(event["values"].items())]
            values += [text(tag, content).value[0] for tag, content in event.get("texts", {}).items()]
            message = Event(wall_time=event["time"], step=event["step"], summary=Summary(value=values))
            writer.write(message.SerializeToString(deterministic=True))
        writer.flush()
    assert struct.unpack("<Q", ours[:8])[0] > 0
    assert ours == reference.read_bytes()
