"""The web application of a review: what the page needs, and that nobody else gets anything."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from PIL import Image
from review_problems import HOSTILE, make_review, with_pictures

from manyway.cli.review import picture_access
from manyway.review.actions import Undo
from manyway.review.app import make_app
from manyway.review.data import ReviewData
from manyway.review.export import offered_exports
from manyway.review.guard import Guard
from manyway.review.journal import Journal
from manyway.review.session import Session

testclient = pytest.importorskip("starlette.testclient", reason="needs starlette and httpx")
PORT = 8765
ADDRESS = f"http://127.0.0.1:{PORT}"


@pytest.fixture(scope="module")
def guard():
    return Guard(PORT)


def serve(data: ReviewData, guard: Guard, folder: Path):
    """The session and the server of some data; pictures are in ``folder`` and exports are written to it."""
    session = Session(data, Journal(folder / "journal.sqlite", data.items_hash))
    make, find = picture_access(session.data)
    return session, make_app(session, guard, folder, make, find if make else None, stopping=lambda: True)


@pytest.fixture(scope="module")
def served(guard, tmp_path_factory):
    """One server for all tests: a session, its application and its folder."""
    folder = tmp_path_factory.mktemp("review")
    session, app = serve(with_pictures(folder), guard, folder)
    yield session, app, folder
    session.close()


@pytest.fixture
def stranger(served):
    """A client without the cookie."""
    return testclient.TestClient(served[1], base_url=ADDRESS, follow_redirects=False)


@pytest.fixture
def client(served, stranger, guard):
    """A client that was let in. What it did is taken back in the end."""
    session, *_ = served
    guard.renew()
    assert stranger.get(f"/?token={guard.token}").status_code == 200
    stranger.session = session
    before = len(list(session.journal))
    stranger.actions = lambda: list(session.journal)[before:]
    yield stranger
    for action in stranger.actions():
        session.act(Undo(key=f"after {action.key}"))
    assert session.settled.wait(20)


def post(client, path, value, **headers):
    if path == "/api/actions":
        value = {"items": client.session.data.items_hash, **value}
    sent = {"Origin": ADDRESS, **headers}
    return client.post(path, json=value, headers={name: text for name, text in sent.items() if text is not None})


# --- what the page needs


def test_an_action_is_answered_when_it_is_saved(client):
    answer = post(client, "/api/actions", {"kind": "label", "rows": [1], "labels": ["fir"], "key": "saved"})
    assert answer.json()["said"] == "photo-1.png: fir."
    assert [action.key for action in client.actions()] == ["saved"]
    client.session.settled.wait(20)
    changes = client.get("/api/changes?since=1").json()
    rows = {row[0]: row for row in changes["rows"]}
    assert client.session.classes[rows[1][1]] == "fir"
    assert sum(row[2] >= 0 for row in rows.values()) >= 4  # others have changed


def test_the_overview_names_items_but_not_where_they_are(client, served):
    overview = client.get("/api/review").json()
    folder, command = overview.pop("folder"), overview.pop("command")  # of the exports; here also of the pictures
    assert command == f"manyway review {folder}"
    text = json.dumps(overview)
    assert folder not in text
    assert "photo-39.png" in text


def test_pictures_are_turned_as_their_orientation_says_and_made_small(client, served):
    turned = Image.new("RGB", (400, 200), "white")
    turned.paste((255, 0, 0), (0, 0, 200, 200))  # red on the left
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: red comes to the top
    turned.save(served[2] / "photo-0.png", exif=exif)
    answer = client.get("/pictures/x/items/0/160")
    picture = Image.open(io.BytesIO(answer.content))
    assert answer.headers["content-type"] == "image/jpeg"
    assert "immutable" in answer.headers["cache-control"]
    assert picture.size == (80, 160)
    top, bottom = picture.getpixel((40, 20)), picture.getpixel((40, 140))
    assert top[0] > 200
    assert top[1] < 80
    assert min(bottom) > 200


def test_a_missing_picture_is_said_to_be_missing(client):
    answer = client.get("/pictures/x/items/3/160")
    assert (answer.status_code, answer.content) == (204, b"")
    action = {"kind": "label", "rows": [3], "labels": ["oak"], "key": "missing"}
    assert post(client, "/api/actions", action).status_code == 200


@pytest.mark.parametrize(("name", "rows"), [("labels.csv", 40), ("labels.xlsx", 40), ("examples.parquet", 24)])
def test_tables_are_downloaded(client, served, name, rows):
    assert client.get(f"/downloads/{name}").status_code == 404
    made = post(client, "/api/export", {"name": name}).json()
    assert made["said"] == f"{rows} rows are in {name}."
    answer = client.get(made["download"])
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
    assert len(answer.content) > 100
    assert not (served[2] / name).exists()


def test_pictures_are_sorted_into_new_folders(client, served):
    for name in ("sorted", "sorted-2", "sorted-copies"):
        said = post(client, "/api/export", {"name": name.removesuffix("-2")}).json()["said"]
        assert said == f"39 pictures are in {served[2] / name}."  # one is missing
        files = list((served[2] / name).rglob("*.png"))
        assert len(files) == 39
        assert {path.is_symlink() for path in files} == {name != "sorted-copies"}
        assert all(path.read_bytes() == (served[2] / path.name).read_bytes() for path in files)


@pytest.mark.parametrize("name", ["../labels.csv", "/labels.csv", "labels.exe", None, ["labels.csv"]])
def test_an_export_has_one_of_the_known_names(client, name):
    assert post(client, "/api/export", {"name": name}).status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        "no json", "[1]", "null", '{"kind": "label"}', '{"kind": "label", "rows": 1, "key": "k"}',
        '{"kind": "label", "rows": ["1"], "labels": ["oak"], "key": "k"}', "[" * 100_000,
        '{"kind": "label", "rows": [1], "labels": [7], "key": "k"}', '{"kind": "label", "rows": [1e400], "key": "k"}',
        '{"kind": "label", "rows": [4000], "labels": ["oak"], "key": "k"}',
        '{"kind": "label", "rows": [true], "labels": ["oak"], "key": "k"}',
        '{"kind": "label", "rows": [1], "labels": ["oak"], "key": "\\ud800"}',
        '{"kind": "label", "rows": [1], "labels": ["\\ud800"], "key": "k"}',
        '{"kind": "comment", "rows": [1], "labels": [], "key": "k"}',
    ],
)  # fmt: skip
def test_a_request_without_sense_gets_a_sentence(client, body):
    headers = {"Origin": ADDRESS, "Content-Type": "application/json"}
    body = body.replace("{", f'{{"items": "{client.session.data.items_hash}", ', 1)
    answer = client.post("/api/actions", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"].endswith(".")
    assert client.actions() == []


def test_a_page_of_another_review_cannot_act(client):
    """A port may serve another review later, and a page that stayed open may still want to save something."""
    action = {"kind": "label", "rows": [1], "labels": ["fir"], "key": "stale", "items": "another"}
    answer = post(client, "/api/actions", action)
    assert (answer.status_code, "no longer served here" in answer.json()["error"]) == (400, True)
    assert client.actions() == []


# --- nobody else gets in


def test_the_token_is_exchanged_for_a_cookie_and_leaves_the_address(stranger, guard):
    guard.renew()
    token = guard.token
    answer = stranger.get(f"/?token={token}")
    assert 'content="0; url=/"' in answer.text
    cookie = answer.headers["set-cookie"]
    assert token not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert stranger.get("/").status_code == 200
    assert "max-age" not in cookie.lower()


def test_a_token_lets_in_one_browser_and_a_new_one_is_shown_in_the_terminal(served, guard):
    shown = []
    app = make_app(served[0], guard, served[2], announce=shown.append)
    first, second = (testclient.TestClient(app, base_url=ADDRESS, follow_redirects=False) for _ in range(2))
    guard.renew()
    used = guard.address
    assert first.get(used).status_code == 200
    assert shown == []
    for _ in range(3):
        assert second.get(used).status_code == 403
    assert shown == [guard.address] != [used]  # once, however often it is asked for
    assert second.get(guard.address).status_code == 200
    assert first.get(used).status_code == second.get("/api/review").status_code == 200


PATHS = ["/api/review", "/api/changes?since=0", "/api/near/0", "/pictures/x/items/0/160", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
def test_without_the_cookie_there_is_nothing(stranger, path):
    answer = stranger.get(path)
    assert answer.status_code == 403
    assert list(answer.json()) == ["error"]


def test_without_the_cookie_the_page_says_where_the_address_is(stranger, guard):
    guard.renew()
    for query in ("", "?token=", f"?token={guard.token}x", f"?token={guard.token[:-1]}", "?token=\u00e9"):
        answer = stranger.get(f"/{query}")
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
        assert "This review is private" in answer.text
        assert "Trees" not in answer.text


def test_a_cookie_of_another_start_is_of_no_use(stranger, guard):
    stranger.cookies.set(guard.cookie, "guessed")
    assert stranger.get("/api/review").status_code == 403
    stranger.cookies.set(guard.cookie, guard.token)  # what stood in the address is not the cookie
    assert stranger.get("/api/review").status_code == 403


def test_tokens_are_long_and_new_at_every_start():
    tokens = {Guard(PORT).token for _ in range(50)}
    assert len(tokens) == 50
    assert min(map(len, tokens)) >= 32


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", "0.0.0.0:8765", ""]
)
def test_another_host_name_is_refused(client, host):
    assert client.get("/api/review", headers={"Host": host}).status_code == 403


def test_its_own_names_are_not(client, guard):
    assert client.get("/api/review").status_code == 200
    guard.renew()
    assert client.get(f"/?token={guard.token}", headers={"Host": f"localhost:{PORT}"}).status_code == 200


ACTION = {"kind": "label", "rows": [1], "labels": ["fir"]}


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"https://127.0.0.1:{PORT}"},
        {"Origin": f"http://127.0.0.1:{PORT + 1}"},
        {"Origin": f"http://localhost:{PORT}"},  # while the Host is 127.0.0.1
        {"Origin": None},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Content-Type": "text/plain"},  # what a form of another site can send
    ],
    ids=str,
)
def test_other_sites_cannot_act(client, headers):
    action = {**ACTION, "key": f"other {headers}"}
    assert post(client, "/api/actions", action, **headers).status_code == 403
    assert client.actions() == []
    assert post(client, "/api/actions", action).status_code == 200


def test_other_sites_cannot_read(client):
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}):
        assert client.get("/api/review", headers=headers).status_code == 403
    assert "access-control-allow-origin" not in client.get("/api/review").headers


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_uploaded_or_deleted(client, method):
    assert client.request(method, "/api/review", headers={"Origin": ADDRESS}).status_code in (403, 405)


@pytest.mark.parametrize(
    "path",
    [
        "/pictures/x/items/../../etc/passwd/160", "/pictures/x/items/%2e%2e%2fphoto-0.png/160",
        "/pictures/x/items/-1/160", "/pictures/x/items/40/160", "/pictures/x/items/99999999999999999999/160",
        "/pictures/x/other/0/160", "/pictures/x/items/0/161", "/pictures/x/items/0/99999", "/static/../server.py",
        f"/pictures/x/items/{'9' * 5000}/160", f"/pictures/x/items/0/{'9' * 5000}", f"/api/near/{'9' * 5000}",
        "/static/%2e%2e%2fserver.py", "/static/nothing.js", "/templates/review.html", "/api/near/40", "/api/near/x",
    ],
)  # fmt: skip
def test_only_numbers_lead_to_items(client, path):
    answer = client.get(path)
    assert answer.status_code in (403, 404)
    assert "import" not in answer.text


@pytest.mark.parametrize("since", ["", "x", "-1", "9" * 5000])
def test_changes_are_asked_for_since_a_version(client, since):
    answer = client.get(f"/api/changes?since={since}")
    assert (answer.status_code, answer.json()) == (400, {"error": "since must be a number."})


@pytest.mark.parametrize("rows", [None, [], [-1], [40], ["1"], [True]])
def test_likeness_is_about_items_of_the_review(client, rows):
    assert post(client, "/api/likeness", {"rows": rows}).status_code == 400


def test_a_table_is_offered_only_where_its_library_is_installed(session, monkeypatch):
    assert {"labels.xlsx", "labels.parquet"} <= set(offered_exports(session))
    monkeypatch.setattr("manyway.review.export.find_spec", lambda name: None)
    assert [name for name in offered_exports(session) if "csv" not in name] == []


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/api/review", "/nothing", "/api/near/99"])
def test_every_answer_has_a_strict_policy(client, path):
    for headers in (client.get(path).headers, client.get(path, headers={"Host": "evil.example"}).headers):
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_names_with_markup_are_escaped(guard, tmp_path):
    session, app = serve(make_review(title=HOSTILE), guard, tmp_path)
    client = testclient.TestClient(app, base_url=ADDRESS)
    guard.renew()
    client.get(f"/?token={guard.token}")
    page = client.get("/")
    session.close()
    assert "<img" not in page.text
    assert "{{" in page.text.split("<title>")[1].split("</title>")[0]  # shown as it is, not computed


def test_the_page_has_no_inline_code_and_no_other_address(client):
    text = client.get("/").text
    assert not re.search(r"<script(?! type=\"module\" src=\"/static/)", text)
    assert not re.search(r"\s(on\w+|style)=", text)
    assert "//" not in text.replace("<!doctype html>", "")


def test_scripts_and_styles_name_no_other_address(client):
    for name in (
        "main.js",
        "api.js",
        "commands.js",
        "model.js",
        "grid.js",
        "panel.js",
        "dialogs.js",
        "dom.js",
        "review.css",
    ):
        text = client.get(f"/static/{name}").text
        assert "http:" not in text
        assert "https:" not in text
        assert "innerHTML" not in text
