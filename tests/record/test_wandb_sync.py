"""W&B online, with a server in this process that keeps what it receives, and with servers that fail."""

from __future__ import annotations

import gzip
import json
import re
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from experiments.failures.failure import Failure, Mistake
from experiments.record.folder import RunFolder, config_text
from experiments.record.mirrors import wandb_server, wandb_sync
from tests.fixtures.record import leave_result

KEY = "0123456789" * 4


class Handler(BaseHTTPRequestHandler):
    """The three queries and the stream of W&B's protocol that a run needs."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        request = json.loads(body)
        self.server.posts += 1
        if self.server.status != 200:
            self.answer({"errors": [{"message": "refused"}]})
        elif self.path.endswith("/file_stream"):
            run = self.server.runs[self.path.split("/")[-2]]
            run["complete"] |= request.get("complete", False)
            for name, file in request.get("files", {}).items():
                stored = run["files"].setdefault(name, [])
                stored[file["offset"] :] = file["content"]
            self.answer({"limits": {}})
        else:
            query = {
                "RunResumeStatus": self.resume_status,
                "UpsertBucket": self.upsert,
                "CreateRunFiles": self.upload_urls,
            }[request["operationName"]]
            self.answer({"data": query(request["variables"])})

    def resume_status(self, variables):
        run = self.server.runs.get(variables["name"])
        return {
            "model": {"id": "1", "name": "attn", "entity": {"id": "1", "name": "me"}, "bucket": run and bucket(run)}
        }

    def upsert(self, variables):
        name = variables["name"]
        inserted = name not in self.server.runs
        run = self.server.runs.setdefault(name, {"name": name, "files": {}, "config": "{}", "complete": False})
        run |= {key: value for key, value in variables.items() if value is not None}
        return {"upsertBucket": {"bucket": bucket(run), "inserted": inserted}}

    def upload_urls(self, variables):
        url = f"http://127.0.0.1:{self.server.server_port}/upload"
        files = [{"name": name, "uploadUrl": url} for name in variables["files"]]
        return {"createRunFiles": {"runID": "1", "uploadHeaders": [], "files": files}}

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({})

    def answer(self, content):
        body = json.dumps(content).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def bucket(run):
    history = run["files"].get("wandb-history.jsonl", [])
    summary = run["files"].get("wandb-summary.json", ["{}"])
    project = {"id": "1", "name": run.get("project"), "entity": {"id": "1", "name": "me"}}
    return {
        "id": "1",
        "name": run["name"],
        "displayName": run.get("displayName"),
        "config": run["config"],
        "summaryMetrics": summary[-1],
        "historyLineCount": len(history),
        "historyTail": json.dumps(history[-1:]),
        "eventsLineCount": 0,
        "eventsTail": "[]",
        "logLineCount": 0,
        "tags": run.get("tags"),
        "project": project,
        "wandbConfig": json.dumps({"t": {"started": True}}),
    }


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.runs, server.status, server.posts = {}, 200, 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def login(port):
    return {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": f"http://127.0.0.1:{port}"}


def log_of(train):
    path = train.folder.path / "log.txt"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def steps(run):
    return [json.loads(line)["_step"] for line in run["files"]["wandb-history.jsonl"]]


HURRY = """
import experiments.record.mirrors.wandb_server as tracking
tracking.START_SECONDS = tracking.FINISH_SECONDS = 2.0
"""
SYNC = """
from experiments.failures.failure import Failure, Mistake
from experiments.record.mirrors.wandb_sync import sync
try:
    print(sync([RunFolder(path)], ("attn", None), print, runs_named=False, project_named=False))
except Failure as error:
    print(error.exit_code.name, error)
