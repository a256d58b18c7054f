"""The page as a browser sees it: one Chromium for all tests, no network."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dgw.commands.conclusions import heatmaps
from dgw.commands.report import rendered
from dgw.model import Run
from dgw.reports.charts.catalogue import KINDS
from dgw.reports.html.page import Extras, render
from dgw.reports.tables import build
from tests.reports.browser import Browser, Page, chromium
from tests.reports.samples import full_record
from tests.reports.test_charts import rich
from tests.reports.test_heatmap import sample as swept
from tests.reports.test_html import HOSTILE

LONGEST_S = 5.0
LARGEST_BYTES = 8_000_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as one:
        yield one


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A ladder with a wrong result, one that is hostile, and one whose time is not known."""
    records = [
        rich("naive", seconds=9e-3), rich("tiled", seconds=3e-3), rich("swizzled", seconds=1e-3),
        full_record("broken", outcome="wrong", reason="D[0, 0] is 1", measurements=()),
        full_record(f"odd {HOSTILE}", seconds=2e-3), rich("naive", 1024, seconds=4e-3),
    ]  # fmt: skip
    run = Run(id="r", created="2026-01-01T10:00:00+00:00", command=("dgw",), version="0.1", records=tuple(records))
    path = tmp_path_factory.mktemp("report") / "report.html"
    maps = heatmaps(msgspec.structs.replace(run, records=tuple(swept())))
    path.write_text(render(run, build(records), Extras(maps=maps)), encoding="utf-8")
    return browser.open(path)


def column(page: Page, number: int) -> list[str]:
    texts: list[str] = page.run(f"""[...document.querySelectorAll('#table tbody tr')].filter(r => !r.hidden)
        .map(r => r.cells[{number}].textContent.trim())""")
    return texts


def heads(page: Page) -> list[str]:
    found: list[str] = page.run("[...document.querySelectorAll('#table thead th')].map(h => h.textContent.trim())")
    return found


def press(page: Page, head: str) -> None:
    page.run(f"document.querySelectorAll('#table thead th')[{heads(page).index(head)}].querySelector('button').click()")


def test_it_opens_from_disk_without_an_error_and_asks_for_nothing_else(page: Page) -> None:
    assert page.console == []
    assert [address for address in page.requests if not address.startswith("data:")] == [page.run("location.href")]
    assert page.run("document.title").startswith("dgw: ")


