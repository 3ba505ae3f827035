"""The files in examples/: what they name exists, what they run runs, and real programs read them."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import DEADLINE_S, HOLDALL, messages_of
from test_python import ROOT, environment, installed  # noqa: F401

EXAMPLES = ROOT / "examples"
MONITORING = EXAMPLES / "monitoring"
# The interpreter with what runs notebooks and reads queries.
TOOLS = Path(sys.prefix) / "ros" / "bin" / "python"
CHATTER = {"topic": "/chatter", "type": "std_msgs/msg/String", "rate_hz": 100}
# A cache of 64 KiB holds one of these messages at a time, and they come without a pause.
FLOOD = {"topic": "/flood", "type": "std_msgs/msg/UInt8MultiArray", "size": 200_000, "count": None, "hash": False}


def alone():
    """The environment without what tests give to Python."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_LIBRARY", "_ROS", "PYTEST"))}


def flags_of(world, verb):
    return set(re.findall(r"--[a-z][a-z-]+", world.run(verb, "--help").stdout))


# What the queries name besides metrics of the recorder: Prometheus has it for each target.
OF_PROMETHEUS = {"up"}
NAMES = """
import json, sys, promql_parser
def names(node):
    if isinstance(node, promql_parser.VectorSelector):
        yield node.name
    for part in ("lhs", "rhs", "expr", "vector_selector", "args"):
        below = getattr(node, part, None)
        for one in below if isinstance(below, list) else [below]:
            if one is not None and not isinstance(one, str):
                yield from names(one)
print(json.dumps([sorted(set(names(promql_parser.parse(text)))) for text in json.load(sys.stdin)]))
"""


def queries():
    rules = yaml.safe_load((MONITORING / "holdall.rules.yml").read_text())
    alerts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    panels = json.loads((MONITORING / "grafana/holdall.json").read_text())["panels"]
    of_panels = [target["expr"] for panel in panels for target in panel["targets"]]
    # What Grafana puts in.
    return alerts + [text.replace("$__rate_interval", "1m").replace("$instance", ".*") for text in of_panels]


def test_every_metric_of_dashboard_and_alerts_is_one_of_a_recording(world):
    # Losses have a metric, too.
    world.talker(FLOOD)
    metrics = world.folder / "metrics.prom"
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--max-cache-size", "64KiB", "--metrics-file", metrics)
    recorder.wait_until_says("recording /flood")
    recorder.wait_until_says("lost so far")
    assert recorder.stop()[0] == 3
    text = metrics.read_text()
    real = {match[1] for match in re.finditer(r"^(holdall_\w+)[ {]", text, re.MULTILINE)}
    assert "holdall_lost_messages_total" in real, text
    parsed = subprocess.run([TOOLS, "-c", NAMES], input=json.dumps(queries()), env=alone(), capture_output=True, text=True)
    assert parsed.returncode == 0, parsed.stderr
    for query, names in zip(queries(), json.loads(parsed.stdout), strict=True):
        assert names and set(names) <= real | OF_PROMETHEUS, (query, set(names) - real)
    # Labels, in queries and in texts.
    labels = {"instance", "job"} | {label for match in re.finditer(r"\{(.*)\} ", text) for label in re.findall(r'(\w+)="', match[1])}
    texts = (MONITORING / "holdall.rules.yml").read_text() + (MONITORING / "grafana/holdall.json").read_text()
    used = set(re.findall(r"\$labels\.(\w+)", texts)) | set(re.findall(r"\{\{(\w+)\}\}", texts))
    used |= {label for group in re.findall(r"by \(([^)]*)\)", texts) for label in group.split(", ")}
    assert used <= labels, used - labels


