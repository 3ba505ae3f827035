"""A page that a program serves: where it is, and requests with and without its token."""

import http.client
import json
import re
import time

from conftest import DEADLINE_S


def until(ready, what):
    """What `ready` returns once that is something."""
    end = time.monotonic() + DEADLINE_S
    while not (found := ready()):
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.05)
    return found


class Served(tuple):
    """Host and port of a server, and the link that was logged, which has the token."""

    __slots__ = ()
    links = {}

    @property
    def link(self):
        return self.links[tuple(self)]

    @property
    def token(self):
        return re.search(r"[?]token=([0-9a-zA-Z_-]+)", self.link).group(1)

    @property
    def root(self):
        return self.link.split("?")[0]


def served(program, what="dashboard: ", host=None):
    """What a program has logged after `what`: a dashboard, a folder's page or a port for viewers."""
    pattern = rf"{what}((?:http|ws)://([\d.]+):(\d+)/\S*)"
    program.wait_until_says(f"{what}")
    (found,) = [found for line in program.lines if (found := re.search(pattern, line))]
    address = Served((host or found.group(2), int(found.group(3))))
    Served.links[tuple(address)] = found.group(1)
    return address


def ask_bytes(address, method, path, body=None, headers=None, token=True):
    """Status and bytes of an answer; with the token of the link unless `token` is false."""
    connection = http.client.HTTPConnection(*address, timeout=DEADLINE_S)
    sent = {"Content-Type": "application/json"} if method == "POST" else {}
    if token:
        sent["Authorization"] = f"Bearer {address.token}"
    connection.request(method, path, body=None if body is None else json.dumps(body), headers={**sent, **(headers or {})})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def ask(address, method, path, body=None, headers=None, token=True):
    """Status and text of an answer."""
    code, content = ask_bytes(address, method, path, body, headers, token)
    return code, content.decode()
