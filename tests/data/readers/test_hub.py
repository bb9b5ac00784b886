"""A stand-in for the hub answers, refuses or stays silent. The library's own variables say where it is."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from experiments.config.compose import compose
from experiments.data.cache import Cache
from experiments.data.corpus import open_corpus
from experiments.data.errors import DataError
from experiments.data.kinds.hub import Hub
from experiments.data.readers.hub import HubPlace
from tests.fixtures.campaign import in_campaigns

COMMIT = "c0ffee" * 6 + "abcd"
BASE = {
    "kind": "hub",
    "path": "owner/set",
    "name": None,
    "revision": "main",
    "column": "text",
    "documents": "row",
    "train": "train",
    "validation": "validation",
    "test": None,
    "streaming": False,
    "max_documents": None,
}
# answers each line of stdin with lines, the last of them empty; the import is no part of what it times
OPEN = """
import json, sys, time
from pathlib import Path
import datasets
from experiments.data.corpus import open_corpus
from experiments.data.cache import Cache
from experiments.data.kinds.hub import Hub
from experiments.failures.failure import Mistake

for line in sys.stdin:
    for settings, cache in json.loads(line):
        start = time.perf_counter()
        try:
            corpus = open_corpus(Hub.model_validate(settings), Cache(Path(cache), print))
            documents = list(corpus.documents())
            answer = {"documents": len(documents), "identity": corpus.identity}
        except Mistake as error:
            answer = {"error": str(error)}
        print(json.dumps(answer | {"seconds": time.perf_counter() - start}))
    print(flush=True)
"""
WAY_OUT = "data=python_docs needs no network; data=text data.train=FILE reads a text of your own"

Ask = Callable[..., list[dict[str, object]]]
Interpreter = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def address() -> tuple[str, int]:
    """The address of the hub. Nobody listens there, unless the test has a fixture that does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()


