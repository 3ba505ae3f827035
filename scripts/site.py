#!/usr/bin/env python3
"""Puts the pages of the web site together: the documents in their folders, what they link to, the help of each verb, and the Python API.

    scripts/site.py PROGRAM FOLDER      then: mdbook build FOLDER
"""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = ROOT / "docs/SUMMARY.md"
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def links(text):
    """The files that a page links to, as it writes them."""
    return [target for target in LINK.findall(FENCE.sub("", text)) if not re.match(r"[a-z]+:", target)]


def copy(source, target):
    """Copies a file that a page links to, or, of a folder, a page that lists its files."""
    if source.is_dir():
        files = [path for path in sorted(source.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
        names = [path.relative_to(source).as_posix() for path in files]
        for name in names:
            copy(source / name, target / name)
        page = target / "README.md"
        if not page.exists():
            page.write_text(f"# {source.relative_to(ROOT)}\n\n" + "".join(f"- [{name}]({name})\n" for name in names))
        return page
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    return target


def collect(pages, book):
    """Copies the pages and all that they link to; returns the pages in the order in which they were met."""
    met, waiting = [], list(pages)
    while waiting:
        page = waiting.pop(0)
        if page in met:
            continue
        met.append(page)
        copied = copy(ROOT / page, book / page)
        text = copied.read_text()
        for target in links(text):
            linked = (ROOT / page).parent.joinpath(target).resolve()
            name = linked.relative_to(ROOT)
            if not linked.exists():
                sys.exit(f"{page} links to {target}, which does not exist")
            found = copy(linked, book / name).relative_to(book)
            if linked.is_dir():
                # A link to a folder is one to its page.
                text = text.replace(f"]({target})", f"]({target.rstrip('/')}/README.md)")
                waiting += [found] if (ROOT / found).exists() else []
                met += [] if (ROOT / found).exists() else [found]
            elif found.suffix == ".md":
                waiting.append(found)
        copied.write_text(text)
    return met


def reference(program, book):
    """A page for each verb, with its help; returns their names."""
    def help_of(*words):
        return subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True).stdout.replace("```", "'''")

    verbs = re.findall(r"^  ([a-z][a-z-]*) {2,}", help_of().partition("\nOptions:\n")[0], re.MULTILINE)
    folder = book / "reference"
    folder.mkdir()
    verbs = [verb for verb in verbs if verb != "help"]
    for verb in verbs:
        (folder / f"{verb}.md").write_text(f"# holdall {verb}\n\n```text\n{help_of(verb)}```\n")
    (folder / "README.md").write_text("# Verbs\n\n" + "".join(f"- [`holdall {verb}`]({verb}.md)\n" for verb in verbs))
    return verbs


def described(node, owner=""):
    """A function or class of the Python package as a section: its signature, what its docstring says, and its public members."""
    text = re.sub(r":(?:func|class|meth|attr):`", "`", ast.get_docstring(node) or "")
    name = f"{owner}{node.name}"
    if isinstance(node, ast.ClassDef):
        public = [one for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and not one.name.startswith("_")]
        made = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__" and not node.name.startswith("_")), None)
        head = f"### class {name}\n\n" + (f"```python\n{name}({arguments(made)})\n```\n\n" if made and arguments(made) else "")
        return head + f"{text}\n\n" + "".join(described(one, f"{node.name}.") for one in public if ast.get_docstring(one))
    is_property = any(isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list)
    back = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    signature = f"{name}{back.replace(' ->', ':', 1)}" if is_property else f"{name}({arguments(node)}){back}"
    return f"{'####' if owner else '###'} {name}\n\n```python\n{signature}\n```\n\n{text}\n\n"


def arguments(node):
    return re.sub(r"^self(, /)?(, )?", "", ast.unparse(node.args))


def python_page(book):
    """The Python package: what `holdall` and `holdall.launch` export."""
    package = ROOT / "python/holdall"
    modules = [ast.parse(path.read_text()) for path in (*sorted(package.glob("_*.py")), package / "_native.pyi")]
    launch = ast.parse((package / "launch.py").read_text())
    text = "# Python API\n\n[Recipes](../docs/python.md) and [launch files](../docs/ros2.md) have examples.\n\n"
    for title, sources, exports in (("holdall", modules, ast.parse((package / "__init__.py").read_text())), ("holdall.launch", [launch], launch)):
        names = next(ast.literal_eval(one.value) for one in exports.body if isinstance(one, ast.Assign) and one.targets[0].id == "__all__")
        found = {one.name: one for module in sources for one in module.body if isinstance(one, (ast.ClassDef, ast.FunctionDef))}
        text += f"## {title}\n\n" + "".join(described(found[name]) for name in names if name in found)
    (book / "reference/python.md").write_text(text)


def rename(book):
    """mdBook makes `index.html` of `README.md`, and does not follow links to it: the page is `index.md`."""
    for page in book.rglob("*.md"):
        page.write_text(re.sub(r"(\]\([^)\s]*?)README\.md", r"\1index.md", page.read_text()))
        if page.name == "README.md":
            page.rename(page.with_name("index.md"))


def main(program, folder):
    site = Path(folder)
    book = site / "src"
    shutil.rmtree(site, ignore_errors=True)
    book.mkdir(parents=True)
    # Its links are from docs, those of the book from the root.
    summary = LINK.sub(lambda link: f"]({SUMMARY.parent.joinpath(link[1]).resolve().relative_to(ROOT).as_posix()})", SUMMARY.read_text())
    verbs = reference(program, book)
    listed = [Path(target) for target in links(summary)]
    met = collect(listed, book)
    python_page(book)
    summary = summary.replace("- [Python API]()", "- [Python API](reference/python.md)")
    summary = summary.replace("- [Verbs]()\n", "- [Verbs](reference/README.md)\n" + "".join(f"  - [{verb}](reference/{verb}.md)\n" for verb in verbs))
    # mdBook makes pages of what is listed only.
    others = [page for page in met if page not in listed]
    titles = {page: (re.search(r"^# (.+)$", (book / page).read_text(), re.MULTILINE) or [None, page.stem])[1] for page in others}
    summary += "\n# More\n\n" + "".join(f"- [{titles[page].replace('[', '').replace(']', '')}]({page})\n" for page in others)
    (book / "SUMMARY.md").write_text(summary)
    rename(book)
    shutil.copy(ROOT / "docs/book.toml", site / "book.toml")
    print(f"{site}: {len(list(book.rglob('*.md'))) - 1} pages")


if __name__ == "__main__":
    main(*sys.argv[1:])