"""
# from here on an upload fails
NO_UPLOAD = """
from experiments.record.mirrors import wandb_sync
wandb_sync.begin = None
"""


@pytest.mark.campaign
def test_online_when_logged_in_and_one_run_after_a_kill(train, server):
    done = train("begin(); train(0, 3); time.sleep(3); os.kill(os.getpid(), 9)", **login(server.server_port))
    assert done.stderr == ""
    assert server.posts > 0
    done = train("begin(20); train(2, 4); end()", **login(server.server_port))
    assert (done.stdout, done.stderr) == ("", "") and "W&B" not in log_of(train)
    (run,) = server.runs.values()
    assert steps(run) == [10, 20, 30, 40]
    assert (run["displayName"], run["groupName"], run["tags"]) == (train.folder.name, "sweep", ["nano", "cpu"])
    assert json.loads(run["files"]["wandb-summary.json"][-1])["validation_loss"] == 5.125
    assert json.loads(run["config"])["heads"]["value"] == 24
    assert run["complete"]
    assert train(SYNC, **login(server.server_port)).stdout.splitlines()[0].endswith("uploaded before")


def test_sync_uploads_an_offline_run_once(train, server):
    train("begin(); train(0, 2); os.kill(os.getpid(), 9)")
    first = train(SYNC, **login(server.server_port))
    assert ("2 steps uploaded" in first.stdout, first.stderr) == (True, "")
    train("begin(20); train(2, 4); end()")
    second = train(SYNC + NO_UPLOAD + SYNC, **login(server.server_port))
    assert second.stderr == "" and re.search(r"2 steps uploaded.*\n0\n.*uploaded before\n0\n$", second.stdout)
    (run,) = server.runs.values()
    assert steps(run) == [10, 20, 30, 40]
    assert (run["displayName"], run["groupName"], run["tags"]) == (train.folder.name, "sweep", ["nano", "cpu"])
    assert json.loads(run["files"]["wandb-summary.json"][-1])["validation_loss"] == 5.125
    assert run["complete"]
    assert len(list(train.folder.path.parent.glob("wandb/*/run-*.wandb"))) == 2, "one, and the link to the latest"


def test_a_run_that_is_repeated_in_another_folder_is_another_run_of_its_name(train, server):
    again = """
first, folder = folder, RunFolder(path.replace("/runs/", "/again/"))
begin(); train(1, 3); end()
""" + SYNC.replace("[RunFolder(path)]", "[first, folder]")
    train("begin(); train(0, 4); end()" + again, **login(server.server_port))
    assert [steps(run) for run in server.runs.values()] == [[10, 20, 30, 40], [20, 30]]
    assert {run["displayName"] for run in server.runs.values()} == {train.folder.name}


def test_what_a_run_logs_during_its_upload_is_sent_by_the_next_one(train, settings, server):
    settings["logger"]["wandb"] = "off"
    named = SYNC.replace("runs_named=False", "runs_named=True")
    during = """
from experiments.record.mirrors import wandb_sync
begin_upload = wandb_sync.begin
def begin_and_train(*arguments, **options):
    wandb_sync.begin = begin_upload
    train(2, 4)
    return begin_upload(*arguments, **options)
wandb_sync.begin = begin_and_train
"""
    done = train("begin(); train(0, 2); folder.close()" + during + named * 2, **login(server.server_port))
    counts = [line.split(": ")[1][:16] for line in done.stdout.splitlines() if "steps uploaded" in line]
    assert counts == ["2 steps uploaded"] * 2 and steps(*server.runs.values()) == [10, 20, 30, 40]


def test_a_run_that_is_logged_nowhere_is_uploaded_only_if_it_is_named(train, settings, server):
    settings["logger"]["wandb"] = "off"
    named = SYNC.replace("runs_named=False", "runs_named=True")
    done = train("begin(); train(0, 4); end()" + SYNC + named, **login(server.server_port))
    first, none_failed, second, *_ = done.stdout.splitlines()
    assert first.endswith("logged nowhere (logger.wandb=off)") and none_failed == "0"
    assert "4 steps uploaded" in second and len(server.runs) == 1


@pytest.mark.campaign
def test_a_sync_that_is_killed_uploads_no_step_twice(train, server):
    seeds = """
for seed in range(6):
    settings["seed"] = seed
    folder = RunFolder(f"{path}-{seed}")
    begin(); train(0, 4); end()
"""
    assert train(seeds).stderr == ""
    sync_all = SYNC.replace("[RunFolder(path)]", "[RunFolder(f'{path}-{seed}') for seed in range(6)]")
    # the process is gone as soon as the third run has begun
    kill = """
