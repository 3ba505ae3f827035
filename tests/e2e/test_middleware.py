"""`holdall bench run` for experiments that compare middlewares: real ones, over an emulated link, with every message accounted for."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import HOLDALL

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not os.access("/dev/net/tun", os.R_OK | os.W_OK), reason="needs root and /dev/net/tun"
)

EXPERIMENT = """
experiment: X1
kind: middleware
title: "small messages over a short link"
repeat_each: 1
duration_s: 1
warm_up_s: 0.2
cases:
  - {label: "2 kB at 50 Hz", bytes: 2048, rate_hz: 50, reliability: reliable, depth: 10}
links:
  - {label: "good", link: "rate=54Mb/s,bottleneck=nic"}
  - {label: "bad", link: "rate=54Mb/s,loss=5%,bottleneck=nic"}
middlewares: [MIDDLEWARES]
"""

STAGES = ["not_sent", "refused", "before_match", "history", "transport", "tail", "received"]


def bench(world, folder, middlewares, *flags, text=EXPERIMENT, **options):
    path = folder / "x1.yaml"
    path.write_text(text.replace("MIDDLEWARES", middlewares))
    command = [HOLDALL, "bench", "run", path, "--out", folder / "out", "--python", sys.executable, *flags]
    return subprocess.run(
        list(map(str, command)), env=world.env, capture_output=True, text=True, timeout=240, **options
    )


@pytest.mark.parametrize("middleware", ["fastdds-sync", "cyclone"])
def test_middlewares_get_the_socket_buffers_that_they_are_given(world, tmp_path, middleware):
    text = EXPERIMENT[: EXPERIMENT.index("links:")] + 'links:\n  - {label: "one host"}\nmiddlewares: [' + middleware + "-208k]\n"
    (tmp_path / "x1.yaml").write_text(text)
    words = [HOLDALL, "bench", "run", tmp_path / "x1.yaml", "--out", tmp_path / "out", "--python", sys.executable]
    running = subprocess.Popen(list(map(str, words)), env=world.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    most = 0
    while running.poll() is None:
        # By the kernel, which counts twice what was asked for.
        lines = subprocess.run(["ss", "-uanpmO"], capture_output=True, text=True, check=True).stdout.splitlines()
        pairs = [line.split() for line in subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True).stdout.splitlines()]
        workers, found = set(), {str(running.pid)}
        while found:
            found = {pid for pid, parent in pairs if parent in found}
            workers |= found
        of_workers = [line for line in lines if any(f"pid={worker}," in line for worker in workers)]
        most = max([most, *(int(line.split(",rb")[1].split(",")[0]) for line in of_workers)])
        time.sleep(0.02)
    assert running.returncode == 0, running.stderr.read()
    assert most == 2 * 208 * 1024
    assert runs_of(tmp_path)[1][f"{middleware}-208k", "one host"]["account"]["received"] > 25


def runs_of(folder):
    result = json.loads((folder / "out/X1/evaluation.json").read_text())
    return result, {(run["middleware"], run["link"]): run for run in result["runs"]}


def test_every_message_is_accounted_for(world, tmp_path):
    middlewares = "memory, udp, tcp, cyclone, fastdds-async-tuned, cyclone-tuned"
    done = bench(world, tmp_path, f'{middlewares}, zenoh, "cyclone>fastdds-sync", "fastdds-async>cyclone", rmw_connextdds')
    assert done.returncode == 0, done.stderr
    result, runs = runs_of(tmp_path)
    assert [absent["middleware"] for absent in result["absent"]] == ["rmw_connextdds"]
    assert "no librmw_connextdds.so" in result["absent"][0]["reason"]
    assert len(runs) == 18
    for (middleware, link), run in runs.items():
        account = run["account"]
        assert account["planned"] == 50 == sum(account[stage] for stage in STAGES), (middleware, link, account)
        assert sum(count for _, count in account["histogram_us"]) == account["received"]
        assert account["delivered"] == sorted(account["delivered"])
        assert run["wire"]["balances"], (middleware, link)
        assert link == "good" or run["wire"]["lost"] > 0 or middleware == "memory"
        if link == "good" or middleware in ["memory", "tcp"]:
            # A loaded machine sends its last messages too late, and overwrites what a receiver has not taken for a fifth of a second.
            assert account["received"] + account["not_sent"] + account["history"] == 50, (middleware, link, account)
            assert account["received"] >= 25 and (middleware != "tcp" or account["history"] == 0), (middleware, link, account)
            if middleware != "memory":
                assert None not in run["matched_s"], (middleware, run["matched_s"])
                # What was received has crossed the link: nothing went by memory that both sides share.
                assert run["wire"]["forward_bytes"] > 25 * 2048, (middleware, run["wire"])
    assert runs["udp", "bad"]["account"]["transport"] + runs["udp", "bad"]["account"]["history"] > 0
    # 1400 bytes: no datagram has to be divided.
    for middleware in ["fastdds-async-tuned", "cyclone-tuned"]:
        assert runs[middleware, "good"]["wire"]["fragments"] == 0
    assert runs["cyclone", "good"]["wire"]["fragments"] > 0

    page = tmp_path / "page"
    published = Path(__file__).resolve().parents[2] / "tools/bench/tests/data/tsc-rmw"
    command = [HOLDALL, "bench", "report", tmp_path / "out", "--out", page, "--published", published]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    html = (page / "report.html").read_text()
    assert "cyclone&gt;fastdds-sync" in html and "rmw_connextdds" in html and "What became of every planned message" in html
    for name in ["X1_delivered_0", "X1_received", "X1_wire"]:
        assert (page / f"{name}.svg").stat().st_size > 1000 and (page / f"{name}.png").stat().st_size > 1000
    assert "cyclone" in (page / "X1_delivered_1.csv").read_text()


def test_two_that_never_meet_end_and_every_message_has_that_fate(world, tmp_path):
    text = EXPERIMENT.replace("loss=5%", "loss=100%").replace('  - {label: "good", link: "rate=54Mb/s,bottleneck=nic"}\n', "")
    done = bench(world, tmp_path, "cyclone", text=text)
    assert done.returncode == 0, done.stderr
    _, runs = runs_of(tmp_path)
    run = runs["cyclone", "bad"]
    assert run["account"]["before_match"] + run["account"]["not_sent"] == 50, run["account"]
    assert run["account"]["received"] == 0 and run["matched_s"] == [None, None], run


def test_two_loads_at_once_are_accounted_for_apart(world, tmp_path):
    beside = "depth: 10, beside: {label: large, bytes: 61440, rate_hz: 20, reliability: reliable, depth: 10}"
    text = EXPERIMENT.replace("depth: 10", beside).replace("2 kB at 50 Hz", "small")
    done = bench(world, tmp_path, "memory, tcp, tcpros, cyclone, zenoh, zenoh-drop, fastdds-sync-typed", "--case", "good", text=text)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out/X1/evaluation.json").read_text())
    missing = {absent["middleware"] for absent in result["absent"]}
    # Debian has ROS 1.
    assert missing <= {"tcpros"}, result["absent"]
    runs = {(run["middleware"], run["case"]): run for run in result["runs"]}
    assert len(runs) == 2 * (7 - len(missing))
    for (middleware, case), run in runs.items():
        account = run["account"]
        planned = {"small": 50, "large": 20}[case]
        assert account["planned"] == planned == sum(account[stage] for stage in STAGES), (middleware, account)
        assert account["received"] + account["not_sent"] + account["history"] == account["planned"], (middleware, case, account)
        assert account["received"] >= 10, (middleware, case, account)
        assert run["beside"] == {"small": "large", "large": "small"}[case]
        assert None not in run["matched_s"] or middleware == "memory"
    assert "zenoh-drop: zenoh of this program; a full network drops messages" in done.stdout


def test_nodes_that_start_together_know_each_other(world, tmp_path):
    text = EXPERIMENT.replace('"2 kB at 50 Hz", bytes: 2048, rate_hz: 50, reliability: reliable, depth: 10', '"2", nodes: 2')
    text = text.replace("links:", '  - {label: "3", nodes: 3}\n  - {label: "5", nodes: 5}\nlinks:')
    assert bench(world, tmp_path, "cyclone, zenoh, fastdds-async, tcp", "--case", "good", text=text).returncode == 0
    result = json.loads((tmp_path / "out/X1/evaluation.json").read_text())
    # A stream discovers nothing.
    assert {run["middleware"] for run in result["runs"]} == {"cyclone", "zenoh", "fastdds-async"}
    for run in result["runs"]:
        discovery = run["discovery"]
        assert len(discovery["known_s"]) == discovery["nodes"] == int(run["case"]), run
        assert discovery["known_s"] == sorted(discovery["known_s"]) and run["wire"]["balances"]
        assert run["wire"]["forward_packets"] > discovery["nodes"]
    subprocess.run([HOLDALL, "bench", "report", str(tmp_path / "out")], check=True, capture_output=True)
    lines = (tmp_path / "out/X1_discovery_time_0.csv").read_text().splitlines()
    assert len(lines) == 10 and (tmp_path / "out/X1_discovery_packets_0.svg").stat().st_size > 1000


def test_two_machines(world, tmp_path):
    (tmp_path / "x1.yaml").write_text(EXPERIMENT.replace("MIDDLEWARES", "cyclone, udp, tcp, iceoryx2"))
    there = [HOLDALL, "bench", "run", "--listen", "10.99.0.2"]
    for side in ["publisher", "subscriber"]:
        out = tmp_path / side
        here = [HOLDALL, "bench", "run", tmp_path / "x1.yaml", "--side", side, "--peer", "10.99.0.2", "--out", out]
        command = [HOLDALL, "bench", "link", "rate=100Mb/s", "--", *here, "--", *there]
        done = subprocess.run(list(map(str, command)), env=world.env, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        result = json.loads((out / "X1/evaluation.json").read_text())
        assert [absent["middleware"] for absent in result["absent"]] == ["iceoryx2"]
        assert {run["middleware"] for run in result["runs"]} == {"cyclone", "udp", "tcp"}
        for run in result["runs"]:
            account = run["account"]
            assert account["planned"] == 50 == sum(account[stage] for stage in STAGES), (run["middleware"], account)
            assert account["received"] + account["not_sent"] + account["history"] == 50, (run["middleware"], account)
            # Both have one clock, so that what is not the case is measured, too.
            clock = run["clock"]
            assert abs(clock["offset_ns"]) / 1e3 <= clock["error_us"] + 1 and clock["error_us"] > 0, clock
            assert run["publisher"]["rss_max_bytes"] > 1 << 20 and run["subscriber"]["rss_max_bytes"] > 1 << 20


def test_a_machine_that_is_not_there_is_named(world, tmp_path):
    command = ["--side", "publisher", "--peer", "127.0.0.1:1"]
    done = bench(world, tmp_path, "udp", *command)
    assert done.returncode == 1 and "the other machine" in done.stderr and "127.0.0.1:1" in done.stderr, done.stderr
    listening = [HOLDALL, "bench", "run", "--listen", "nowhere"]
    done = subprocess.run(listening, env=world.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "expected an address of this machine" in done.stderr, done.stderr


def test_a_worker_that_dies_costs_one_run(world, tmp_path):
    (tmp_path / "x1.yaml").write_text(EXPERIMENT.replace("MIDDLEWARES", "udp, tcp").replace("duration_s: 1", "duration_s: 5"))
    command = [HOLDALL, "bench", "run", tmp_path / "x1.yaml", "--out", tmp_path / "out", "--case", "good"]
    running = subprocess.Popen(list(map(str, command)), env=world.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    worker = None
    while worker is None and time.monotonic() < deadline:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        for child in children:
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if b"--udp" in words and b"publisher" in words:
                worker = int(child)
        time.sleep(0.02)
    os.kill(worker, signal.SIGKILL)
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 1
    assert "publisher of udp" in errors and "--resume" in errors, errors
    _, runs = runs_of(tmp_path)
    assert list(runs) == [("tcp", "good")]

    kept = (tmp_path / "out/X1/case_0/link_0/tcp_0/run.json").read_bytes()
    done = subprocess.run(list(map(str, [*command, "--resume"])), env=world.env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    _, runs = runs_of(tmp_path)
    assert set(runs) == {("udp", "good"), ("tcp", "good")}
    assert (tmp_path / "out/X1/case_0/link_0/tcp_0/run.json").read_bytes() == kept

    again = subprocess.run(list(map(str, command)), env=world.env, capture_output=True, text=True, timeout=60)
    assert again.returncode == 2 and "is not empty" in again.stderr
    scaled = [*command, "--resume", "--scale", "0.5"]
    other = subprocess.run(list(map(str, scaled)), env=world.env, capture_output=True, text=True, timeout=60)
    assert other.returncode == 2 and "--scale: expected 1, as of the finished runs" in other.stderr


@pytest.mark.parametrize(
    "flags, expected",
    [
        (["--middleware", "corba"], "expected one of fastdds-sync"),
        (["--middleware", "udp>tcp"], "do not meet on one wire"),
        (["--middleware", "iceoryx2-tuned"], "has no tuned settings"),
        (["--case", "worse"], "X1 has only good; bad"),
        (["--recorder", "holdall"], "compares middlewares"),
        (["--transport", "dds"], "compares middlewares"),
        (["--scale", "0"], "expected a number above 0"),
    ],
)
def test_what_cannot_be_run_is_refused(world, tmp_path, flags, expected):
    done = bench(world, tmp_path, "udp", *flags)
    assert done.returncode == 2 and expected in done.stderr, done.stderr
    assert not (tmp_path / "out/X1").exists()


def test_an_output_that_the_ends_of_a_link_do_not_share_is_refused(world, tmp_path):
    (tmp_path / "x1.yaml").write_text(EXPERIMENT.replace("MIDDLEWARES", "udp"))
    out = Path("/dev/shm") / tmp_path.name
    command = [HOLDALL, "bench", "run", tmp_path / "x1.yaml", "--out", out]
    done = subprocess.run(list(map(str, command)), env=world.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--out: expected a folder outside of /dev/shm" in done.stderr, done.stderr
    assert not (out / "X1").exists()


def test_a_broken_file_is_refused_with_its_line(world, tmp_path):
    text = EXPERIMENT.replace("loss=5%", "loss=5")
    done = bench(world, tmp_path, "udp", text=text)
    assert done.returncode == 2 and "a share from 0% to 100%" in done.stderr and "x1.yaml" in done.stderr, done.stderr


def test_published_data_with_other_columns_are_refused(world, tmp_path):
    assert bench(world, tmp_path, "memory").returncode == 0
    data = tmp_path / "data"
    data.mkdir()
    (data / "d3_d4_d5_mininet.csv").write_text("a,b\n1,2\n")
    command = [HOLDALL, "bench", "report", tmp_path / "out", "--published", data]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode != 0 and "is not the published data" in done.stderr


def test_answers_and_repositories_are_drawn_from_files(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "my_survey_counts.csv").write_text(
        "question,cohort,strongly_disagree,disagree,neutral,agree,strongly_agree,not_applicable\n"
        "Q<1>,a,0,0,1,2,17,0\nQ<1>,b,15,3,2,0,0,1\n"
    )
    (data / "my_repository_items.csv").write_text(
        "repository,kind,number,opened_at,closed_at,state,open_for_s\n"
        "me/mine,issue,1,2020-01-01 00:00:00,2020-01-03 00:00:00,closed,172800\n"
        "me/mine,issue,2,2020-01-01 00:00:00,,open,\n"
    )
    (data / "my_survey_questions.csv").write_text('question,text\nQ<1>,"Is it <good>, by and large?"\n')
    command = [HOLDALL, "bench", "run", "D8", "--data", data, "--out", tmp_path / "out", "--json"]
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    assert result["questions"][0]["text"] == "Is it <good>, by and large?"
    assert [answers["mean"] for answers in result["questions"][0]["cohorts"]] == [4.8, 1.35]
    assert result["questions"][0]["comparison"]["p_holm"] < 1e-6 and result["items"][0]["median_days"] == 2.0
    subprocess.run([HOLDALL, "bench", "report", str(tmp_path / "out")], check=True, capture_output=True)
    html = (tmp_path / "out/report.html").read_text()
    assert "Q&lt;1&gt;: Is it &lt;good&gt;, by and large?" in html and "Q<1>" not in html
    assert (tmp_path / "out/D8_answers.png").stat().st_size > 1000 and (tmp_path / "out/D8_issues.svg").stat().st_size > 1000
    assert "D8_commits" not in html
    (data / "my_survey_counts.csv").write_text("a,b\n1,2\n")
    command[-2] = tmp_path / "other"
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode in (1, 2) and "holds no counts of answers" in done.stderr and "my_survey_counts.csv" in done.stderr


def test_a_repository_and_declared_quality_are_drawn(tmp_path):
    data = tmp_path / "data"
    mine = data / "mine"
    mine.mkdir(parents=True)
    git = ["git", "-C", mine, "-c", "user.name=Ann", "-c", "user.email=a@b.example"]
    subprocess.run([*git, "init", "-q"], check=True)
    for number in range(3):
        (mine / "a.txt").write_text(f"{number}\n" * (number + 1))
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", "m"], check=True)
    (data / "quality.yaml").write_text("rmw_<b>:\n  level: 2\n  testing: [yes, no, most]\n")
    command = [HOLDALL, "bench", "run", "D8", "--data", data, "--out", tmp_path / "out", "--json"]
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    (history,) = result["histories"]
    assert (history["repository"], history["commits"], history["authors"], history["bus_factor"]) == ("mine", 3, 1, 1)
    assert history["lines"] == [6, 3] and sum(history["by_week"]) == 3
    assert result["declarations"][0]["categories"][3] == {"met": 1, "with_remark": 1, "of": 3}
    assert result["declarations"][0]["remarks"] == [{"category": "testing", "text": "most"}]
    subprocess.run([HOLDALL, "bench", "report", str(tmp_path / "out")], check=True, capture_output=True)
    html = (tmp_path / "out/report.html").read_text()
    assert "remarks" in html and "rmw_&lt;b&gt;" in html and "rmw_<b>" not in html and (tmp_path / "out/D8_commits.svg").stat().st_size > 1000


def test_points_and_structures_are_accounted_for_as_bytes_are(world, tmp_path):
    case = '{label: "2 kB at 50 Hz", bytes: 2048, rate_hz: 50, reliability: reliable, depth: 10}'
    shapes = [case.replace("2 kB", shape).replace("bytes:", f"message: {shape}, bytes:") for shape in ["point_cloud", "poses"]]
    text = EXPERIMENT.replace(case, "\n  - ".join([case, *shapes]))
    # Structures on one side only: what either side serializes, the other one reads.
    middlewares = '"fastdds-sync-typed>cyclone", "cyclone>fastdds-sync-typed", fastdds-sync-typed, zenoh, tcp, udp, memory, tcpros'
    done = bench(world, tmp_path, middlewares, "--case", "good", text=text)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out/X1/evaluation.json").read_text())
    runs = {(run["middleware"], run["case"]): run for run in result["runs"] if run["middleware"] != "tcpros"}
    # rospy's worker has bytes only.
    assert len(runs) == 7 * 3 and len(result["runs"]) - len(runs) == ("tcpros" not in str(result["absent"]))
    for (middleware, case), run in runs.items():
        account = run["account"]
        assert account["planned"] == 50 == sum(account[stage] for stage in STAGES), (middleware, case, account)
        assert account["received"] >= 25, (middleware, case, account)
        if middleware not in ["memory", "udp"]:
            assert account["received"] + account["not_sent"] + account["history"] == 50, (middleware, case, account)
    unknown = bench(world, tmp_path, "cyclone", text=text.replace("message: poses", "message: pose"))
    assert unknown.returncode == 2 and "point_cloud" in unknown.stderr, unknown.stderr


def test_one_host_and_an_idle_node(world, tmp_path):
    text = EXPERIMENT.replace('{label: "good", link: "rate=54Mb/s,bottleneck=nic"}', '{label: "here"}')
    text = text.replace('  - {label: "bad", link: "rate=54Mb/s,loss=5%,bottleneck=nic"}\n', "")
    assert bench(world, tmp_path, "cyclone, fastdds-sync, iceoryx2, tcp", text=text).returncode == 0
    result, runs = runs_of(tmp_path)
    assert result["absent"] == [] and len(runs) == 4
    for (middleware, _), run in runs.items():
        account = run["account"]
        assert account["received"] + account["not_sent"] + account["history"] == 50, (middleware, account)
        assert account["received"] >= 25 and run["wire"] is None, (middleware, account)
        assert run["account"]["from_due"]["p50_ms"] > 0

    idle = tmp_path / "idle"
    idle.mkdir()
    text = text.replace('"2 kB at 50 Hz", bytes: 2048, rate_hz: 50, reliability: reliable, depth: 10', '"node", idle: true')
    done = bench(world, idle, "cyclone, fastdds-sync", text=text)
    assert done.returncode == 0 and "% of a core" in done.stdout and "received" not in done.stdout, done.stdout
    _, runs = runs_of(idle)
    for run in runs.values():
        cost = run["publisher"]
        assert run["account"]["planned"] == 0 and 0 <= cost["cpu_s"] < cost["elapsed_s"]
        assert cost["virtual_bytes"] > cost["rss_max_bytes"] > cost["anonymous_bytes"] > 1 << 20
    subprocess.run([HOLDALL, "bench", "report", str(idle / "out")], check=True, capture_output=True)
    assert "An idle node" in (idle / "out/report.html").read_text()