def test_the_policy_keeps_scripts_and_requests_out_that_are_not_its_own(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "one.html"
    path.write_text(render(Run(id="r", created="2026-01-01", command=("dgw",), version="0"), ()), encoding="utf-8")
    page = browser.open(path)
    blocked = page.run("""new Promise(done => {
        const seen = [];
        addEventListener('securitypolicyviolation', event => seen.push(event.effectiveDirective));
        const script = document.createElement('script'); script.textContent = 'window.intruded = 1';
        const image = document.createElement('img'); image.src = 'https://example.org/x.png';
        document.body.append(script, image);
        fetch('https://example.org/').catch(() => 0);
        setTimeout(() => done(seen.map(name => name.replace('-elem', ''))), 50);
    })""")
    assert set(blocked) == {"connect-src", "img-src", "script-src"}
    assert page.run("typeof intruded") == "undefined"
    assert page.run("document.images[0].naturalWidth") == 0


@pytest.mark.parametrize("name", KINDS)
def test_every_chart_is_there_and_has_a_size(page: Page, name: str) -> None:
    box = page.run(f"""(() => {{ const svg = document.querySelector('[data-chart={name}] svg');
        for (let e = svg; e; e = e.parentElement) if (e.tagName === 'DETAILS') e.open = true;
        const b = svg.getBoundingClientRect(); return [b.width, b.height, svg.querySelectorAll('*').length]; }})()""")
    assert min(box) > 10


def test_a_sweep_is_a_map_whose_title_says_what_each_cell_is_the_best_over(page: Page) -> None:
    said = page.run("document.querySelector('[data-chart=heatmap] strong').textContent")
    assert said.endswith("BM down, BN across, best over WM")
    cells = """[...document.querySelectorAll('[data-chart=heatmap] rect')].map(r => getComputedStyle(r).fill)"""
    assert len(set(page.run(cells))) > 3
    assert page.run("document.querySelector('[data-chart=heatmap] svg').getBoundingClientRect().width") > 400
    assert page.run("document.querySelectorAll('[data-chart=heatmap] tbody tr').length") == 8


def test_a_head_sorts_by_value_and_once_more_the_other_way_with_unknown_values_last(page: Page) -> None:
    place = heads(page).index("time cold, ms")
    press(page, "time cold, ms")
    assert column(page, place) == ["1.000", "2.000", "3.000", "4.000", "9.000", "-"]
    assert page.run(f"document.querySelectorAll('#table thead th')[{place}].getAttribute('aria-sort')") == "ascending"
    press(page, "time cold, ms")
    assert column(page, place) == ["9.000", "4.000", "3.000", "2.000", "1.000", "-"]
    press(page, "case")
    assert column(page, 0)[0] == "cuda/broken"
    assert page.run("document.querySelectorAll('[aria-sort]').length") == 1


def test_words_and_choices_filter_the_cases_and_the_count_says_how_many_are_left(page: Page) -> None:
    page.run("""{ const words = document.getElementById('words'); words.value = 'naive 1024';
        words.dispatchEvent(new Event('input', {bubbles: true})) }""")
    assert column(page, 0) == ["cuda/naive"]
    assert page.run("document.getElementById('count').textContent") == "1 of 6 cases"
    page.run("""{ document.getElementById('words').value = '';
        const outcome = document.querySelector('[data-filter=outcome]'); outcome.value = 'wrong';
        outcome.dispatchEvent(new Event('input', {bubbles: true})) }""")
    assert column(page, 0) == ["cuda/broken"]
    page.run("""{ const outcome = document.querySelector('[data-filter=outcome]'); outcome.value = '';
        outcome.dispatchEvent(new Event('input', {bubbles: true})) }""")
    assert len(column(page, 0)) == 6


def test_hostile_text_is_text_and_nothing_else(page: Page) -> None:
    assert any(HOSTILE in text for text in column(page, 0))
    assert page.run("document.querySelectorAll('script').length") == 1
    assert page.run("document.querySelectorAll('b[onload]').length") == 0


def test_a_link_to_a_folded_case_unfolds_it(page: Page) -> None:
    page.run("document.querySelectorAll('details').forEach(one => one.open = false)")
    page.run("new Promise(done => { location.hash = '#case-2-1'; setTimeout(done, 50) })")
    assert page.run("document.getElementById('case-2-1').open && document.getElementById('problem-2').open")


def test_the_theme_follows_the_system_until_a_reader_chooses(page: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    page.resize(1400, 900)
    light = page.run(ground)
    page.resize(1400, 900, dark=True)
    dark = page.run(ground)
    assert light != dark
    page.run("document.getElementById('theme').click(); document.getElementById('theme').click()")
    assert page.run("document.getElementById('theme').textContent") == "Theme: light"
    assert page.run(ground) == light
    page.resize(1400, 900, dark=True, media="print")
    assert page.run(ground) == light
    page.run("document.getElementById('theme').click()")
    page.resize(1400, 900)


@pytest.mark.parametrize("width", [320, 360, 1400])
def test_every_chart_is_scaled_to_the_screen_as_a_whole_and_none_is_scrolled_sideways(page: Page, width: int) -> None:
    page.resize(width, 900)
    page.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    wide = page.run("""[...document.querySelectorAll('.chart svg')].filter(svg => {
        const box = svg.getBoundingClientRect(), drawn = svg.viewBox.baseVal;
        for (let e = svg.parentElement; e; e = e.parentElement) if (e.scrollWidth > e.clientWidth + 1) return true;
        return box.right > innerWidth || Math.abs(box.height / box.width - drawn.height / drawn.width) > .01;
    }).map(svg => svg.closest('.chart').dataset.chart)""")
    assert wide == []
    assert page.run("document.querySelectorAll('.chart svg').length") >= len(KINDS)


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_the_page_is_never_wider_than_the_screen(page: Page, width: int) -> None:
    page.resize(width, 800)
    page.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.run("document.documentElement.scrollWidth") <= width


def test_everything_that_can_be_pressed_is_reached_by_the_keyboard_and_named(page: Page) -> None:
    unnamed = page.run("""[...document.querySelectorAll('button, a, input, select, summary')]
        .filter(e => !(e.textContent.trim() || e.labels?.length || e.getAttribute('aria-label'))).length""")
    assert unnamed == 0
    assert page.run("[...document.querySelectorAll('[tabindex]')].every(e => e.tabIndex === 0)")


def test_it_prints(page: Page) -> None:
    page.resize(1400, 900)
    pdf = base64.b64decode(page.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])
    assert pdf.startswith(b"%PDF")


def test_five_hundred_cases_are_rendered_in_time_and_in_size_and_open(browser: Browser, tmp_path: Path) -> None:
    names = ("naive", "tiled", "swizzled", "double-buffered", "tensor-core")
    records = [rich(name, 64 * (1 + k), 1e-3 * (1 + i + k)) for k in range(100) for i, name in enumerate(names)]
    run = Run(id="r", created="2026-01-01T10:00:00+00:00", command=("dgw",), version="0.1", records=tuple(records))
    begin = time.process_time()
    text = rendered(run, ".html")
    assert isinstance(text, str)
    assert time.process_time() - begin <= LONGEST_S
    assert len(text.encode()) <= LARGEST_BYTES
    path = tmp_path / "large.html"
    path.write_text(text, encoding="utf-8")
    page = browser.open(path)
    assert page.console == []
    assert len(column(page, 0)) == 500
    press(page, "time cold, ms")
    assert column(page, heads(page).index("time cold, ms"))[0] == "1.000"


def test_many_problems_of_one_case_each_are_as_small() -> None:
    records = [rich("tensor-core", 64 * (1 + k), 1e-3 * (1 + k)) for k in range(50)]
    run = Run(id="r", created="2026-01-01T10:00:00+00:00", command=("dgw",), version="0.1", records=tuple(records))
    text = rendered(run, ".html")
    assert isinstance(text, str)
    assert len(text.encode()) <= LARGEST_BYTES / 10
    assert 'data-chart="times"' not in text
    few = rendered(msgspec.structs.replace(run, records=tuple(records[:3])), ".html")
    assert isinstance(few, str)
    assert few.count('data-chart="times"') == 3


def test_the_console_stayed_empty_throughout(page: Page) -> None:
    assert page.console == []