import threading
def watch():
    while not os.path.exists(path + "-kill"):
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
threading.Thread(target=watch, daemon=True).start()
"""

    def give_the_sign():
        while len(server.runs) < 3:
            time.sleep(0.01)
        train.folder.path.with_name(train.folder.name + "-kill").touch()

    threading.Thread(target=give_the_sign, daemon=True).start()
    assert train(kill + sync_all, **login(server.server_port)).returncode == -9
    again = train(sync_all, **login(server.server_port)).stdout
    assert len(server.runs) == 6 and all(run["complete"] for run in server.runs.values()), again
    assert [steps(run) for run in server.runs.values()] == [[10, 20, 30, 40]] * 6
    assert "[1/6]" in again and again.count("uploaded before") >= 2
    posts = server.posts
    assert train(sync_all, **login(server.server_port)).stdout.count("uploaded before") == 6 and server.posts == posts


def finished(folder, settings):
    """The folder of a finished run of four logged steps."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config_text(settings))
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": 10 * n, "loss": 5.0}) + "\n" for n in range(1, 5))
    )
    leave_result(folder, config=settings, validation_loss=5.125, perplexity=168.2)


@pytest.mark.campaign
def test_many_runs_are_uploaded_once_each_by_a_sync_that_is_killed_and_refused(
    server, settings, environment, tmp_path, tries, chance, say
):
    count, kills = tries(12, 2000), tries(2, 6)
    for seed in range(count):
        finished(tmp_path / "runs" / f"run-{seed:04}", {**settings, "seed": seed})

    def begun(share, first=""):
        """A sync that runs when this share of the runs has reached the server."""
        with (tmp_path / "said").open("a") as said:
            command = [sys.executable, "-c", f"{first}import cli; cli.main()", "sync"]
            begun = subprocess.Popen(
                command, cwd=tmp_path, env=environment | login(server.server_port), stdout=said, stderr=said
            )
        while len(server.runs) < share * count and begun.poll() is None:
            time.sleep(0.01)
        return begun

    for turn in range(kills):
        process = begun((turn + 1) / (kills + 2))
        time.sleep(chance.uniform(0, 0.2))
        process.kill()
        assert process.wait() == -9
    process = begun((kills + 1) / (kills + 2), HURRY)
    server.status = 500
    assert process.wait() == 1
    server.status = 200
    began = time.monotonic()
    assert begun(0).wait() == 0
    assert len(server.runs) == count and all(run["complete"] for run in server.runs.values())
    assert [steps(run) for run in server.runs.values()] == [[10, 20, 30, 40]] * count
    posts = server.posts
    say(f"{count} runs, {kills} kills; the last sync took {time.monotonic() - began:.0f} s")
    assert begun(0).wait() == 0 and server.posts == posts
    assert (tmp_path / "said").read_text().count("uploaded before") >= count


@pytest.mark.campaign
def test_sync_uploads_to_the_project_that_is_named_and_then_no_second_time(train, server):
    train("begin(); train(0, 2); end()")
    named = SYNC.replace('("attn", None)', '("other", "me")').replace("project_named=False", "project_named=True")
    assert "2 steps uploaded" in train(named, **login(server.server_port)).stdout
    (run,) = server.runs.values()
    assert (run["project"], run["entity"]) == ("other", "me")
    posts = server.posts
    for script in (named, SYNC):
        assert "uploaded before" in train(script, **login(server.server_port)).stdout
    assert server.posts == posts


def test_uploads_are_given_up_after_several_failures_in_a_row(monkeypatch, tmp_path):
    names, broken, said = "abcdefgh", "abdefgh", []

    def sync():
        folders = [RunFolder(tmp_path / name) for name in names]
        return wandb_sync.sync(folders, ("attn", None), said.append, runs_named=False, project_named=False)

    def upload(wandb, folder, upload, project_named):
        if folder.name in broken:
            raise ConnectionError("refused")
        return "4 steps uploaded"

    monkeypatch.setattr(wandb_sync, "connect", lambda: SimpleNamespace(teardown=lambda: None))
    monkeypatch.setattr(wandb_sync, "_read", lambda *_: wandb_sync.Upload({}, [], None, {}))
    monkeypatch.setattr(wandb_sync, "_upload", upload)
    with pytest.raises(Failure, match="3 runs in a row could not be uploaded, so 2 were not tried"):
        sync()
    assert [line.split(":")[0] for line in said] == [f"[{number}/8] {name}" for number, name in enumerate("abcdef", 1)]
    assert said[2] == "[3/8] c: 4 steps uploaded" and "not uploaded: ConnectionError: refused" in said[5]
    broken = "ad"
    assert sync() == 2


