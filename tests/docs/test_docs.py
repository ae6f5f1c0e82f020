"""What the pages say of commands, codes, classes, schemas and tests is as they say it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from conftest import ROOT, environment_of, launch

from kernelbench.base.errors import ExitCode
from kernelbench.cli import COMMANDS, INTERRUPTED, PIPE_CLOSED, cli
from kernelbench.emulator.assumptions import ASSUMPTIONS
from kernelbench.emulator.findings import CLASSES
from kernelbench.lineages.scaffold import files_of
from kernelbench.machine.toolchain import emulator_compiler
from kernelbench.records import ledger, run_record

DOCS = ROOT / "docs"
_FOLDERS = ("kernels", "moe", "peers", "tests", "tools", "hopper", "layer")
READMES = [file for folder in _FOLDERS for file in (ROOT / folder).rglob("*.md")]
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *READMES])
#: What stands for a command or an option in running text.
PLACEHOLDER = re.compile(r"[A-Z]{3,}|…|\.\.\.")


def commands_in(text: str) -> Iterator[str]:
    """Every ``kernelbench …`` of a page: lines of code blocks, and code in running text."""
    blocks = re.findall(r"^```(?:\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for block in blocks:
        for line in block.splitlines():
            words = line.strip().removeprefix("$ ")
            if words.startswith("kernelbench "):
                yield words
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for code in re.findall(r"`(kernelbench [^`]+)`", rest):
        yield " ".join(code.split())


def mistake_in(command: str) -> str:
    """What of a command does not exist; empty if all does."""
    # Behind -- are a program's words, behind -Xcompiler a host compiler's.
    own = re.sub(r"-Xcompiler \S+", "-Xcompiler", re.split(r"\s#|\s[|]\s|\s--\s", command)[0])
    words = shlex.split(own)[1:]
    if words[0].startswith("-"):
        known = {name for option in cli.params for name in option.opts}
        return "" if words[0] in known | {"-h", "--help"} else words[0]
    name = words[0]
    if PLACEHOLDER.fullmatch(name):
        return ""
    if name not in COMMANDS:
        return name
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    if isinstance(found, click.Group) and len(words) > 1 and not words[1].startswith("-"):
        name, words = words[1], words[1:]
        if name not in found.commands:
            return name
        found = found.commands[name]
    options = [each for each in found.params if isinstance(each, click.Option)]
    known = {option for each in options for option in (*each.opts, *each.secondary_opts)}
    for word in words[1:]:
        option = word.partition("=")[0]
        if word.startswith("-") and word != "-" and option not in known | {"-h", "--help"}:
            return option
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist_with_their_options(page: Path) -> None:
    wrong = {command: mistake_in(command) for command in commands_in(page.read_text())}
    assert {command: what for command, what in wrong.items() if what} == {}


def test_the_test_above_sees_commands_and_mistakes() -> None:
    text = "`kernelbench rnu a`\n```\nkernelbench run a --shapes A  # x\n```\n`kernelbench ab\na b`"
    assert [mistake_in(command) for command in commands_in(text)] == ["--shapes", "rnu", ""]
    assert mistake_in("kernelbench results upgrade") == ""
    assert mistake_in("kernelbench results downgrade") == "downgrade"
    assert sum(len([*commands_in(page.read_text())]) for page in PAGES) > 60


def test_every_command_is_shown_on_some_page() -> None:
    text = "\n".join(page.read_text() for page in DOCS.glob("*.md"))
    assert {name for name in COMMANDS if not re.search(rf"kernelbench {name}\b", text)} == set()


def table_rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_exit_code_has_its_entry() -> None:
    rows = table_rows((DOCS / "exit-codes.md").read_text())
    codes = {int(row[0]): row[1] for row in rows if row[0].isdigit()}
    assert codes == {code.value: code.name for code in ExitCode} | {
        INTERRUPTED: "",
        PIPE_CLOSED: "",
    }


def test_every_class_of_findings_has_its_entry() -> None:
    rows = re.findall(
        r"^\| \[([\w-]+)\]\(findings/\1\.md\) \| (.+) \|$", (DOCS / "findings.md").read_text(), re.M
    )
    assert dict(rows) == CLASSES
    pages = {page.stem: page.read_text() for page in (DOCS / "findings").glob("*.md")}
    assert pages.keys() == CLASSES.keys()
    for name, meaning in CLASSES.items():
        lead = re.match(rf"\(finding-{name}\)=\n# {name}\n\n\*([^*]+)\*", pages[name])
        assert lead is not None and meaning.lower() in lead[1].lower(), name
        codes = re.findall(r"^## (Wrong|Right)\n\n```c\+\+\n(.+?)^```$", pages[name], re.M | re.S)
        assert [which for which, _ in codes] == ["Wrong", "Right"], name
        assert codes[0][1] != codes[1][1], name


def test_the_glossary_is_short_and_of_words_that_are_used() -> None:
    terms = [row[0] for row in table_rows((DOCS / "glossary.md").read_text())[2:]]
    assert terms == sorted(terms, key=str.lower)
    assert 30 <= len(set(terms)) == len(terms) <= 40
    pages = [page for page in (*DOCS.glob("*.md"), ROOT / "README.md") if page.stem != "glossary"]
    text = " ".join("\n".join(page.read_text() for page in pages).lower().split())
    assert [term for term in terms if term.lower() not in text] == []


def test_every_assumption_of_the_checker_has_its_row() -> None:
    names = [row[0].strip("`") for row in table_rows((DOCS / "checker.md").read_text())]
    assert [name for name in names if name in ASSUMPTIONS] == [*ASSUMPTIONS]


def test_every_schema_is_named() -> None:
    newest: dict[str, int] = {}
    for file in (ROOT / "kernelbench").rglob("*.py"):
        for name, version in re.findall(r'"kernelbench\.([a-z-]+)/(\d+)"', file.read_text()):
            newest[name] = max(int(version), newest.get(name, 0))
    text = (DOCS / "json.md").read_text()
    assert len(newest) > 10
    missing = [
        f"kernelbench.{n}/{v}" for n, v in newest.items() if f"kernelbench.{n}/{v}" not in text
    ]
    assert missing == []


@pytest.mark.parametrize("page", ["docs/index.md", "docs/checker.md", "README.md"])
def test_the_checkers_figures_are_those_of_the_trials(page: str) -> None:
    """Both stand on the first screen of each."""
    (table,) = ROOT.glob("t*s/mutations/table.md")
    text = table.read_text()
    sites = re.search(r"\*\*([\d,]+) of the ([\d,]+) sites have been run\*\*", text)
    overall = re.search(r"^\| \*\*all\*\* \| (\d+) \| .*? \| ([\d.]+ %) \|", text, re.MULTILINE)
    assert overall is not None
    # The table says so only while some have not.
    count = f"{int(overall[1]):,}"
    assert sites is None or sites[1] == count
    first = "\n".join((ROOT / page).read_text().splitlines()[:45])
    assert count in first
    assert overall[2] in first
    assert re.search(r"65 of 82|65 of the 82", first)


def test_the_first_table_of_trials_is_the_same_on_three_pages() -> None:
    shown = set()
    for page in ("README.md", "docs/index.md", "docs/checker.md"):
        table = re.search(r"^\| trial \| found \| .*?\n\n", (ROOT / page).read_text(), re.M | re.S)
        assert table is not None, page
        shown.add(table[0].replace("(docs/", "("))
    assert len(shown) == 1
    assert shown.pop().count("[") >= 6  # each row names its evidence


def test_no_line_of_a_page_is_a_comment_of_the_parser() -> None:
    """MyST leaves out a line that begins with %, in the middle of a sentence, too."""
    texts = {
        page: re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for page in DOCS.rglob("*.md")
    }
    assert [page.name for page, text in texts.items() if re.search(r"^ *%", text, re.M)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    gone = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert gone == []


def test_files_that_are_named_exist() -> None:
    """Paths in running text of the pages; those with a placeholder aside."""
    tops = {path.name for path in ROOT.iterdir() if not path.name.startswith(".git")}
    tops -= {"results", "build"}
    gone, seen = [], 0
    for page in (*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for path in re.findall(r"`([\w./-]+)`", page.read_text()):
            if path.split("/")[0] in tops and page.name != "journal.md":
                seen += 1
                gone += [f"{page.name}: {path}"] if not (ROOT / path).exists() else []
    assert gone == []
    assert seen > 50


def test_tests_that_are_named_exist() -> None:
    named = [
        pair
        for page in PAGES
        for pair in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text())
    ]
    assert len(named) > 10
    gone = [name for file, name in named if f"def {name}(" not in (ROOT / file).read_text()]
    assert gone == []


def write_files_of(text: str, folder: Path) -> int:
    """Write what a page shows as files; how many there are."""
    files = re.findall(r"^\*\*`([\w./]+)`\*\*\n\n```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for name, content in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return len(files)


def test_the_problem_of_the_page_is_one(tmp_path: Path) -> None:
    """Its files, as they stand there: right, and wrong where the step is."""
    text = (DOCS / "problem-interface.md").read_text().partition("(compiled-own)=")[0]
    assert write_files_of(text, tmp_path) == 6
    run = ("run", "s0", "--budget", 0.2, "--json", "-")
    outcome = launch(*run, root=tmp_path)
    assert outcome.code == 0, outcome.out + outcome.err
    rows = json.loads(outcome.out)["results"]
    assert [(row["inputs"], row["status"]) for row in rows] == [
        ("normal", "pass"), ("integers", "pass"),
    ]  # fmt: skip
    assert rows[1]["exact"]
    assert rows[0]["call_us"]["median"] > 0
    made = launch("new", "s1", "--from", "s0", root=tmp_path)
    assert made.code == 0, made.err
    step = tmp_path / "sums" / "s1" / "submission.py"
    step.write_text(step.read_text().replace("sum(x,", "sum(x * (1 + 1e-3),"))
    outcome = launch("run", "s1", "--check-only", "--no-save", "--json", "-", root=tmp_path)
    assert outcome.code == 3
    assert {row["status"] for row in json.loads(outcome.out)["results"]} == {"wrong"}


@pytest.mark.long
def test_the_compiled_step_of_the_page_is_checked(tmp_path: Path) -> None:
    text = (DOCS / "problem-interface.md").read_text()
    assert write_files_of(text, tmp_path) == 9
    more = re.findall(r"^```python\n((?:import ctypes|class RowSums:  ).*?)^```", text, re.M | re.S)
    problem = tmp_path / "sums" / "problem.py"
    source = problem.read_text()
    problem.write_text(source.replace("class RowSums:\n", "\n".join(more) + "\n"))
    check = ("check", "c0", "--schedules", 1, "--sms", 2, "--no-save", "--json", "-")
    outcome = launch(*check, root=tmp_path)
    assert outcome.code == 0, outcome.out + outcome.err
    kernel = tmp_path / "sums" / "c0" / "kernel.cuh"
    kernel.write_text(kernel.read_text().replace("(row >= args.m)", "(row > args.m)"))
    assert launch(*check[:-2], "--shape", "m=5:k=40", root=tmp_path).code == 3


def test_the_class_of_the_page_is_the_templates() -> None:
    """What `kernelbench init` writes, whose README's commands tests run."""
    (shown,) = re.findall(
        r"^```python\n(\"\"\"y = x.*?)^```", (DOCS / "own-problem.md").read_text(), re.M | re.DOTALL
    )
    assert shown == files_of("rmsnorm")[Path("kernels/problem.py")].read_text()


