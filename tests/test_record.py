"""tests/RESULTS.md is renewed line by line, and only by runs of all of a line's tests."""

import pathlib

import junit
import record

CASE = '<testcase classname="{module}" name="{name}"><properties><property name="figures" value="{figure}"/></properties></testcase>'


def run_of(folder, modules, figure="", file="pytest.xml"):
    """A folder with the JUnit file of a run in which each module had one case."""
    folder.mkdir()
    cases = "".join(CASE.format(module=module, name="test_it", figure=figure) for module in modules)
    (folder / file).write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    return folder


def modules_of_line(source_dir, name):
    return [module for module in record.modules_of(source_dir) if record.evidence_of(pathlib.Path("pytest.xml"), module) == name]


def test_a_run_renews_its_lines_and_leaves_the_others(tmp_path, source_dir):
    layouts, averages = "Layouts: LoRA adapters, to the bits of PEFT", "Averages: the mean of the last checkpoints, whatever retention takes"
    first, _ = record.lines_of_run(
        run_of(tmp_path / "1", modules_of_line(source_dir, layouts) + modules_of_line(source_dir, averages), "3 | 4"), source_dir, "aaa", "monday"
    )
    second, _ = record.lines_of_run(run_of(tmp_path / "2", modules_of_line(source_dir, layouts), "5&#10;6"), source_dir, "bbb", "friday")
    record_of_first = record.read(record.written(first, "a machine"))

    seen = record.read(record.written(record_of_first | second, "a machine"))

    assert {name: (line.counts, line.commit, line.started, line.figures) for name, line in seen.items()} == {
        layouts: ([1, 0, 0], "bbb", "friday", ["5\n6"]),
        averages: ([1, 0, 0], "aaa", "monday", ["3 | 4"]),
    }


def test_a_line_of_which_only_some_files_ran_is_not_renewed(tmp_path, source_dir):
    merged = "Layouts: torch.distributed.checkpoint, as DCP itself reads it"
    modules = modules_of_line(source_dir, merged)
    assert len(modules) > 1

    whole, in_part = record.lines_of_run(run_of(tmp_path / "1", modules[:1]), source_dir, "aaa", "monday")

    assert whole == {} and in_part == {merged}


def test_what_is_not_pytest_is_a_line_by_its_file(tmp_path, source_dir):
    whole, in_part = record.lines_of_run(run_of(tmp_path / "1", [""], file="full-unit_checkpoint.xml"), source_dir, "aaa", "monday")

    assert list(whole) == ["unit, at full size: checkpoint"] and in_part == set()


def suite(path, *cases):
    """As ctest and Catch2 write it; a case is (name, what it ended with)."""
    elements = {"passed": "", "failed": "<failure/>", "skipped": "<skipped/>"}
    path.write_text(f"<testsuite>{''.join(f'<testcase name={name!r}>{elements[end]}</testcase>' for name, end in cases)}</testsuite>")


def test_the_cases_of_whole_programs_count_one_by_one_and_none_goes_unseen(tmp_path):
    suite(tmp_path / "unit.xml", ("a", "passed"))
    suite(tmp_path / "programs.xml", ("good", "passed"), ("bad", "failed"), ("killed", "failed"), ("torn", "passed"), ("none", "passed"),
          ("away", "skipped"))  # fmt: skip
    suite(tmp_path / "good.xml", ("b", "passed"), ("c", "skipped"))
    suite(tmp_path / "bad.xml", ("d", "passed"), ("e", "failed"))
    suite(tmp_path / "killed.xml", ("f", "passed"))
    (tmp_path / "torn.xml").write_text("<testsuite><testcase name='g'>")
    suite(tmp_path / "away.xml", ("h", "skipped"))

    junit.whole(tmp_path / "unit.xml", tmp_path / "programs.xml", tmp_path)

    seen = {name: state for _, name, state in junit.cases(tmp_path / "unit.xml")}
    assert seen == {"a": "passed", "b": "passed", "c": "skipped", "d": "passed", "e": "failed", "f": "passed", "killed": "failed",
                    "torn": "failed", "none": "failed", "h": "skipped"}  # fmt: skip
