"""`holdall bench report` in a real browser: by keyboard alone, light and dark, on a phone, and without a network."""

import subprocess

import pytest
from browser import PROGRAM, Browser
from conftest import HOLDALL

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")

EXPERIMENT = """
experiment: page
title: "two recorders <and> one cache"
cases:
  - label: "10 × 1 KB"
    publishers:
      publisher_groups: [small]
      small: {publishers_count: 10, topic_root: small, msg_size_bytes: 1000, msg_count_each: 20, rate_hz: 100}
benchmarks:
  - {repeat_each: 1, no_transport: true, parameters: {recorder: [holdall, double_buffered], max_cache_size: [10000000]}}
"""

# The elements that a reader can reach, in the order of the page.
REACHABLE = "[...document.querySelectorAll('a[href], summary, [tabindex]')].filter(e => e.checkVisibility({contentVisibilityAuto: true}))"
# Smallest contrast of all text with its background (WCAG), and the text.
CONTRAST = """
(() => {
  const parts = c => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  let least = [99, ''];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    if (!text || !e.checkVisibility()) continue;
    const style = getComputedStyle(e), ink = parts(e.closest('svg') ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < least[0]) least = [ratio, text];
  }
  return least;
})()
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    (folder / "page.yaml").write_text(EXPERIMENT)
    run = [HOLDALL, "bench", "run", folder / "page.yaml", "--limit-total", "16MB", "--out", folder / "out"]
    told = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    told = subprocess.run([HOLDALL, "bench", "report", folder / "out", "--out", folder / "page"], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    return folder / "page" / "report.html"


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.end()


@pytest.fixture
def browser(page, started):
    started.look(1280, 900, "light")
    started.open(page.as_uri())
    return started


def test_everything_is_reached_by_keyboard_in_the_order_of_the_page_and_is_seen_to_be(browser):
    count = browser.script(f"window.order = {REACHABLE}; order.length")
    # Link past the navigation, link to the experiment, a table, and of each plot itself and its data; the
    # number of plots depends on whether the run lasted long enough to sample the processors.
    assert count >= 5
    for place in range(count):
        browser.press("Tab")
        is_here, outline, left, width = browser.script(
            f"(() => {{ const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();"
            f" return [e === order[{place}], s.outlineStyle != 'none' && parseFloat(s.outlineWidth), r.left, r.width]; }})()"
        )
        assert is_here, f"tab {place + 1}: {browser.script('document.activeElement.outerHTML.slice(0, 200)')}"
        assert outline >= 2, f"tab {place + 1} cannot be seen"
        assert left >= 0 and width > 0, f"tab {place + 1} lies beside the page"


def test_the_first_key_leads_past_the_navigation_and_keys_open_the_data(browser):
    browser.press("Tab")
    assert browser.script("document.activeElement.className") == "skip"
    browser.press("Enter")
    assert browser.script("location.hash") == "#results"
    browser.press("Tab")
    assert browser.script("document.activeElement.closest('main') !== null")
    for key in ("Enter", " "):
        browser.script("document.querySelector('summary').focus()")
        is_open = browser.script("document.querySelector('details').open")
        browser.press(key)
        assert browser.script("document.querySelector('details').open") is not is_open, key
    # A table that is wider than its container is scrolled with the arrow keys.
    browser.look(500, 900, "light")
    browser.script("window.wide = [...document.querySelectorAll('.scroll')].find(e => e.scrollWidth > e.clientWidth); wide.focus()")
    browser.press("ArrowRight")
    assert browser.script("new Promise(done => wide.scrollLeft > 0 ? done(true) : wide.addEventListener('scroll', () => done(true)))")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(browser, scheme):
    browser.look(1280, 900, scheme)
    paper = browser.script("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 27)"}[scheme]
    browser.script("document.querySelectorAll('details').forEach(e => e.open = true)")
    ratio, text = browser.script(CONTRAST)
    assert ratio >= 4.5, f"{text!r} has a contrast of {ratio:.1f}"


def test_a_phone_moves_tables_and_plots_and_not_the_page(browser):
    browser.look(360, 740, "light", is_phone=True)
    assert browser.script("document.documentElement.scrollWidth") <= 360
    assert browser.script("[...document.querySelectorAll('main, h2, figure, .scroll, ul')].every(e => e.getBoundingClientRect().right <= 360)")
    # Letters in plots stay as large as those in tables.
    sizes = "[...document.querySelectorAll('svg text')].filter(e => e.textContent.trim()).map(e => e.getBoundingClientRect().height)"
    assert min(browser.script(sizes)) >= 8


def test_it_asks_nobody_for_anything_and_has_nothing_to_complain_about(browser, page):
    asked = [e["params"]["request"]["url"] for e in browser.events if e.get("method") == "Network.requestWillBeSent"]
    assert asked == [page.as_uri()]
    loud = [e for e in browser.events if e.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")]
    assert loud == []
    assert browser.script("document.title") == "holdall bench: results"
    assert "<and>" in browser.script("document.querySelector('section[id] h2').textContent")


def test_words_come_before_plots_and_plots_before_tables(browser):
    found = browser.script("[...document.querySelectorAll('.words, section[id] figure, section[id] table')].map(e => e.className || e.tagName)")
    assert found[0] == "words" and found.index("TABLE") > 1, found
    assert "FIGURE" not in found[found.index("TABLE") :], found


@pytest.mark.parametrize("width", [400, 1300])
def test_a_table_that_scrolls_has_a_line_that_says_so(browser, width):
    browser.look(width, 900, "light")
    wide, silent = browser.script(
        "(() => { const all = [...document.querySelectorAll('.scroll')].filter(e => e.querySelector('table') && e.scrollWidth > e.clientWidth);"
        " const says = e => e.previousElementSibling.classList.contains('hint') && e.previousElementSibling.checkVisibility();"
        " return [all.length, all.filter(e => !says(e)).length]; })()"
    )
    assert wide > 0 and silent == 0, (wide, silent)
