from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from penstock.entry_points import load_entry
from penstock.errors import BadEntry, UnknownColumn

Write = Callable[..., Path]

PIPELINE = 'ps.Pipeline({name}, ps.from_items([{{"a": 1}}], "a bigint").to(ps.collect()))'
ONE = f"import penstock as ps\njob = {PIPELINE.format(name=repr('one'))}\n"
BUILT = f"""
import penstock as ps

def job(window: str = "60s", rows: int = 1, share: float = 0.5, fast: bool = False, top=3) -> ps.Pipeline:
    return {PIPELINE.format(name='f"{window}_{rows}_{share}_{fast}_{top}"')}
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write an entry file; what loading it leaves behind in this process is undone."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    before = set(sys.modules)

    def file(text: str, name: str = "job.py") -> Path:
        path = tmp_path / name
        path.write_text(dedent(text))
        return path

    yield file
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def refused(target: object, *sets: str) -> str:
    with pytest.raises(BadEntry) as caught:
        load_entry(str(target), sets)
    return str(caught.value)


def test_a_single_pipeline_needs_no_name(write: Write) -> None:
    path = write(ONE)
    assert load_entry(str(path)).name == load_entry(f"{path}:job").name == "one"


def test_a_function_that_returns_a_pipeline_is_an_entry(write: Write) -> None:
    assert load_entry(str(write(BUILT))).name == "60s_1_0.5_False_3"


def test_a_function_with_annotations_as_text_is_an_entry(write: Write) -> None:
    text = "from __future__ import annotations\n" + BUILT
    assert load_entry(str(write(text)), ["rows=7"]).name == "60s_7_0.5_False_3"


def test_annotations_that_only_a_type_checker_can_resolve_are_taken_by_name(write: Write) -> None:
    text = f"""
    from __future__ import annotations
    import penstock as ps

    def job(rows: int, other: Unknown = None) -> ps.Pipeline:
        return {PIPELINE.format(name='f"{rows + 1}"')}
    """
    assert load_entry(str(write(text)), ["rows=7"]).name == "8"


def test_set_values_become_what_the_annotations_say(write: Write) -> None:
    sets = ["window=30s", "rows=1_000", "share=2", "fast=yes", "top=5", "top=9"]
    assert load_entry(str(write(BUILT)), sets).name == "30s_1000_2.0_True_9"


def test_set_takes_literals_and_none(write: Write) -> None:
    text = f"""
    from typing import Literal
    import penstock as ps

    def job(mode: Literal["a", "b"] = "a", limit: int | None = 1) -> ps.Pipeline:
        return {PIPELINE.format(name='f"{mode}_{limit}"')}
    """
    path = write(text)
    assert load_entry(str(path), ["mode=b", "limit=none"]).name == "b_None"
    assert load_entry(str(path), ["limit=5"]).name == "a_5"
    assert "choices: a, b" in refused(path, "mode=c")


@pytest.mark.parametrize("bad", ["rows=many", "share=x", "fast=perhaps", "rows=1.5"])
def test_a_value_of_the_wrong_type_is_refused_with_its_parameter(write: Write, bad: str) -> None:
    assert f"job(): --set {bad} is not a" in refused(write(BUILT), bad)


def test_an_unknown_parameter_is_refused_with_those_that_exist(write: Write) -> None:
    said = refused(write(BUILT), "windwo=30s")
    assert "has no parameter 'windwo'" in said
    assert "parameters: window, rows, share, fast, top      did you mean 'window'?" in said


def test_a_parameter_that_is_needed_is_asked_for(write: Write) -> None:
    text = "import penstock as ps\ndef job(path: str) -> ps.Pipeline: ..."
    assert "needs 'path'\n  give it: --set path=..." in refused(write(text))


def test_a_set_without_value_is_refused(write: Write) -> None:
    assert "as in: --set window=30s" in refused(write(BUILT), "window")


def test_a_parameter_that_no_text_can_be_is_refused(write: Write) -> None:
    text = "import penstock as ps\ndef job(rows: list = None) -> ps.Pipeline: ..."
    assert "a list cannot be given on the command line" in refused(write(text), "rows=1")


def test_a_pipeline_object_takes_no_set(write: Write) -> None:
    assert "takes no --set a" in refused(write(ONE), "a=1")


def test_several_pipelines_are_listed(write: Write) -> None:
    path = write(f"{ONE}other = {PIPELINE.format(name=repr('two'))}\nagain = job\n")
    said = refused(path)
    assert "has 2 pipelines" in said
    assert "pipelines there: job, other" in said
    assert load_entry(f"{path}:other").name == "two"


def test_a_name_that_is_not_there_is_refused_with_those_that_are(write: Write) -> None:
    assert "pipelines there: job      did you mean 'job'?" in refused(f"{write(ONE)}:jop")


def test_a_file_without_a_pipeline_says_how_to_write_one(write: Write) -> None:
    said = refused(write("def helper() -> int: ...\n"))
    assert "has no pipeline" in said
    assert "ps.Pipeline(...)" in said


def test_a_file_that_is_missing_is_refused_with_its_neighbours(write: Write) -> None:
    said = refused(write(ONE).with_name("jop.py"))
    assert "file not found" in said
    assert "did you mean 'job.py'?" in said


def test_what_is_not_a_python_file_is_refused(tmp_path: Path) -> None:
    assert "is not a Python or SQL file" in refused(tmp_path / "job.txt")
    assert "is a folder" in refused(tmp_path)


def test_a_syntax_error_names_file_and_line(write: Write) -> None:
    path = write("import penstock as ps\njob = = 1\n")
    assert refused(path).splitlines()[0] == f"{path}:2 cannot be imported: SyntaxError: invalid syntax"


def test_an_exception_on_import_names_file_line_and_message(write: Write) -> None:
    path = write("def broken():\n    raise ValueError('no such\\nthing')\n\nbroken()\n")
    assert refused(path).splitlines()[0] == f"{path}:2 cannot be imported: ValueError: no such"


def test_a_missing_module_says_where_to_install_it(write: Write) -> None:
    said = refused(write("import not_there_at_all\n"))
    assert "ModuleNotFoundError" in said
    assert sys.executable in said


def test_a_file_that_exits_is_refused(write: Write) -> None:
    assert "SystemExit: 3" in refused(write("raise SystemExit(3)\n"))


def test_an_exception_while_building_names_file_and_line(write: Write) -> None:
    path = write("import penstock as ps\ndef job() -> ps.Pipeline:\n    return 1 / 0\n")
    assert refused(path).splitlines()[0] == f"{path}:3 cannot build its pipeline: ZeroDivisionError: division by zero"


def test_a_function_that_returns_something_else_is_refused(write: Write) -> None:
    path = write("import penstock as ps\ndef job() -> ps.Pipeline:\n    return 1\n")
    assert "job() returned int, not a Pipeline\n  end it with" in refused(path)


def test_an_error_of_the_pipeline_stays_itself_and_says_the_line(write: Write) -> None:
    path = write("import penstock as ps\nraise ps.errors.UnknownColumn('no x', hint='columns here: a')\n")
    with pytest.raises(UnknownColumn) as caught:
        load_entry(str(path))
    assert str(caught.value) == f"no x\n  columns here: a\n  at {path}:2"


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("ps.files('x', fromat='json')", "files takes: path, format, .* did you mean 'format'"),
        ("ps.read_stdin().event_time('a', max_dealy='1s')", "Stream.event_time takes: .* did you mean 'max_delay'"),
        ("ps.read_stdin().fliter('a')", "a Stream has: .* did you mean 'filter'"),
    ],
)
def test_a_name_that_is_not_known_is_answered_with_those_that_are(write: Write, code: str, hint: str) -> None:
    with pytest.raises(BadEntry, match=hint):
        load_entry(str(write(f"import penstock as ps\n{code}\n")))


def test_what_stands_beside_the_file_can_be_imported_here_and_by_workers(write: Write) -> None:
    write("NAME = 'from-beside'\n", "beside_the_entry.py")
    path = write(f"import penstock as ps\nfrom beside_the_entry import NAME\njob = {PIPELINE.format(name='NAME')}\n")
    assert load_entry(str(path)).name == "from-beside"
    assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(path.parent.resolve())


@pytest.mark.parametrize(
    ("names", "shown"), [(["json.py"], "json.py hides"), (["job.py", "types.py"], "types.py beside")]
)
def test_a_file_that_would_hide_a_module_of_python_from_workers_is_refused(
    write: Write, names: list[str], shown: str
) -> None:
    path, *_ = [write(ONE, name) for name in names]
    with pytest.raises(BadEntry, match=f"(?s){shown}.*rename the file") as refused:
        load_entry(str(path))
    assert refused.value.exit_code == 2


def test_a_file_named_like_a_module_that_nobody_uses_is_accepted(write: Write) -> None:
    write("", "test.py")
    load_entry(str(write(ONE, "antigravity.py")))
