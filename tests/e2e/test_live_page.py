"""The page that the agent serves at `/`, in a real Chromium: what is new without a reload, samples, retry, and nothing from outside."""

import json
import shutil
import socket
import sqlite3
import subprocess
import time

import checkpoints
import pytest
from harness import leases
from http_server import serving
from test_page import CHROMIUM, PHONE, browser, opened_at  # noqa: F401  (a fixture)

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed")

TOKEN = "0123456789abcdef0123"
EVIL = "</script><img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>\u2028'\"&amp;"
SAMPLES = 45


def opened(browser, api, **options):  # noqa: F811
    """The agent's page, which asks nobody but the agent."""
    return opened_at(browser, api.url + "/", "#told:not(:empty)", lambda urls: all(url.startswith(api.url + "/") for url in urls), **options)


def shows(page, expression, timeout=60):
    """Waits until this is true in the page, whose policy lets nothing evaluate strings inside."""
    end = time.monotonic() + timeout
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"{expression} did not become true:\n{page.locator('body').inner_text()[:3000]}"
        page.wait_for_timeout(50)


SCORES = "document.querySelectorAll('#scores tbody tr').length"


def test_a_result_appears_without_a_reload(browser, bench):  # noqa: F811
    sidecar, api = serving(bench)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the first result")
    with opened(browser, api) as page:
        shows(page, f"{SCORES} === 1")
        page.evaluate("window.same = true")
        answers = []
        page.on("response", lambda answer: answers.append(answer) if "/page/data" in answer.url else None)
        checkpoints.write_hugging_face(bench.run, 10)
        shows(page, f"{SCORES} === 2")
        assert page.evaluate("window.same")
        assert {row["step"] for row in answers[0].json()["metrics"]} == {10}  # nothing is told twice
        ((value,),) = sidecar.query("SELECT value FROM metrics WHERE step = 10 AND metric = 'anls'")
        assert page.locator("#scores tbody tr").first.inner_text().split()[:2] == ["10", f"{value:.4f}"]
        assert "running for" in page.locator("#agent").inner_text()
        assert page.locator("#queue tbody tr").count() == 2


def test_before_there_is_a_run_it_says_so_and_waits_for_one(browser, bench):  # noqa: F811
    bench.run.rmdir()
    _, api = serving(bench)
    with opened(browser, api) as page:
        shows(page, "document.getElementById('told').textContent === 'There is no run yet; trying again.'")
        checkpoints.write_hugging_face(bench.run, 5)
        shows(page, f"{SCORES} === 1")


@pytest.mark.full
def test_it_follows_a_run_that_is_begun_anew_in_the_same_place(browser, bench):  # noqa: F811
    sidecar, api = serving(bench)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the first result")
    with opened(browser, api) as page:
        shows(page, f"{SCORES} === 1")
        first = page.locator("#run").inner_text()
        page.evaluate("window.same = true")
        page.locator("#scores td").first.click()
        shows(page, "!document.getElementById('samples').hidden")
        shutil.rmtree(bench.run)
        checkpoints.write_hugging_face(bench.run, 7)
        shows(page, f"document.getElementById('run').textContent !== {json.dumps(first)}")
        shows(page, "[...document.querySelectorAll('#scores tbody th')].map((cell) => cell.textContent).join() === '7'")
        assert page.evaluate("window.same") and page.locator("#samples").is_hidden()
        checkpoints.write_hugging_face(bench.run, 9)  # and it is told what is new of it
        shows(page, f"{SCORES} === 2")
        now = page.locator("#run").inner_text()
        assert first.rsplit("-", 1)[0] == now.rsplit("-", 1)[0]
        assert page.locator("#runs-label").is_hidden()
    assert api.get(f"/page/data?run={first}")["run"] == now  # as of a page that slept meanwhile


def test_an_address_with_a_password_works(browser, bench):  # noqa: F811
    token = bench.home / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar, api = serving(bench, "--set", f"server.token_file={token}", token=TOKEN)
    sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the result")
    inside = f"http://me:{TOKEN}@127.0.0.1:{api.port}/"
    with opened_at(browser, inside, "#told:not(:empty)", lambda urls: all(url.startswith((api.url + "/", inside)) for url in urls)) as page:
        shows(page, f"{SCORES} === 1")
        page.locator("#scores td").first.click()
        shows(page, "document.querySelectorAll('#samples-list li').length > 0")
        checkpoints.write_hugging_face(bench.run, 10)
        shows(page, f"{SCORES} === 2")  # its events, too


