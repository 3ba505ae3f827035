"""The pages for newcomers, the web site that `make site` makes of all documents, and the workflows that build and publish."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import HOLDALL, messages_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / name for name in ("getting-started.md", "from-ros2-bag.md", "from-other-tools.md", "troubleshooting.md")]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def commands(page):
    """Each command of holdall on a page: lines of blocks, and code in texts and tables."""
    text = page.read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    spans = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL).replace("\\|", "|"))
    for line in lines + spans:
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words.pop(0)
        if words[:1] == ["holdall"] and len(words) > 1:
            yield words[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_program_takes_each_command_of_the_page(world, page):
    found = list(commands(page))
    assert len(found) >= 6
    for words in found:
        # Help is shown when all before it was understood.
        taken = world.run(*words, "--help")
        assert taken.returncode == 0 and "Usage:" in taken.stdout, (words, taken.stderr)


def test_getting_started_is_what_happens(world):
    page = PAGES[0].read_text()
    blocks = {title: re.search(rf"^## {title}\n.*?```sh\n(.*?)```", page, re.MULTILINE | re.DOTALL)[1].splitlines() for title in ("Record", "Look", "Play")}
    (record,) = blocks["Record"]
    recorder = world.holdall(*shlex.split(record)[1:], cwd=world.folder)
    recorder.wait_until_says("Listening for topics")
    world.talker({"topic": "/chatter", "type": "std_msgs/msg/String", "rate_hz": 100, "count": 200}, wait_for_subscriptions=1).done()
    code, text = recorder.stop()
    assert code == 0 and "lost: none" in text, text
    for line in blocks["Look"] + blocks["Play"]:
        done = subprocess.run([HOLDALL, *shlex.split(line)[1:]], env=world.env, cwd=world.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (line, done.stdout + done.stderr)
    assert len(messages_of(world.folder / "lab")["/chatter"]) == 200


@pytest.mark.parametrize("script", ["flag-table.py", "python-options.py"])
def test_what_scripts_write_from_the_command_line_is_that_of_this_program(script):
    done = subprocess.run([sys.executable, ROOT / "scripts" / script, HOLDALL, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}: scripts/{script} {HOLDALL} writes it anew"


def anchors(text):
    """The names of headings as mdBook makes them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w-]", "", re.sub(r"\s", "-", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).strip().lower())) for title in titles}


def test_every_link_of_the_site_leads_to_a_page_of_it(tmp_path):
    made = subprocess.run([sys.executable, ROOT / "scripts/site.py", HOLDALL, tmp_path / "site"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    book = tmp_path / "site/src"
    summary = (book / "SUMMARY.md").read_text()
    listed = set(re.findall(r"\]\(([^)]+)\)", summary))
    assert {page.relative_to(book).as_posix() for page in book.rglob("*.md")} - {"SUMMARY.md"} == listed
    written = [page.relative_to(ROOT).as_posix() for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if page.name != "SUMMARY.md"]
    assert {name.replace("README.md", "index.md") for name in written} <= listed, "a page to which nothing leads"
    assert {f"reference/{verb}.md" for verb in ("record", "play", "info", "upload")} <= listed
    api = (book / "reference/python.md").read_text()
    assert all(f"### class {name}\n" in api for name in ("Bag", "Record", "OnLoss")) and "#### Bag.messages\n" in api and "### create\n" in api
    for page in book.rglob("*.md"):
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            linked = page.parent / target if target else page
            assert linked.is_file(), f"{page.relative_to(book)}: {target}"
            assert not anchor or anchor in anchors(linked.read_text()), f"{page.relative_to(book)}: {target}#{anchor}"
    if mdbook := shutil.which("mdbook"):
        built = subprocess.run([mdbook, "build", tmp_path / "site"], capture_output=True, text=True)
        assert built.returncode == 0 and "WARN" not in built.stderr, built.stderr
        assert (tmp_path / "site/html/docs/getting-started.html").is_file()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_that_the_makefile_has(path):
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = path.read_text()
    called = re.findall(r"\bmake ([a-z0-9-]+)", "\n".join(line for line in text.splitlines() if not line.strip().startswith("#")))
    assert called and set(called) <= targets, called
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] and all(re.fullmatch(r"[\w/-]+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step), name
    if actionlint := shutil.which("actionlint"):
        done = subprocess.run([actionlint, path], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
