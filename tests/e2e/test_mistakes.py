"""Mistakes that people make, one row each: the exit code, and the words of the sentence that says what to do."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import DEADLINE_S, HOLDALL

DATA = Path(__file__).resolve().parents[2] / "crates/holdall-cli/tests/data"

# Exit code, command line, words of the answer.
MISTAKES = """
2 | recrod -a | a similar subcommand exists: 'record'
2 | pllay lab | a similar subcommand exists: 'play'
2 | cut lab | here it is: holdall filter BAG -o NEW --start 10 --end 20
2 | image lab | here it is: holdall export BAG -f png
2 | filter lab -o x --start-offset 5 | --start-offset of filter is --start
2 | frobnicate | holdall -h lists the verbs
2 | bag record -a | leave out 'bag': holdall record
2 | ros2 bag play lab | leave out 'ros2 bag': holdall play
2 | record | use -a for everything, or name topics
2 | record --domain 5 | ROS_DOMAIN_ID=5 holdall record
2 | record -a --domain-id=5 | ROS_DOMAIN_ID=5 holdall record
2 | ROS_DOMAIN_ID=233 record -a | a number from 0 to 232
2 | ROS_DOMAIN_ID=robot record -a | a number from 0 to 232
2 | record -a -b 1XB | use one of B, kB, MB
2 | record -a -b 100M | MiB
2 | record -a -b 10 | 1024 bytes or more
2 | record -a -d -5 | must not be negative
2 | record -a -d soon | for example 5 or 200ms
2 | record -a --max-bag-files 3 | needs -b/--max-bag-size or -d/--max-bag-duration
2 | record -e [a | --regex "[a": not a regular expression
2 | record -e * | any text is written .*
2 | record --topics /camera/* | -e '^/camera/.*$'
2 | record --topics "/bad topic" | ' ' at byte 4 is not allowed
2 | record --topics /a//b | leaves a token empty
2 | record -a -o lab | already exists; nothing was overwritten, choose another name with -o
2 | record -a -o notes.txt/bag | notes.txt/bag: not a directory
2 | record -a -s floppy | expected one of mcap, sqlite3, leveldb
2 | record -a --storage-preset-profile fastest | expected one of none, fastwrite
2 | record -a --compression-mode zip | possible values: none, file, message
2 | record -a --qos-profile-overrides-path nowhere.yaml | nowhere.yaml: no such file
2 | record -a --qos-profile-overrides-path qos.yaml | key depht, line 2
2 | record -a --qos-override '/t: {depht: 3}' | key depht
2 | record -a --profile prof.yaml | line 2: record has no flag --flying
2 | record -a --cache-policy drop | a similar value exists
2 | record -a --trigger voltage<11 | expected a topic, for example /battery: voltage < 11.5
2 | record -a --trigger '/scan silent soon' | expected a span, for example 2s
2 | record -a --trigger '/scan rate 5' | for example rate < 5
2 | record -a --alarm '/scan often' | silent 2s, or rate < 5
2 | record -a --custom-data novalue | expected key=value
2 | record -a --transport tcp | possible values: dds
2 | record -a --encrypt-to nobody | expected age1...
2 | record -a --control-socket nowhere/x.sock | cannot make the control socket nowhere/x.sock
2 | record -a --web robot | for example 127.0.0.1:8890
2 | record -a --no-discovery --use-sim-time | /clock has to be discovered
2 | record -a --al-topics | a similar argument exists: '--all-topics'
2 | record --topic-types Image | for example sensor_msgs/msg/Image
2 | record -a -o s3://bucket/bag | send what is in it with holdall upload
2 | play | no bag is named
2 | play nope | cannot open nope: no such file or directory
2 | info la | did you mean lab
2 | play runs | there are bags in it: runs/lab, runs/other
2 | play empty | empty is not a bag
2 | play text.mcap | text.mcap is not a bag
2 | play lab --topics /imu | did you mean /imu/data?
2 | play lab -e chat | try ".*chat.*"
2 | play lab -r 0 | must be greater than 0
2 | play lab -r fast | for example 0.5
2 | play lab --start-offset 100 | beyond its duration
2 | play lab --start 100 | the messages are from @1700000000
2 | play lab --start soon | expected seconds after the first message (10), a time
2 | play lab --start 1700000001 | seconds since 1970 are written @1700000001
2 | play lab -m nonsense | expected old:=new
2 | play lab --clock-topics /a --clock-topics-all | cannot be used with
2 | play lab --wait-for-subscribers none | TOPIC=NUMBER
2 | info | holdall info BAG
2 | info nope | cannot open nope: no such file or directory
2 | info runs | there are bags in it: runs/lab, runs/other
2 | cat runs | there are bags in it: runs/lab, runs/other
2 | check runs | there are bags in it: runs/lab, runs/other
2 | audit runs | there are bags in it: runs/lab, runs/other
2 | diff lab runs | there are bags in it: runs/lab, runs/other
2 | repair runs | there are bags in it: runs/lab, runs/other
2 | reindex runs | there are bags in it: runs/lab, runs/other
2 | export runs -f csv -o x | there are bags in it: runs/lab, runs/other
2 | plot runs -o x.svg | there are bags in it: runs/lab, runs/other
2 | convert runs -o x | there are bags in it: runs/lab, runs/other
2 | filter runs -o x | there are bags in it: runs/lab, runs/other
2 | split runs -o x -d 1 | there are bags in it: runs/lab, runs/other
2 | merge lab runs -o x | there are bags in it: runs/lab, runs/other
2 | compress runs -o x | there are bags in it: runs/lab, runs/other
2 | decompress runs -o x | there are bags in it: runs/lab, runs/other
2 | decrypt runs -o x | there are bags in it: runs/lab, runs/other
2 | attach runs notes.txt | there are bags in it: runs/lab, runs/other
2 | get runs | there are bags in it: runs/lab, runs/other
2 | upload runs s3://bucket/x | there are bags in it: runs/lab, runs/other
2 | burst runs | there are bags in it: runs/lab, runs/other
2 | info empty | empty is not a bag: the directory is empty
2 | info notes.txt | neither a directory nor an MCAP, SQLite or ROS 1 bag file
2 | info nothing.mcap | the file is empty
2 | info -v -t lab | cannot be used with
2 | info --identity nokey lab | cannot open nokey
2 | cat | holdall cat BAG
2 | cat -t /tf lab | name the bag first: holdall cat BAG -t
2 | cat lab -t /imu | did you mean /imu/data?
2 | cat lab -t imu/dat | did you mean /imu/data?
2 | cat lab -w 'linear_acceleration.z > 12' | expected a topic and a colon before the expression
2 | cat lab -w '/imu/data: linear_acceleration.q > 12' | its fields are x, y, z
2 | cat lab -w '/imu/data: linear_acceleration.z >' | expected a value, found the end
2 | cat lab --start 100 | is after the last message
2 | cat lab --start marker:door | the start marker:door names none of the bags' markers (they have none)
2 | split lab -o x --at marker: | expected a marker's name
2 | record /imu/data --duration 5 | is --max-recording-duration
2 | pause | holdall control pause
2 | export lab -o q.png | holdall export lab -o q.png -f png
2 | cat lab --start + | expected seconds after the first message
2 | cat lab --start 2023-13-01 | 2026-11-25T12:03:11
2 | cat lab -n many | expected a whole number
2 | cat lab -f xml | possible values: yaml, json
2 | cat lab -l 5 | is --truncate-length
2 | export lab | holdall export lab -f csv
2 | export lab -f xlsx | possible values: csv
2 | export lab -f png -o pictures | no chosen topic has images
2 | filter lab | holdall filter lab -o NEW
2 | filter lab -o x --rate 5 | is --max-rate
2 | filter lab -o x --max-rate fast | for example 10 or 2.5Hz
2 | filter lab -o x --topics /imu | did you mean /imu/data?
2 | filter lab -o lab --topics /imu/data | already exists
2 | filter lab -o x --set '/imu/data: nofield = 1' | its fields are header
2 | filter lab -o x --shift-time soon | for example 5 or 200ms
2 | filter lab -o x --rename /a | expected old:=new
2 | convert lab | holdall convert lab -o NEW
2 | convert lab -o x -s floppy | expected one of mcap
2 | convert nope -o x | cannot open nope
2 | split lab -o x | -b/--max-bag-size, -d/--max-bag-duration, --max-bag-messages, --at or --by episode
2 | split lab -o x --count 5 | is --max-bag-messages
2 | split lab -o x --at 100 | is after the last message
2 | merge lab -o lab | already exists
2 | compress lab -o x --level most | possible values: fastest
2 | diff lab | holdall diff lab SECOND
2 | diff lab nope | cannot open nope
2 | audit nope | cannot open nope
2 | repair nope | cannot open nope
2 | reindex notes.txt | it is not a bag directory
2 | attach lab nope.txt | cannot open nope.txt
2 | attach lab | needs files, --metadata or --remove
2 | get lab nothing | nothing named nothing is attached
2 | plot lab | holdall plot lab -o NEW
2 | plot lab -o picture.gif | a picture is .html, .svg or .png
2 | plot lab -t /imu/date -o x.svg | did you mean /imu/data?
2 | plot lab -t /imu/data.linear_acceleration.q -o x.svg | its fields are x, y, z
2 | find 'lost > 0' nowhere | nowhere is not a catalog
2 | catalog nowhere -o x | no such file or directory
2 | upload lab nowhere | begins with s3://, gs:// or az://
2 | web nowhere | cannot open nowhere
2 | web 41034 41035 | a second address; expected one folder and one address
2 | web --port 9000 | holdall web 9000
2 | bridge 8765 | holdall bridge --foxglove 8765
2 | serve | holdall serve BAG
2 | top -e ( | not a regular expression
2 | hz | holdall hz TOPIC
2 | hz /imu -d 10 | is --duration
2 | hz "/a b" | ' ' at byte 2 is not allowed
1 | hz /nothing --duration 1 | this is ROS domain
1 | echo /nothing --once --timeout 1 | this is ROS domain
2 | control | for example: holdall control status
2 | control pause | no recording or playback is found in
2 | control jump | is not a request; expected one of add_marker
2 | control nowhere.sock status | cannot reach a recording or playback on nowhere.sock
2 | control status now | takes no argument
2 | help tims | did you mean times?
2 | completion tcsh | possible values: bash
2 | preflight | use -a for everything
2 | preflight -a --duration 0.1 | a trial takes a second at least
2 | check lab --contract nope.yaml | cannot open nope.yaml
2 | check lab --contract rules.yaml | rules.yaml: line 4: topics./scan.rat: unknown key; did you mean rate?
2 | contract explain notes.txt | notes.txt: line 1: expected a map
2 | contract init nope | cannot open nope
2 | contract tset rules.yaml lab | a similar subcommand exists: 'test'
2 | decrypt lab -o x | it is not encrypted
"""

ROWS = [tuple(part.strip() for part in row.split(" | ", 2)) for row in MISTAKES.strip().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    for place in ("lab", "runs/lab", "runs/other"):
        shutil.copytree(DATA / "mcap_split3", folder / place)
    (folder / "empty").mkdir()
    for name, text in {"text.mcap": "not a bag", "nothing.mcap": "", "notes.txt": "x", "qos.yaml": "/t:\n  depht: 3\n", "prof.yaml": "record:\n  flying: 1\n", "rules.yaml": "version: 1\ntopics:\n  /scan:\n    rat: 5\n"}.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(("code", "line", "words"), ROWS, ids=[line for _, line, _ in ROWS])
def test_a_mistake_has_an_answer_and_makes_nothing(world, folder, code, line, words):
    arguments = shlex.split(line)
    # Elsewhere other tests record.
    temporary = folder.with_name("temporary")
    temporary.mkdir(exist_ok=True)
    env = dict(world.env, XDG_RUNTIME_DIR=str(folder / "empty"), HOME=str(folder), TMPDIR=str(temporary))
    if arguments[0].startswith("ROS_DOMAIN_ID="):
        env["ROS_DOMAIN_ID"] = arguments.pop(0).partition("=")[2]
    before = sorted(os.listdir(folder))
    done = subprocess.run([os.path.abspath(HOLDALL), *arguments], cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL)
    assert done.returncode == int(code), done.stderr
    assert words in done.stderr and done.stdout == "", done.stderr
    assert "panicked" not in done.stderr and "os error" not in done.stderr, done.stderr
    last = [one for one in done.stderr.splitlines() if one.startswith(("holdall: ", "error: "))]
    assert len(last) == 1, done.stderr
    assert sorted(os.listdir(folder)) == before


def test_the_rows_are_at_least_those_of_the_review():
    assert len(ROWS) >= 65 and len({line for _, line, _ in ROWS}) == len(ROWS)