def test_the_panels_of_the_dashboard_do_not_overlap():
    panels = json.loads((MONITORING / "grafana/holdall.json").read_text())["panels"]
    taken = [(x, y) for panel in panels for at in [panel["gridPos"]] for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
    assert len(taken) == len(set(taken)) and max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_containers_have_files_that_exist_and_flags_of_the_program(world):
    compose = yaml.safe_load((MONITORING / "compose.yaml").read_text())
    mounted = [volume.split(":") for service in compose["services"].values() for volume in service["volumes"]]
    for source, *_ in mounted:
        assert source in compose["volumes"] or source.startswith("./data/") or (MONITORING / source).is_file(), source
    recorder = compose["services"]["recorder"]
    verb, *words = recorder["command"]
    assert {word for word in words if word.startswith("--")} <= flags_of(world, verb)
    assert re.fullmatch(r"on-failure:\d", recorder["restart"])
    assert (MONITORING / recorder["build"]["context"] / recorder["build"]["dockerfile"]).is_file()
    # The recorder listens where Prometheus asks, and the token is where Prometheus reads it.
    (job,) = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [words[words.index("--web") + 1]]
    assert job["authorization"]["credentials_file"] == words[words.index("--token-file") + 1]
    datasource = yaml.safe_load((MONITORING / "grafana/datasources.yaml").read_text())["datasources"][0]
    listens = [word.partition("=")[2] for word in compose["services"]["prometheus"]["command"] if word.startswith("--web.listen-address")]
    assert datasource["url"] == f"http://{listens[0]}"


@pytest.fixture
def unit():
    return (EXAMPLES / "systemd/holdall@.service").read_text()


def setting(unit, name):
    return re.search(rf"^{name}=(.*)$", unit, re.MULTILINE)[1]


def analyze():
    """The version of systemd-analyze, 0 without one."""
    if shutil.which("systemd-analyze") is None:
        return 0
    return int(subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True).stdout.split()[1])


@pytest.fixture
def unit_file(unit, tmp_path):
    path = tmp_path / "holdall@robot.service"
    path.write_text(unit.replace("/usr/bin/holdall", HOLDALL).replace("Documentation=man:holdall-record(1)\n", ""))
    return path