@pytest.fixture
def measured(bench):
    """Two steps with samples that flip, with hostile texts, in a database that is served afterwards: {doc: (before, after)}."""
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
    bench.tell(samples=SAMPLES)
    sidecar = bench.sidecar()
    assert sidecar.once() == 0, sidecar.log()
    scores = {doc: (float(doc % 3 == 0), float(doc % 2 == 0)) for doc in range(SAMPLES)}
    connection = sqlite3.connect(sidecar.database)
    rows = connection.execute("SELECT s.evaluation_id, s.doc_id, s.line, e.step FROM scored_sample s JOIN evaluation e "
                              "USING (evaluation_id)").fetchall()  # fmt: skip
    for evaluation, doc, line, step in rows:
        score = scores[doc][0 if step == 5 else 1]
        changed = json.loads(line) | {"anls": score, "input": f"What is {doc}? {EVIL}", "filtered_resps": [f"{step}:{doc} {EVIL}"],
                                      "target": [EVIL, "other"]}  # fmt: skip
        connection.execute("UPDATE scored_sample SET line = ? WHERE evaluation_id = ? AND doc_id = ?",
                           (json.dumps(changed), evaluation, doc))  # fmt: skip
    connection.commit()
    connection.close()
    return scores


def documents(page):
    return [int(text.split()[1]) for text in page.locator("#samples-list h3").all_inner_texts()]


def test_samples_are_filtered_and_leafed_through_by_keys_and_are_text(browser, bench, measured):  # noqa: F811
    _, api = serving(bench)
    wrong = [doc for doc, (_, after) in measured.items() if not after]
    flipped = [doc for doc, (before, after) in measured.items() if before != after]
    with opened(browser, api) as page:
        shows(page, f"{SCORES} === 2")
        page.locator("#scores td[tabindex='0']").focus()
        page.keyboard.press("Enter")
        shows(page, "document.querySelectorAll('#samples-list li').length === 20")
        assert documents(page) == list(range(20))
        first = page.locator("#samples-list li").first
        texts = first.locator("dd").all_inner_texts()
        assert texts == [f"What is 0? {EVIL}", f"10:0 {EVIL}", f"{EVIL} | other"]
        assert page.locator("main img").count() == 0 and page.title().startswith("evalcar ")
        page.get_by_role("button", name="later").click()
        shows(page, "document.querySelector('#samples-list h3').textContent.startsWith('document 20 ')")
        page.get_by_role("button", name="later").click()
        shows(page, "document.querySelectorAll('#samples-list li').length === 5")
        assert page.get_by_role("button", name="later").is_disabled()
        assert page.evaluate("document.activeElement.id") == "samples-title"
        page.locator("#samples-filter").select_option("wrong")
        shows(page, f"document.getElementById('samples-range').textContent.endsWith('of {len(wrong)}')")
        assert documents(page) == wrong[:20]
        page.locator("#samples-filter").select_option("flipped")
        shows(page, f"document.getElementById('samples-range').textContent.includes('of {len(flipped)}, flipped since step 5')")
        assert documents(page) == flipped[:20]
        assert f"5:{flipped[0]} {EVIL} (score" in page.locator("#samples-list li").first.inner_text()
        page.keyboard.press("Escape")
        assert page.locator("#samples").is_hidden()
        assert page.evaluate("document.activeElement.tagName") == "TD"