@pytest.fixture(scope="module")
def interpreter(python, address: tuple[str, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    """interpreter(**environment): another interpreter that asks this hub, one for each environment."""
    home = tmp_path_factory.mktemp("home")
    variables = {"HF_ENDPOINT": "http://{}:{}".format(*address), "HF_HOME": str(home)}
    started: dict[tuple[tuple[str, str], ...], subprocess.Popen[str]] = {}

    def start(**environment: str) -> subprocess.Popen[str]:
        key = tuple(environment.items())
        if key not in started:
            started[key] = python(OPEN, **variables, **environment)
        return started[key]

    start.home = home
    yield start
    errors = [process.communicate(timeout=60)[1] for process in started.values()]
    assert not any(errors), errors


@pytest.fixture
def home(interpreter: Interpreter) -> Iterator[Path]:
    """The folder of the library's caches, which are empty before and after the test."""
    yield interpreter.home
    for cache in ("datasets", "hub"):
        shutil.rmtree(interpreter.home / cache, ignore_errors=True)


@pytest.fixture
def ask(interpreter: Interpreter, home: Path, tmp_path: Path) -> Ask:
    """ask(*changes, **environment): open data sets of the hub in another interpreter, which prints nothing else."""

    def opened(*changes: dict[str, object], **environment: str) -> list[dict[str, object]]:
        process = interpreter(**environment)
        print(json.dumps([(BASE | change, str(tmp_path / "cache")) for change in changes]), file=process.stdin)
        process.stdin.flush()
        return [json.loads(line) for line in iter(process.stdout.readline, "\n")]

    return opened


@pytest.fixture
def closed() -> None:
    """Nobody listens at the hub's address."""


@pytest.fixture
def mute(address: tuple[str, int]) -> Iterator[None]:
    """A hub that accepts requests and never answers."""
    with socket.create_server(address):
        yield


class Refusing(BaseHTTPRequestHandler):
    """Answers as the hub does for owner/set and its branch main."""

    def do_GET(self) -> None:
        code = "RepoNotFound" if "/owner/set/" not in self.path else "RevisionNotFound"
        if self.path.endswith("/datasets/owner/gated/revision/main"):
            code = "GatedRepo"
        self.send_response(403 if code == "GatedRepo" else 404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def refusing(address: tuple[str, int]) -> Iterator[None]:
    server = HTTPServer(address, Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data set as one finds it in a folder."""
    made = tmp_path / "set"
    made.mkdir()
    for split, number in [("train", 100), ("validation", 10)]:
        rows = {"text": [f"{split} document {row}" for row in range(number)], "id": list(range(number))}
        pq.write_table(pa.table(rows), made / f"{split}-00000-of-00001.parquet")
    return made


@pytest.fixture
def downloaded(folder: Path, home: Path) -> None:
    """The library's caches as they are after main of owner/set, which is COMMIT, was downloaded: made from the folder,
    and renamed.
    """
    import datasets

    made = home / "datasets"
    datasets.load_dataset(str(folder), cache_dir=str(made))
    (version,) = [path for path in made.glob("set/default*/0.0.0/*") if path.is_dir()]
    shutil.copytree(version, made / "owner___set" / "default" / "0.0.0" / COMMIT)
    (info,) = made.glob(f"owner___set/default/0.0.0/{COMMIT}/dataset_info.json")
    info.write_text(json.dumps(json.loads(info.read_text()) | {"config_name": "default"}))
    shutil.rmtree(made / "set")
    refs = home / "hub" / "datasets--owner--set" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text(COMMIT)


@pytest.mark.parametrize("hub", ["closed", *in_campaigns("mute")])
def test_an_unreachable_hub_is_said_with_a_way_out(ask: Ask, request: pytest.FixtureRequest, hub: str) -> None:
    request.getfixturevalue(hub)
    (answer,) = ask({})
    # the library alone waits for 23 s and more, beside what it computes
    assert answer["seconds"] < 20
    assert "data.path=owner/set" in answer["error"]
    assert "the Hugging Face hub cannot be reached" in answer["error"]
    assert answer["error"].endswith(WAY_OUT)
    assert "\n" not in answer["error"]


def test_what_the_hub_does_not_have_is_said(ask: Ask, refusing: None) -> None:
    set_, branch, commit, gated, name = ask(
        {"path": "owner/sett"},
        {"revision": "mian"},
        {"revision": COMMIT},
        {"path": "owner/gated"},
        {"path": "no such set"},
    )
    assert set_["error"].startswith("data.path=owner/sett: the hub has no such data set")
    assert branch["error"].startswith("data.revision=mian: data.path=owner/set has no such branch, tag or commit")
    assert commit["error"].startswith(f"data.revision={COMMIT}: data.path=owner/set has no such branch, tag or commit")
    assert "log in with `hf auth login`" in gated["error"]
    assert name["error"].startswith("data.path=no such set is neither a folder nor owner/name")


def test_what_was_downloaded_loads_without_the_hub(ask: Ask, closed: None, downloaded: None) -> None:
    branch, commit, other, tag, streamed = ask(
        {},
        {"revision": COMMIT},
        {"revision": "0" * 40},
        {"revision": "v2.0"},
        {"streaming": True, "validation": None},
    )
    assert branch["documents"] == commit["documents"] == 110
    assert branch["identity"] == commit["identity"]
    assert commit["identity"]["commit"] == COMMIT
    for answer, needed in ((other, f"commit {'0' * 40}"), (tag, "data.revision=v2.0")):
        assert f"data.path=owner/set: {needed} is needed" in answer["error"]
        assert f"the downloaded one is data.revision={COMMIT}" in answer["error"]
    assert streamed["documents"] == 100
    assert streamed["identity"]["held_out"] == {"validation": 1, "test": 1}
    (told,) = ask({}, HF_HUB_OFFLINE="1")
    assert told["documents"] == 110


def test_a_commit_that_was_noted_needs_no_hub(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", print)
    cache.remember(["hub", "owner/set", "main"], COMMIT)
    assert open_corpus(Hub.model_validate(BASE), cache).identity["commit"] == COMMIT


def test_a_folder_is_read_and_known_by_its_bytes(ask: Ask, closed: None, folder: Path) -> None:
    whole, cut, streamed, typo, number, split, name, slices = ask(
        {"path": str(folder)},
        {"path": str(folder), "train": "train[:50%]"},
        {"path": str(folder), "streaming": True, "max_documents": 30},
        {"path": str(folder), "column": "txt"},
        {"path": str(folder), "column": "id"},
        {"path": str(folder), "train": "trian"},
        {"path": str(folder), "name": "large"},
        {"path": str(folder), "streaming": True, "train": "train[:50%]"},
    )
    assert [answer["documents"] for answer in (whole, cut, streamed)] == [110, 60, 32]
    assert len(whole["identity"]["sha256"]) == 64
    assert typo["error"].endswith("has no such column; there is id, text (did you mean text?)")
    assert number["error"].startswith("data.column=id: train of data set ")
    assert number["error"].endswith("set, row 0, has int there, not text")
    assert "trian" in split["error"]
    assert "['train', 'validation']" in split["error"]
    assert "data.name=large" in name["error"]
    assert "data.streaming=false reads train[:50%]" in slices["error"]


def test_a_folder_that_is_not_there_is_told_the_nearest(ask: Ask, closed: None, folder: Path) -> None:
    near, far = ask({"path": f"{folder}t"}, {"path": str(folder.parent / "reviews")})
    assert near["error"].startswith(f"data.path={folder}t (did you mean the folder {folder}?) is neither a folder nor")
    assert "did you mean" not in far["error"]


def test_a_folder_that_cannot_be_listed_has_no_near_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    place = HubPlace(str(tmp_path / "sets"), None, "main")
    assert place.near_folder == f" (did you mean the folder {tmp_path / 'set'}?)"

    def refused(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refused)
    assert place.near_folder == ""


def test_a_folder_of_lines_or_tables_needs_no_setting_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "train.jsonl").write_text("".join(f'{{"text": "line {row}"}}\n' for row in range(40)))
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "mine.csv").write_text("id,text\n" + "".join(f'{row},"line {row}"\n' for row in range(40)))
    found = []
    for name in ("lines", "table"):
        settings = compose(["data=hub", f"data.path={tmp_path / name}"])
        found.append(list(open_corpus(settings.data, Cache(tmp_path / "cache", None)).documents()))
    assert found[0] == found[1] and len(found[0]) == 40


def test_what_the_library_cannot_read_is_said(tmp_path: Path) -> None:
    (folder := tmp_path / "lines").mkdir()
    (folder / "train.jsonl").write_text('{"text": "good"}\n{"text": "bad",}\n')
    wrong = {folder: "train: JSON parse error: .* in row 1", folder / "train.jsonl": "is a file; give the folder"}
    for path, said in wrong.items():
        data = Hub.model_validate(BASE | {"path": str(path), "validation": None})
        with pytest.raises(DataError, match=said):
            list(open_corpus(data, Cache(tmp_path / "cache", None)).documents())


def test_the_folder_changes_and_so_does_its_identity(folder: Path, tmp_path: Path) -> None:
    settings = Hub.model_validate(BASE | {"path": str(folder)})
    cache = Cache(tmp_path / "cache", print)
    before = open_corpus(settings, cache).identity
    pq.write_table(pa.table({"text": ["other"]}), folder / "validation-00000-of-00001.parquet")
    assert open_corpus(settings, cache).identity != before
    with pytest.raises(DataError):
        list(open_corpus(settings.model_copy(update={"column": "none"}), cache).documents())


def test_a_folder_that_changes_while_it_is_read_is_refused(folder: Path, tmp_path: Path) -> None:
    corpus = open_corpus(Hub.model_validate(BASE | {"path": str(folder)}), Cache(tmp_path / "cache", print))
    corpus.check()
    pq.write_table(pa.table({"text": ["other"]}), folder / "validation-00000-of-00001.parquet")
    with pytest.raises(DataError, match=r"data\.path=.*set: a file changed while it was read"):
        corpus.check()


@pytest.mark.parametrize(
    ("train", "other", "shared"),
    [
        ("train", "train", True),
        ("train", "train[:5%]", True),
        ("train[10:]", "train", True),
        ("train[:95%]", "train[90%:]", True),
        ("train[:100]", "train[99:200]", True),
        ("validation+train[:50%]", "test+train[10%:20%](pct1_dropremainder)", True),
        # both begin with the first row, or end with the last
        ("train[:100000]", "train[:5%]", True),
        ("train[50%:]", "train[1000:]", True),
        ("train[:-100]", "train[:5%]", True),
        ("train[-10:]", "train[-20:]", True),
        # percentages counted from the end
        ("train[:-10%]", "train[:50%]", True),
        ("train[-10%:]", "train[-20%:]", True),
        ("train[5%:]", "train[-5%:]", True),
        ("train[:-5%]", "train[90%:99%]", True),
        # all rows
        ("train[:100%]", "train[1000:2000]", True),
        ("train[1000:2000]", "train[0%:]", True),
        ("train[:95%]", "train[95%:]", False),
        ("train[:-5%]", "train[-5%:]", False),
        ("train[:100]", "train[100:200]", False),
        ("train", "validation", False),
        # it depends on the number of rows
        ("train[:100]", "train[5%:]", False),
        ("train[100:200]", "train[5%:10%]", False),
        ("train[5:-100]", "train[50:]", False),
        ("train[:-100]", "train[-100:]", False),
    ],
)
def test_splits_that_share_rows_are_refused_before_the_hub_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, train: str, other: str, shared: bool
) -> None:
    monkeypatch.setattr("experiments.data.readers.hub.source", lambda place, cache: {"commit": COMMIT})
    cache = Cache(tmp_path, None)
    for key in ("validation", "test"):
        data = Hub.model_validate({**BASE, "validation": "dev", "train": train, key: other})
        if shared:
            with pytest.raises(
                DataError, match=rf"data\.train=.* and data\.{key}=.* have common rows; a text for eval"
            ):
                open_corpus(data, cache)
        else:
            assert open_corpus(data, cache).identity["splits"][key] == other


def test_splits_for_evaluation_that_share_rows_are_refused_with_slices_that_can_be_typed() -> None:
    data = Hub.model_validate({**BASE, "validation": "dev[:60%]", "test": "dev[50%:]"})
    said = r"data\.validation=.* and data\.test=.* have common rows; a text for evaluation must be in one split only"
    with pytest.raises(DataError, match=said) as caught:
        open_corpus(data, Cache(Path("unused"), None))
    hint = str(caught.value).partition("such as ")[2]
    assert OverridesParser.create().parse_overrides(shlex.split(hint))[1].value() == "dev[95%:]"
