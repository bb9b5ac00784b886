"""`attn push`: what is sent to the hub, in which name, and the messages if it cannot be sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.fixtures.command import Attn


class Hub(BaseHTTPRequestHandler):
    """A hub that knows one user, `somebody`, and keeps the names of the files that it gets."""

    def do_GET(self) -> None:
        self._read()
        self._answer(404, {})

    def do_POST(self) -> None:
        body = self._read()
        if self.path == "/api/repos/create":
            wanted = json.loads(body)
            owner = wanted["organization"] or "somebody"
            if owner == "broken":
                self._answer(501, {"error": "no storage"})
            elif owner != "somebody":
                self._answer(403, {"error": f"no rights of {owner}"})
            elif wanted["name"] == "old":
                self._answer(409, {"error": "it exists", "url": f"{self.server.url}/somebody/old"})
            else:
                self._answer(200, {"url": f"{self.server.url}/{owner}/{wanted['name']}"})
        elif self.path.endswith("/preupload/main"):
            plain = {"uploadMode": "regular", "shouldIgnore": False}
            self._answer(200, {"files": [file | plain for file in json.loads(body)["files"]]})
        elif self.path.endswith("/commit/main"):
            _, *files = (json.loads(line)["value"] for line in body.splitlines())
            name = self.path.removeprefix("/api/models/").removesuffix("/commit/main")
            self.server.commits.append((name, sorted(file["path"] for file in files)))
            self._answer(200, {"commitUrl": f"{self.server.url}/{name}/commit/c0ffee", "commitOid": "c0ffee"})
        else:
            self._answer(200, {})

    def log_message(self, *args: object) -> None:
        pass

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = b""
        while length := int(self.rfile.readline(), 16):
            chunks += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return chunks

    def _answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def hub() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Hub) as server:
        server.commits, server.url = [], f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def log_in(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(environment, "HF_TOKEN", "token")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of an export, and what importing its code leaves."""
    folder = tmp_path / "mine"
    (folder / "source" / "__pycache__").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "source/here.py", "source/__pycache__/here.pyc"):
        (folder / name).write_text("{}")
    return folder


@pytest.mark.usefixtures("log_in")
def test_a_folder_is_one_commit_in_a_new_or_an_old_name(shell: Attn, hub, folder, environment, monkeypatch):
    monkeypatch.setitem(environment, "HF_ENDPOINT", hub.url)
    monkeypatch.setitem(environment, "HF_HUB_DISABLE_XET", "1")
    # the owner of a name without one is the user
    for name, there in {"new": "somebody/new", "somebody/old": "somebody/old"}.items():
        done = shell("push", "mine", name)
        assert done.returncode == 0 and done.stdout == f"mine: {hub.url}/{there}/commit/c0ffee\n", done.output
    sent = ["config.json", "model.safetensors", "source/here.py", "tokenizer.json"]
    assert hub.commits == [("somebody/new", sent), ("somebody/old", sent)]
    refused = shell("push", "mine", "else/mine")
    assert (refused.returncode, refused.stderr) == (
        2, "attn push: else/mine: the Hugging Face hub refuses it: no rights of else\n",
    )  # fmt: skip


@pytest.mark.usefixtures("log_in")
def test_an_error_of_the_hub_is_not_a_mistake(shell: Attn, hub, folder, environment, monkeypatch):
    monkeypatch.setitem(environment, "HF_ENDPOINT", hub.url)
    done = shell("push", "mine", "broken/mine")
    said = "attn push: broken/mine: the Hugging Face hub has an error of its own (501): no storage\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.usefixtures("log_in")
def test_a_hub_that_cannot_be_reached_is_a_failure_of_one_line(shell: Attn, folder, environment, monkeypatch):
    monkeypatch.setitem(environment, "HF_ENDPOINT", "http://127.0.0.1:9")
    done = shell("push", "mine", "somebody/mine")
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("attn push: somebody/mine: cannot be sent to the Hugging Face hub: ")


def test_what_cannot_be_sent_is_a_mistake_before_the_hub_is_asked(attn: Attn, folder, monkeypatch):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert "not logged in" in refused(attn, "somebody/mine")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "token")
    assert "'some body//mine' can be no name on the Hugging Face hub" in refused(attn, "some body//mine")
    for name in ("tokenizer.json", "model.safetensors", "config.json"):
        (folder / name).unlink()
        assert f"mine: there is no {name}" in refused(attn, "somebody/mine")


def refused(attn: Attn, name: str) -> str:
    done = attn("push", "mine", name)
    assert done.returncode == 2
    return done.stderr
