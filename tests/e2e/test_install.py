"""`cmake --install --prefix P` gives programs that need nothing of the source or build tree."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from fixtures import data_sets, small_models

SYSTEM_FOLDERS = ("/lib", "/usr/lib", "/usr/local/lib")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def install(build, prefix, **environment):
    return run("cmake", "--install", build, "--prefix", prefix, env={**os.environ, **environment})


def run_paths(program):
    """The folders that the program itself names for the loader."""
    found = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", run("readelf", "-d", program))
    return [folder for entry in found for folder in entry.split(":")]


def libraries(program):
    """Where the loader finds what the program needs."""
    output = run("ldd", program, env={"PATH": os.environ["PATH"]})
    assert "not found" not in output, output
    return re.findall(r"=> (/\S+)", output)


def link_packages(prefix):
    """Stands in for the virtual environment: hard links to the packages of the Python that runs the tests."""
    source = pathlib.Path(next(path for path in sys.path if path.endswith("site-packages")))
    target = prefix / "lib/evalcar/venv/lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    target.mkdir(parents=True)
    for name in ("torch", "pyarrow", "nvidia"):
        if (source / name).exists():
            shutil.copytree(source / name, target / name, copy_function=os.link, symlinks=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory, cache_dir):
    """A checkpoint of a small model and two questions."""
    folder = tmp_path_factory.mktemp("place")
    small_models.write_model(folder / "checkpoint-5", small_models.SmallModel(seed=3), cache_dir=cache_dir)
    data_sets.write_docvqa(folder / "data", count=2)
    return folder


def evaluate(prefix, place):
    """The table of an evaluation by the programs under `prefix`, in an environment that names nothing else."""
    return run(prefix / "bin/evalcar", "eval", place / "checkpoint-5", "--tasks", "docvqa_val", "--data", place / "data", "--device", "cpu",
               "--output", place / "out", "--set", "evaluate.max_new_tokens=2", env={"PATH": "/usr/bin:/bin", "HOME": str(place)},
               cwd=place)  # fmt: skip


@pytest.fixture(scope="module")
def prefix(build_dir, source_dir):
    folder = source_dir / "build" / "test-install"  # the virtual environment's file system, so that links can be made
    shutil.rmtree(folder, ignore_errors=True)
    install(build_dir, folder, EVALCAR_INSTALL_VENV="skip")
    link_packages(folder)
    yield folder
    shutil.rmtree(folder)


def test_installed_programs_name_no_folder_outside_their_prefix(prefix):
    assert run_paths(prefix / "bin/evalcar") == []
    assert all(path.startswith("$ORIGIN/../lib/evalcar/venv/") for path in run_paths(prefix / "bin/evalcar-evaluator"))


def test_installed_programs_find_their_libraries_in_the_prefix(prefix):
    outside = {
        library
        for program in ("evalcar", "evalcar-evaluator")
        for library in libraries(prefix / "bin" / program)
        if not os.path.abspath(library).startswith((str(prefix), *SYSTEM_FOLDERS))
    }

    assert outside == set()


def test_installed_programs_say_their_version(prefix, source_dir):
    version = re.search(r"project\(evalcar VERSION ([0-9.]+)", (source_dir / "CMakeLists.txt").read_text())[1]

    assert version in run(prefix / "bin/evalcar", "--version")
    assert version in run(prefix / "bin/evalcar-evaluator", "--version")


def test_installed_programs_evaluate_a_checkpoint(prefix, place):
    assert "anls" in evaluate(prefix, place)


def test_the_agent_links_no_libtorch(prefix):
    assert not [name for name in libraries(prefix / "bin/evalcar") if "torch" in name or "cuda" in name]


def test_the_units_start_the_installed_program(prefix):
    for kind in ("system", "user"):
        assert "CPUWeight=10" in (prefix / f"lib/systemd/{kind}/evalcar.slice").read_text()
        unit = (prefix / f"lib/systemd/{kind}/evalcar@.service").read_text()

        assert f"ExecStart={prefix}/bin/evalcar run" in unit
        assert not re.search("@[a-z_]+@", unit)
    for name in ("share/evalcar/tasks/docvqa_val.toml", "lib/sysusers.d/evalcar.conf", "lib/tmpfiles.d/evalcar.conf",
                 "share/doc/evalcar/README.md", "share/doc/evalcar/INSTALL.md", "share/doc/evalcar/evalcar.env"):  # fmt: skip
        assert (prefix / name).exists(), name


def test_below_a_home_the_user_unit_lies_where_systemd_looks_for_it(build_dir, tmp_path):
    home = tmp_path / "home"
    install(build_dir, home / ".local", EVALCAR_INSTALL_VENV="skip")
    folder = home / ".local/share/systemd/user"

    assert f"ExecStart={home}/.local/bin/evalcar run" in (folder / "evalcar@.service").read_text() and (folder / "evalcar.slice").exists()
    assert {str(folder / name) for name in os.listdir(folder)} <= set((build_dir / "install_manifest.txt").read_text().splitlines())
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_RUNTIME_DIR": str(tmp_path)}
    assert str(folder) in run("systemd-analyze", "unit-paths", "--user", env=environment).split()


def test_what_the_trainers_side_needs_is_installed(prefix):
    folder = prefix / "share/evalcar/trainer"
    names = run(sys.executable, "-c", "import evalcar_trainer, lmms_eval.entrypoints as e; print(evalcar_trainer.__file__, e.__file__)",
                env={"PYTHONPATH": f"{folder}:{folder}/standin", "PYTHONDONTWRITEBYTECODE": "1"}, cwd="/").split()  # fmt: skip

    assert names == [str(folder / "evalcar_trainer.py"), str(folder / "standin/lmms_eval/entrypoints/__init__.py")]
    assert not list(folder.rglob("__pycache__"))


@pytest.mark.parametrize("kind", ["system", "user"])
def test_systemd_accepts_the_unit(prefix, kind, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    unit = prefix / "lib/systemd" / kind / "evalcar@.service"

    done = subprocess.run(["systemd-analyze", "verify", f"--{kind}", "--man=no", unit], capture_output=True, text=True,
                          env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)})  # fmt: skip

    assert done.returncode == 0 and "evalcar@" not in done.stderr, done.stderr


@pytest.mark.full
def test_programs_run_after_the_source_and_the_build_are_deleted(source_dir, tmp_path, place):
    tree, build, prefix = tmp_path / "tree", tmp_path / "build", tmp_path / "prefix"
    files = run("git", "ls-files", "-co", "--exclude-standard", cwd=source_dir).splitlines()
    for name in files:
        if (source_dir / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source_dir / name, tree / name)
    python = source_dir / "build/venv/bin/python"
    run("cmake", "--preset", "release", "-S", tree, "-B", build, f"-DEVALCAR_PYTHON={python}", "-DEVALCAR_TESTS=OFF",
        f"-DCMAKE_RUNTIME_OUTPUT_DIRECTORY={build}/bin", cwd=tree)  # fmt: skip
    run("ninja", "-C", build, env={**os.environ, "CCACHE_BASEDIR": str(tmp_path), "CCACHE_NOHASHDIR": "1"})
    install(build, prefix)
    shutil.rmtree(tree)
    shutil.rmtree(build)
    moved = prefix.rename(tmp_path / "moved")  # relative run paths: the prefix moves as a whole

    assert "evalcar" in run(moved / "bin/evalcar", "--version")
    assert "evalcar" in run(moved / "bin/evalcar-evaluator", "--version")
    assert "libtorch_cpu.so" in " ".join(libraries(moved / "bin/evalcar-evaluator"))
    assert "anls" in evaluate(moved, place)