def test_the_python_of_a_day_runs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / "day.md").read_text(), re.M | re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-c", block],
            capture_output=True, text=True, check=False, cwd=ROOT, env=environment_of(ROOT),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_the_measured_figures_of_the_readme_are_measured() -> None:
    """Each time is the median of a committed run, each change of a committed comparison."""
    text = (ROOT / "README.md").read_text().partition("## Measured")[2].partition("\n## ")[0]
    results = ROOT / "results"
    rows = [
        row for path in run_record.list_runs(results) for row in run_record.read_run(path).results
    ]
    stats = [each for row in rows for each in row.metrics.values()]
    medians = {f"{each.median:.2f}" for each in stats}
    medians |= {f"{row.floor.us:.2f}" for row in rows if row.floor is not None}
    times = re.findall(r"\b(\d+\.\d\d)(?= µs| \|)", text)
    assert len(times) >= 30
    assert [time for time in times if time not in medians] == []
    changes = {
        f"{100 * each.change:.2f} % [{100 * each.ci[0]:.2f}, {100 * each.ci[1]:.2f}] {each.verdict}"
        for each in ledger.read_ledger(results)
        if each.change is not None and each.ci is not None
    }
    shown = re.findall(r"−[\d.]+ % \[[^]]+\] [A-Z]+", text)
    assert len(shown) == 3
    assert [each for each in shown if each.replace("−", "-") not in changes] == []


def test_the_readme_is_short_and_its_picture_stands_alone() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130
    picture = (DOCS / "pictures" / "finding.svg").read_text()
    assert re.findall(r"https?://[^\"' ]+", picture) == ["http://www.w3.org/2000/svg"]


@pytest.mark.long
@pytest.mark.skipif(emulator_compiler() is None, reason="no C++ compiler")
def test_the_picture_is_what_the_checker_prints() -> None:
    done = subprocess.run(
        [sys.executable, "tools/pictures.py", "--check"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_packages_of_the_picture_are_those_of_the_contract() -> None:
    code = (
        "import json, sys; sys.path.insert(0, 'docs/extensions'); import package_picture as p; "
        "print(json.dumps({name: sorted(p.imports(name)) for name in p.layers()}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    found: dict[str, list[str]] = json.loads(done.stdout)
    order = list(found)
    assert order[0] == "cli"
    assert order[-1] == "base"
    upwards = [
        (name, other)
        for name, used in found.items()
        for other in used
        if other in order and order.index(other) <= order.index(name)
    ]
    assert upwards == []
    assert set(found["cli"]) > {"runs", "base"}
