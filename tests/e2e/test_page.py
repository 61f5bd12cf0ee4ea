"""The page of `evalcar results --html` in a real Chromium: numbers, curves, keys, phone, dark mode, and nothing from outside."""

import contextlib
import json
import shutil
import subprocess

import checkpoints
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed")


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def run(bench, shards):
    """Two steps of regular and EMA weights, and one that is torn and overtaken."""
    for step in (5, 10):
        checkpoints.write_fsdp2(bench.run, step, shards)
    sidecar = bench.sidecar(tasks="docvqa_val,textvqa_val")
    assert sidecar.once() == 0, sidecar.log()
    sidecar.page = bench.home / "page.html"
    done = subprocess.run([bench.evalcar, "results", "--db", str(sidecar.database), "--html", str(sidecar.page)],
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return sidecar


@contextlib.contextmanager
def opened_at(browser, url, ready, asked, **options):
    """The page; on leaving, `asked` holds for the addresses that it asked for, in order, and the browser had nothing to complain of."""
    context = browser.new_context(**options)
    page = context.new_page()
    complaints, requests = [], []
    page.on("console", lambda message: complaints.append(f"{message.text} {message.location}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(url)
    page.wait_for_selector(ready, timeout=60000)
    yield page
    context.close()
    assert complaints == []
    assert asked(requests), requests


def opened(browser, path, **options):
    """The file, which asks for itself alone."""
    return opened_at(browser, path.as_uri(), "#scores tbody tr", lambda urls: urls == [path.as_uri()], **options)


def numbers(sidecar):
    rows = sidecar.query("SELECT step, checkpoint_type, task, value FROM metrics WHERE metric = 'anls'")
    return {(step, kind, task): value for step, kind, task, value in rows}


def test_curves_and_table_show_every_number(browser, run):
    expected = numbers(run)
    assert len(expected) == 8  # two steps, kinds and tasks
    with opened(browser, run.page) as page:
        assert page.locator(".curve").count() == 2
        assert page.locator(".curve canvas").count() >= 2
        head = page.locator("#scores thead th").all_inner_texts()
        for line in page.locator("#scores tbody tr").all():
            step = int(line.locator("th").inner_text())
            for title, cell in zip(head[1:], line.locator("td").all_inner_texts(), strict=True):
                task, _, kind = title.split(" · ")
                assert cell.startswith(f"{expected.pop((step, kind.lower(), task)):.4f}")
        assert not expected
        assert page.locator("#queue tbody tr").count() == 4
        # The canvas has the curves' two colours.
        colours = page.evaluate("""() => {
            const canvas = document.querySelector('.curve canvas');
            const bytes = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            const seen = new Set();
            for (let i = 0; i < bytes.length; i += 4) seen.add(bytes.slice(i, i + 3).join());
            return [...seen];
        }""")
        assert {"37,99,235", "194,86,12"} <= set(colours)


def test_numbers_of_other_settings_are_points_without_a_line_and_never_the_best(browser, bench):
    """The configuration changed between the two steps; the first one's checkpoint is gone since."""
    for step, value, limit in ((5, 0.9, 4), (10, 0.2, 2)):
        bench.tell(values_of_steps={str(step): value})
        checkpoints.write_hugging_face(bench.run, step)
        sidecar = bench.sidecar("--set", f"evaluate.limit={limit}")
        assert sidecar.once() == 0, sidecar.log()
        shutil.rmtree(bench.run / f"checkpoint-{step}")
    path = bench.home / "page.html"
    subprocess.run([bench.evalcar, "results", "--db", str(sidecar.database), "--html", str(path)], capture_output=True, timeout=60, check=True)

    with opened(browser, path) as page:
        cells = page.locator("#scores tbody td").all_inner_texts()
        assert [cell.split(" ±")[0] for cell in cells] == ["0.2000 ★", "0.9000 †"]
        assert page.locator("#other-hint").is_visible()
        assert page.locator(".legend").inner_text() == "regular best 0.2000 at step 10"
        lines = page.evaluate("""() => {
            const plot = [...plots.values()][0].plot;
            return plot.getLabels().slice(1).map((label) => [label, plot.getOption("strokeWidth", label)]);
        }""")
        assert lines == [["regular", 2], ["regular, other settings", 0]]


def test_the_table_is_walked_by_keys(browser, run):
    with opened(browser, run.page) as page:
        page.locator("#scores td[tabindex='0']").focus()
        for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowDown"):  # one more than there are lines
            page.keyboard.press(key)
        where = "() => { const c = document.activeElement; return [c.parentNode.sectionRowIndex, c.cellIndex]; }"
        assert page.evaluate(where) == [1, 3]
        page.keyboard.press("ArrowUp")
        assert page.evaluate(where) == [0, 3]
        assert page.locator("#scores td[tabindex='0']").count() == 1


@pytest.mark.parametrize("options", [PHONE, {"color_scheme": "dark"}], ids=["phone", "dark"])
def test_it_fits_a_phone_and_is_dark_where_it_is_asked_to(browser, run, options):
    with opened(browser, run.page, **options) as page:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert back == ("rgb(20, 23, 28)" if options.get("color_scheme") else "rgb(255, 255, 255)")


def changed_copy(run, folder, change):
    """The page with other data."""
    text = run.page.read_text()
    start = text.index('id="page-data">') + len('id="page-data">')
    data = json.loads(text[start:text.index("</script>", start)])
    change(data)
    changed = folder / "changed.html"
    inert = json.dumps(data).replace("<", "\\u003c")
    changed.write_text(text[:start] + inert + text[text.index("</script>", start):])
    return changed


def test_how_many_wait_that_are_not_listed_is_said(browser, run, tmp_path):
    with opened(browser, run.page) as page:
        listed = page.locator("#queue tbody tr").count()
        assert listed > 0 and "more wait" not in page.locator("#queue").inner_text()
    with opened(browser, changed_copy(run, tmp_path, lambda data: data["status"].update(open_left_out=1900))) as page:
        assert "1900 more wait, of lower steps." in page.locator("#queue").inner_text()
        assert page.locator("#queue tbody tr").count() == listed


def test_what_comes_from_outside_is_text(browser, run, tmp_path):
    """A task's name, a reason and a run's name are never elements."""
    evil = "</script><img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"

    def change(data):
        data["run"] = evil
        data["metrics"][0]["task"] = evil
        data["status"]["evaluations"][0]["reason"] = evil

    with opened(browser, changed_copy(run, tmp_path, change)) as page:
        assert page.title() == "evalcar " + evil
        assert page.locator("main img").count() == 0
        assert evil in page.locator("#queue").inner_text()


def test_a_page_is_not_written_into_a_checkpoint(bench, run):
    for place in (bench.run / "checkpoint-5" / "page.html", bench.run / "checkpoint-page.html"):
        done = subprocess.run([bench.evalcar, "results", "--db", str(run.database), "--html", str(place)], capture_output=True,
                              text=True, timeout=60)  # fmt: skip
        assert done.returncode == 2 and not place.exists()