@pytest.mark.skipif(analyze() == 0, reason="this distribution has no systemd-analyze")
def test_systemd_reads_the_unit(unit_file):
    read = subprocess.run(["systemd-analyze", "verify", "--man=no", unit_file], capture_output=True, text=True, env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"})
    said = [line for line in read.stderr.splitlines() if "holdall" in line]
    assert read.returncode == 0 and not said, said


@pytest.mark.skipif(analyze() < 250, reason="this distribution has no systemd-analyze that judges a file (250 or newer)")
def test_systemd_finds_the_unit_closed(unit_file):
    # 1.8 with systemd 252; each version judges a little differently.
    closed = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", unit_file], capture_output=True, text=True)
    assert closed.returncode == 0 and "Overall exposure level" in closed.stdout, closed.stdout[-600:] + closed.stderr


def test_the_units_command_records_as_its_profile_says(world, unit):
    run, etc = world.folder / "run", world.folder / "etc"
    run.mkdir()
    shutil.copytree(EXAMPLES / "systemd", etc)
    start = setting(unit, "ExecStart").replace("/usr/bin/holdall", HOLDALL)
    words = shlex.split(start.replace("/etc/holdall/%i", str(etc / "robot")).replace("/run/holdall/%i", str(run)))
    address = world.folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(DEADLINE_S)
        world.env["NOTIFY_SOCKET"] = str(address)
        # The disk of a test may have less free than a robot's must have.
        profile = etc / "robot.yaml"
        profile.write_text(re.sub(r"min-free-space: .*", "min-free-space: 1MiB", profile.read_text()))
        recorder = world.holdall(*words[1:], cwd=world.folder)
        del world.env["NOTIFY_SOCKET"]
        while "READY=1" not in manager.recv(4096).decode():
            pass
        talker = world.talker({**CHATTER, "count": 50}, wait_for_subscriptions=1)
        talker.done()
        code, text = recorder.stop(15)
    assert code == 0, text
    (bag,) = world.folder.glob("rosbag2_*")
    assert len(messages_of(bag)["/chatter"]) == 50


EXECUTE = """
import sys, nbformat, nbclient
book = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(book)
nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
print(sum(bool(cell.get("outputs")) for cell in book.cells), sum("image/png" in str(cell.get("outputs")) for cell in book.cells))
"""


@pytest.mark.parametrize("book", sorted(EXAMPLES.glob("notebooks/*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_runs_from_its_first_cell_to_its_last(installed, book, tmp_path):  # noqa: F811
    python, site = installed
    packages = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], env=alone(), capture_output=True, text=True)
    # The kernel has Jupyter's packages, and then those of the venv with pandas and matplotlib.
    found = {"PYTHONPATH": f"{site}:{packages.stdout.strip()}", "JUPYTER_RUNTIME_DIR": str(tmp_path), "IPYTHONDIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run([TOOLS, "-c", EXECUTE, book], env={**environment(site), **found}, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    shown, pictures = map(int, done.stdout.split())
    assert shown >= 6 and pictures == 1
    # Nothing of a run is in the tree.
    assert all(not cell["outputs"] for cell in json.loads(book.read_text())["cells"] if cell["cell_type"] == "code")


def check(world, *bags, losses="fail", holdall=HOLDALL):
    """The exit code of the action, its commands as GitHub reads them, and all that it wrote."""
    action = yaml.safe_load((EXAMPLES / "github-action/action.yml").read_text())
    (step,) = action["runs"]["steps"]
    inputs = {"bag": "\n".join(map(str, bags)), "holdall": str(holdall), "losses": losses}
    env = {name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: inputs[match[1]], text) for name, text in step["env"].items()}
    assert set(inputs) == set(action["inputs"]) and len(env) == len(inputs) and "${{" not in step["run"]
    # A folder as a runner may have it.
    folder = world.folder / "an action"
    shutil.copytree(EXAMPLES / "github-action", folder, dirs_exist_ok=True)
    env["GITHUB_ACTION_PATH"] = str(folder)
    done = subprocess.run(["bash", "-c", step["run"]], env={**world.env, **env}, capture_output=True, text=True, timeout=DEADLINE_S)
    return done.returncode, [command for command in commands(done.stdout) if command[0] in ("error", "warning", "notice")], done.stdout


def commands(text):
    """Name, title and text of each command in a log, as GitHub's runner reads them."""
    until = None
    for line in text.splitlines():
        match = re.fullmatch(r"::([\w-]+)(?: title=([^:,]*))?::(.*)", line)
        if match is None or until not in (None, match[1]):
            continue
        until = match[3] if match[1] == "stop-commands" else None
        parts = [match[2] or "", match[3]]
        for code, meaning in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
            parts = [part.replace(code, meaning) for part in parts]
        yield match[1], *parts


def test_the_suite_and_the_steps_that_run_it_are_understood(world):
    folder = world.folder / "regress"
    shutil.copytree(EXAMPLES / "regress", folder)
    ran = world.run("regress", folder / "suite.yaml", "-o", world.folder / "results")
    # Only the bags are missing.
    assert ran.returncode == 2 and f"yard: cannot open {folder / 'bags/yard'}: no such file" in ran.stderr, ran.stderr
    for lines, _ in ci_jobs():
        (line,) = [line for line in lines if line.startswith("holdall ")]
        assert line == "holdall regress suite.yaml -o results"
        assert set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", line)) <= {*flags_of(world, "regress"), "-o"}


def ci_jobs():
    """The lines of shell in the job for each server of continuous integration, and whether it has submodules."""
    (github,) = yaml.safe_load((EXAMPLES / "regress/github.yml").read_text())["jobs"].values()
    # GitLab's runner has git and git-lfs of its own.
    runs = [line for step in github["steps"] for line in step.get("run", "").splitlines() if "git-lfs" not in line]
    with_submodules = any(step.get("with", {}).get("submodules") for step in github["steps"])
    gitlab = yaml.safe_load((EXAMPLES / "regress/gitlab.yml").read_text())["regress"]
    return (runs, with_submodules), (gitlab["before_script"] + gitlab["script"], "GIT_SUBMODULE_STRATEGY" in gitlab["variables"])


def test_the_steps_that_run_a_suite_install_holdall_as_the_readme_does():
    (github, has), (gitlab, also_has) = ci_jobs()
    assert github == gitlab and has and also_has
    (install,) = [line for line in github if line.startswith("make ")]
    assert re.search(r"^make install\b", (ROOT / "README.md").read_text(), re.MULTILINE)
    # What make would run in the folder of the submodule puts the program where root's shells find it.
    steps = subprocess.run(shlex.split(install.replace(" holdall ", f" {ROOT} ")) + ["--dry-run"], capture_output=True, text=True)
    assert steps.returncode == 0 and re.search(r"install .* /usr/local/bin/holdall$", steps.stdout, re.MULTILINE), steps
    # The toolchain is installed as in the workflow that tests holdall itself, which has the file that names it.
    (rustup,) = [line for line in github if "rustup" in line]
    workflow = (ROOT / ".github/workflows/test.yml").read_text()
    assert rustup in workflow and "image: ros:jazzy" in workflow and (ROOT / "rust-toolchain.toml").exists()
    # And before the suite is run.
    assert github.index(rustup) < github.index(install) < github.index("holdall regress suite.yaml -o results")


def test_the_action_finds_damage_and_losses(world):
    whole, lossy, cut = (world.folder / name for name in ("whole", "lossy", "cut"))
    _, flood = [world.talker(plan, wait_for_subscriptions=1) for plan in ({**CHATTER, "count": 50}, {**FLOOD, "count": 500})]
    recorders = [
        world.holdall("record", "--topics", "/chatter", "--max-recording-messages", "50", "-o", whole),
        world.holdall("record", "--topics", "/flood", "--max-cache-size", "64KiB", "-o", lossy),
    ]
    recorders[0].wait()
    flood.done()
    assert recorders[1].stop()[0] == 3
    shutil.copytree(whole, cut)
    (file,) = cut.glob("*.mcap")
    os.truncate(file, file.stat().st_size // 2)
    assert check(world, whole)[:2] == (0, [])
    code, said, text = check(world, whole, lossy)
    ((command, title, sentences),) = said
    assert (code, command, title) == (1, "error", f"messages are lost: {lossy}") and "/flood" in sentences and "\n" in sentences, text
    code, said, _ = check(world, lossy, losses="warn")
    assert code == 0 and [command for command, *_ in said] == ["warning"]
    assert check(world, lossy, losses="ignore")[:2] == (0, [])
    code, said, text = check(world, cut, losses="ignore")
    assert code == 1 and said[0][:2] == ("error", f"not sound: {cut}"), text
    assert check(world, world.folder / "nowhere")[0] == 1
    for wrong in (check(world), check(world, whole, losses="perhaps"), check(world, whole, holdall="/no/such program")):
        assert wrong[0] == 2 and [command for command, *_ in wrong[1]] == ["error"], wrong
    # Names that a shell, or GitHub's log, could take for something else.
    odd = [world.folder / name for name in ("two words", "50%: a,b::error::x", "-a*")]
    for bag in odd:
        shutil.copytree(whole, bag)
    assert check(world, *odd)[:2] == (0, [])
    for bag in odd:
        (file,) = bag.glob("*.mcap")
        os.truncate(file, file.stat().st_size // 2)
    code, said, text = check(world, whole, *odd, losses="ignore")
    assert code == 1 and {title for _, title, _ in said if title.startswith("not sound: ")} == {f"not sound: {bag}" for bag in odd}, text
    assert {str(bag) for bag in odd} <= {group for name, _, group in commands(text) if name == "group"}, text