def test_where_less_is_better_low_scores_are_right_and_best(browser, bench, measured):  # noqa: F811
    database = bench.sidecar().database
    connection = sqlite3.connect(database)
    connection.execute("UPDATE metric SET higher_is_better = 0")
    connection.commit()
    values = dict(connection.execute("SELECT step, value FROM metrics WHERE metric = 'anls'").fetchall())
    connection.close()
    _, api = serving(bench)
    wrong = [doc for doc, (_, after) in measured.items() if after]  # an error rate
    with opened(browser, api) as page:
        shows(page, f"{SCORES} === 2")
        assert page.locator("#scores td.best").inner_text().startswith(f"{min(values.values()):.4f} ★")
        assert f"best {min(values.values()):.4f}" in page.locator("#curves .legend").first.inner_text()
        page.locator("#scores td").first.click()
        shows(page, "document.querySelectorAll('#samples-list li').length === 20")
        classes = page.evaluate("[...document.querySelectorAll('#samples-list li')].map((item) => item.className)")
        assert classes == ["wrong" if doc in wrong else "right" for doc in range(20)]
        page.locator("#samples-filter").select_option("wrong")
        shows(page, f"document.getElementById('samples-range').textContent.endsWith('of {len(wrong)}')")
        assert documents(page) == wrong[:20]
        page.locator("#samples-filter").select_option("flipped")
        shows(page, "document.getElementById('samples-range').textContent.includes('flipped since step 5')")
        became = page.evaluate("[...document.querySelectorAll('#samples-list li')].map((item) => item.className)")
        flipped = [doc for doc, (before, after) in measured.items() if before != after]
        assert became == ["wrong" if doc in wrong else "right" for doc in flipped[:20]]
    done = subprocess.run([bench.evalcar, "results", "--db", str(database), "--compare", "5", "10", "--format", "json"],
                          capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
    (series,) = json.loads(done.stdout)
    assert series["better"] is (values[10] < values[5])
    assert (series["became_right"], series["became_wrong"]) == (
        sum(before > after for before, after in measured.values()), sum(before < after for before, after in measured.values()))


@pytest.mark.parametrize("options", [PHONE, {"color_scheme": "dark"}], ids=["phone", "dark"])
def test_it_fits_a_phone_and_is_dark_where_it_is_asked_to(browser, bench, measured, options, tmp_path):  # noqa: F811
    _, api = serving(bench)
    with opened(browser, api, **options) as page:
        shows(page, f"{SCORES} === 2")
        page.locator("#scores td").first.click()
        shows(page, "document.querySelectorAll('#samples-list li').length === 20")
        page.screenshot(path=tmp_path / "page.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        back = page.evaluate("getComputedStyle(document.getElementById('samples-filter')).backgroundColor")
        assert back == ("rgb(28, 33, 40)" if options.get("color_scheme") else "rgb(246, 247, 249)")


def test_retry_by_whoever_has_the_token(browser, bench):  # noqa: F811
    token = bench.home / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    bench.tell(error={"kind": "checkpoint", "message": EVIL, "retryable": False})
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar, api = serving(bench, "--set", f"server.token_file={token}", token=TOKEN)
    sidecar.wait_for(lambda s: s.states().get((5, "regular"), ("",))[0] == "quarantined", what="the failure")
    body = {"run": api.get("/page/data")["run"], "step": 5}
    assert api.ask("POST", "/page/retry", body, headers={"Origin": "http://evil.example"})[0] == 403
    assert api.ask("POST", "/page/retry", body, headers={"Content-Type": "text/plain"})[0] == 422
    assert api.ask("POST", "/page/retry", {"run": "other", "step": 5})[0] == 404
    assert sidecar.states()[5, "regular"][0] == "quarantined"
    bench.tell()
    with opened(browser, api, http_credentials={"username": "me", "password": TOKEN}) as page:
        shows(page, "document.querySelector('#queue button')")
        assert EVIL.replace("\u2028", "") in page.locator("#queue").inner_text().replace("\u2028", "")
        page.get_by_role("button", name="retry step 5").click()
        shows(page, f"{SCORES} === 1")
        assert page.get_by_role("button", name="retry").count() == 0
    assert sidecar.published() == {(5, "regular")}


@pytest.mark.full
def test_what_runs_and_what_waits_is_cancelled_by_whoever_has_the_token(browser, bench):  # noqa: F811
    token = bench.home / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    bench.tell(delay=600)
    for step in (5, 10):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar, api = serving(bench, "--set", f"server.token_file={token}", "--set", "evaluate.policy=every", token=TOKEN)
    sidecar.wait_for(lambda s: s.states().get((5, "regular"), ("",))[0] == "evaluating", what="the evaluation")
    sidecar.wait_for(lambda s: s.states().get((10, "regular"), ("",))[0] == "leased", what="the other one")
    assert api.ask("POST", "/page/cancel", {"run": api.get("/page/data")["run"], "evaluation": 1}, headers={"Authorization": "Bearer x"})[0] == 401
    assert api.ask("POST", "/page/cancel", {"run": api.get("/page/data")["run"], "evaluation": -1})[0] == 422
    with opened(browser, api, http_credentials={"username": "me", "password": TOKEN}) as page:
        for step in (10, 5):
            page.get_by_role("button", name=f"cancel step {step} regular").focus()
            page.keyboard.press("Enter")
            sidecar.wait_for(lambda s, step=step: s.states()[step, "regular"][0] == "skipped", what="the end")
        shows(page, "document.querySelectorAll('#queue button').length === 0")
        assert "cancelled by hand" in page.locator("#queue").inner_text()
    assert leases(bench.run) == []
    # It goes on with what comes, and a restart leaves what was cancelled as it is.
    bench.tell()
    checkpoints.write_hugging_face(bench.run, 15)
    sidecar.wait_for(lambda s: s.published() == {(15, "regular")}, what="the next one")
    sidecar.kill()
    sidecar.start()
    api.wait_until_up(sidecar)
    checkpoints.write_hugging_face(bench.run, 20)
    sidecar.wait_for(lambda s: s.published() == {(15, "regular"), (20, "regular")}, what="the one after the restart")
    assert [sidecar.states()[step, "regular"][0] for step in (5, 10)] == ["skipped"] * 2


def test_a_step_is_pinned_and_let_go_by_keys(browser, bench):  # noqa: F811
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar, api = serving(bench)
    sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the result")
    pinned = bench.run / "_evalcar" / "pinned" / "5-1-regular"
    with opened(browser, api, viewport={"width": 360, "height": 740}) as page:
        shows(page, "document.querySelector('#queue button')")
        # A phone shows it as it is. Asked until it is so: news of the agent draw the table anew, and what was looked up is gone.
        shows(page, "document.querySelector('#queue button[aria-label=\"pin step 5 regular\"]')?.getBoundingClientRect().right <= 360")
        page.get_by_role("button", name="pin step 5 regular", exact=True).focus()
        page.keyboard.press("Enter")
        shows(page, "document.activeElement.getAttribute('aria-label') === 'unpin step 5 regular'")
        assert pinned.exists()
        page.keyboard.press("Enter")
        shows(page, "document.activeElement.getAttribute('aria-label') === 'pin step 5 regular'")
        assert not pinned.exists()


def test_what_was_passed_over_is_measured_after_all_by_whoever_has_the_token(browser, bench):  # noqa: F811
    token = bench.home / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    for step in (5, 10, 15):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar, api = serving(bench, "--set", f"server.token_file={token}", "--set", "evaluate.every_nth=3", token=TOKEN)
    sidecar.wait_for(lambda s: len(s.states()) == 3 and len(s.published()) == 1, what="one of them")
    ((measured, _),) = sidecar.published()
    body = {"run": api.get("/page/data")["run"]}
    assert api.ask("POST", "/page/backfill", body, headers={"Authorization": "Bearer x"})[0] == 401
    assert api.ask("POST", "/page/backfill", body, headers={"Origin": "http://evil.example"})[0] == 403
    assert api.ask("POST", "/page/backfill", body, headers={"Content-Type": "text/plain"})[0] == 422
    assert api.ask("POST", "/page/backfill", {"run": "other"})[0] == 404
    assert {sidecar.states()[step, "regular"][0] for step in (5, 10, 15) if step != measured} == {"skipped"}
    with opened(browser, api, http_credentials={"username": "me", "password": TOKEN}) as page:
        shows(page, f"{SCORES} === 1")
        button = page.get_by_role("button", name="backfill")
        button.focus()
        page.keyboard.press("Enter")
        shows(page, "document.getElementById('answer').textContent === '2 evaluations that were passed over wait now'")
        shows(page, f"{SCORES} === 3")
        button.wait_for(state="hidden")  # nothing is left that was passed over
    assert sidecar.published() == {(step, "regular") for step in (5, 10, 15)}


@pytest.mark.full
def test_what_was_passed_over_long_ago_can_still_be_asked_for(browser, bench):  # noqa: F811
    """The page has only the newest 50 of the evaluations that have ended."""
    for step in (5, 10, *range(100, 5300, 100)):
        checkpoints.write_hugging_face(bench.run, step)
    sidecar, api = serving(bench, "--set", "evaluate.eval_steps=100")
    sidecar.wait_for(lambda s: len(s.published()) == 52 and len(s.states()) == 54, what="the results")
    assert not {5, 10} & {row["step"] for row in api.get("/page/data")["status"]["evaluations"]}
    with opened(browser, api) as page:
        shows(page, f"{SCORES} === 52")
        button = page.get_by_role("button", name="backfill")
        button.click()
        shows(page, "document.getElementById('answer').textContent === '2 evaluations that were passed over wait now'")
        shows(page, f"{SCORES} === 54")
        button.wait_for(state="hidden")


def test_only_so_many_pages_are_told_and_each_one_that_closes_makes_room(bench):
    sidecar, api = serving(bench)
    checkpoints.write_hugging_face(bench.run, 5)
    sidecar.wait_for(lambda s: s.published() == {(5, "regular")}, what="the result")
    sidecar.wait_for(lambda _: api.get("/page/data")["run"], what="the run")

    def listen():
        connection = socket.create_connection(("127.0.0.1", api.port), timeout=60)
        connection.sendall(b"GET /page/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connection, connection.recv(65536).split(b" ")[1]

    pages = [listen() for _ in range(16)]
    assert [code for _, code in pages] == [b"200"] * 16
    late, code = listen()
    assert code == b"503"
    late.close()
    pages[0][0].close()
    sidecar.wait_for(lambda _: listen()[1] == b"200", what="room")
    for connection, _ in pages[1:]:
        connection.close()