def test_damaged_runs_are_named_before_a_login_is_needed_and_do_not_count_as_failures_of_the_server(
    settings, tmp_path, monkeypatch
):
    names, said = ("config.yaml", "metrics.jsonl", "result.json", "good", "synced.json"), []
    for name in names:
        finished(tmp_path / name, settings)
        if name != "good":
            (tmp_path / name / name).write_text("{")
    folders = [RunFolder(tmp_path / name) for name in names]

    def sync():
        return wandb_sync.sync(folders, ("attn", None), said.append, runs_named=False, project_named=False)

    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setattr(wandb_server, "why_offline", lambda wandb: wandb_server.NO_LOGIN)
    with pytest.raises(Mistake, match="nobody is logged in"):
        sync()
    places = [line.split(": ")[:3] for line in said]
    assert places == [
        [f"[{number}/5] {name}", "not uploaded", str(tmp_path / name / name)]
        for number, name in enumerate(names, 1)
        if name != "good"
    ]
    monkeypatch.setattr(wandb_sync, "connect", lambda: None)
    monkeypatch.setattr(wandb_sync, "_upload", lambda *_: "4 steps uploaded")
    assert sync() == 4 and said[-1] == "[4/5] good: 4 steps uploaded"


def test_sync_without_a_login_or_a_network_says_so(train):
    assert "MISTAKE nobody is logged in" in train("begin(); train(0, 4); end()" + SYNC).stdout
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        said = train(SYNC, **login(closed.getsockname()[1])).stdout
    assert said.startswith("FAILED http") and "can't be reached" in said


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_a_server_behind_a_proxy_is_reached(monkeypatch, scheme):
    for name in ("no_proxy", "NO_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as proxy:
        proxy.bind(("127.0.0.1", 0))
        monkeypatch.setenv("https_proxy", f"{scheme}127.0.0.1:{proxy.getsockname()[1]}")
        assert not wandb_server._reachable("https://nowhere.invalid")
        proxy.listen()
        assert wandb_server._reachable("https://nowhere.invalid")
    printed = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    monkeypatch.setenv("https_proxy", f"{scheme}127.0.0.1:8o80")
    assert not wandb_server._reachable("https://nowhere.invalid") and not printed


@pytest.mark.campaign
@pytest.mark.parametrize("status", [401, 500])
def test_a_server_that_refuses_ends_in_an_offline_run(train, server, status):
    server.status = status
    done = train(f"{HURRY}begin(); train(0, 4); end()", **login(server.server_port))
    assert (done.stdout, done.stderr) == ("", "") and "W&B is offline, because" in log_of(train)
    (file,) = (file for file in train.folder.path.parent.glob("wandb/*/run-*.wandb") if not file.parent.is_symlink())
    assert file.parent.name.startswith("offline-run-")
    synced = train(HURRY + SYNC, **login(server.server_port))
    assert "not uploaded" in synced.stdout and synced.stdout.endswith("\n1\n") and synced.stderr == ""


@pytest.mark.campaign
def test_a_server_that_goes_away_ends_neither_the_run_nor_the_patience(train, server):
    def go_away():
        while not server.runs:
            time.sleep(0.01)
        server.status = 500

    threading.Thread(target=go_away, daemon=True).start()
    script = """
begin(); train(0, 2); time.sleep(1); train(2, 4)
at = time.monotonic(); end(); print(time.monotonic() - at < 30)
"""
    done = train(HURRY + script, **login(server.server_port))
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert "W&B is offline" not in log_of(train) and "W&B failed and is switched off" in log_of(train)
    assert train.folder.result().status == "done"
    server.status = 200
    synced = train(SYNC, **login(server.server_port))
    assert "4 steps uploaded" in synced.stdout, synced.stdout + synced.stderr


@pytest.mark.campaign
def test_a_server_that_never_answers_is_not_waited_for(train):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(100)
        script = "at = time.monotonic(); begin(); print(time.monotonic() - at < 30); train(0, 4); end()"
        done = train(HURRY + script, **login(silent.getsockname()[1]))
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert "W&B is offline, because the online start failed" in log_of(train)
