"""What a user sees of the pipeline's results: figures, charts and tables, in both widths, in both color schemes, and
live."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from interop_tests.console.page import PHONE, Page, near, part
from interop_tests.console.process import ConsoleProcess
from interop_tests.console.samples import SERVICES, Result, all_results, result
from interop_tests.console.writing import Writer
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.waiting import wait_until

MADE = all_results()
OK, BAD = (21, 147, 106), (207, 52, 52)
"""The colors of 2xx and 5xx in the light color scheme."""


def of(topic: str) -> list[Result]:
    found = [each for each in MADE if each.topic == topic]
    return sorted(found, key=lambda each: int(str(each.fields.get("window_start_ms", 0))))


def number(each: Result, field: str) -> float:
    return float(str(each.fields[field]))


def loaded(page: Page) -> Page:
    page.wait_for("#services", SERVICES[-1])
    page.wait_for("#pages", "/products")
    return page


def test_the_figures_are_those_that_were_written(page: Page, shown_broker: BrokerProcess) -> None:
    tiles = loaded(page.open()).text("#tiles").split("\n")
    settled = of("logs.summary")[-2]
    assert tiles[tiles.index("Requests") + 1] == f"{number(settled, 'requests') / 60:.0f}per second"
    began = datetime.fromtimestamp(number(settled, "window_start_ms") / 1000, UTC)
    # Chromium's names of months differ in length.
    assert tiles[tiles.index("Requests") + 2].startswith(f"from {began:%H:%M}, {began:%d %b}")
    share = 100 * number(settled, "status_5xx") / number(settled, "requests")
    assert tiles[tiles.index("Server errors") + 1] == f"{share:.1f} %of requests"
    assert tiles[tiles.index("Visitors") + 1] == f"{number(of('activity.visitors')[-2], 'visitors'):,.0f}"
    assert tiles[tiles.index("Alerts") + 1] == "2in the last hour"
    assert "latest: payments" in tiles[tiles.index("Alerts") + 2]
    page.wait_for("#health", "healthy")
    assert page.text("#where") == shown_broker.bootstrap


def test_a_time_of_another_day_names_it_and_one_of_another_year_that_too(page: Page) -> None:
    page.open()
    script = """const [done] = [...arguments].slice(-1);
        import(new URL("format.js", document.querySelector("script[src]").src)).then(({ when }) => {
            const now = new Date();
            const then = new Date(Date.UTC(now.getUTCFullYear() - 2, now.getUTCMonth(), 1, 7, 5));
            done([when(now.getTime()), when(then.getTime()), when(Date.UTC(now.getUTCFullYear() + 1, 0, 1)), when(null)]);
        })"""
    today, long_ago, ahead, unknown = page.driver.execute_async_script(script)
    year = datetime.now(UTC).year
    assert len(today) == len("07:05")
    assert long_ago.startswith("07:05, 1 ")
    assert long_ago.endswith(f" {year - 2}")
    assert ahead == f"00:00, 1 Jan {year + 1}"
    assert unknown == "–"


def test_top_pages_sessions_services_and_alerts_are_listed(page: Page) -> None:
    loaded(page.open())
    pages = of("activity.top_pages")
    settled = sorted({number(each, "window_start_ms") for each in pages})[-2]
    newest = [each for each in pages if number(each, "window_start_ms") == settled]
    ranked = sorted(newest, key=lambda each: -number(each, "views"))
    shown = page.rows("#pages")
    assert [row[1] for row in shown] == [each.fields["page"] for each in ranked]
    assert [row[3] for row in shown] == [f"{number(each, 'views'):,.0f}" for each in ranked]
    assert [row[0].strip() for row in page.rows("#services")] == list(SERVICES)
    assert page.rows("#services")[0][1] == "ok"
    assert "600 MiB" in page.rows("#services")[0]
    latest = sorted(of("activity.sessions"), key=lambda each: number(each, "session_end_ms"))[-1]
    assert page.rows("#sessions")[0][0] == latest.fields["user_id"]
    alerts = page.text("#alerts")
    assert "critical payments" in alerts
    assert "resolved payments" in alerts
    assert "error_rate: 18 %, threshold 5 %" in alerts
    assert page.text("#sessions-note") == "latest session of 300 users"


def test_rejected_lines_are_text_and_never_markup(page: Page) -> None:
    loaded(page.open())
    said = page.wait_for("#rejected", "malformed line · 2", "ancient timestamp · 1")
    assert "<script>document.title='owned'</script> GET" in said
    assert page.script("return document.title") == "kafkacompat console"
    assert page.script("return document.querySelectorAll('#rejected script').length") == 0


def test_repeats_are_counted_once(page: Page, console: ConsoleProcess) -> None:
    reading = console.get("/api/results").json["reading"]
    assert reading["repeats"] > 100
    assert reading["malformed"] == 0
    said = page.open().wait_for("#reading", "repeats counted once")
    assert "result records read" in said


def test_the_bars_stand_where_and_as_high_as_the_requests_were(page: Page) -> None:
    loaded(page.open())
    bars = page.boxes("#logs-chart rect.tone-ok")
    counts = [number(each, "status_2xx") for each in of("logs.summary")]
    assert len(bars) == len(counts)
    scale = max(box["height"] for box in bars) / max(counts)
    for box, count in zip(bars, counts, strict=True):
        assert abs(box["height"] - count * scale) < 1.5
    lefts = [box["x"] for box in bars]
    assert lefts == sorted(lefts)
    assert max(lefts) - min(lefts) > 600, "the chart takes the card's width"
    assert len(page.boxes("#logs-chart .open")) == 4, "the newest window is drawn as not finished"


def test_lines_are_drawn_for_every_service(page: Page) -> None:
    loaded(page.open())
    assert len(page.boxes("#latency-chart path.line")) == len(SERVICES)
    heights = [box["height"] for box in page.boxes("#errors-chart path.line")]
    payments = heights[SERVICES.index("payments")]
    assert payments > 5 * max(height for height in heights if height != payments), "its outage stands out"
    assert page.text("#latency-chart .legend").split("\n") == list(SERVICES)
    for chart, lines in (("visitors", 3), ("latency", len(SERVICES)), ("errors", len(SERVICES))):
        pale = page.boxes(f"#{chart}-chart path.newest")
        assert len(pale) == lines, "the newest window still fills: it is no fall of the line"
        full = page.boxes(f"#{chart}-chart path.line")
        assert max(box["x"] + box["width"] for box in full) <= min(box["x"] for box in pale) + 2.5


def test_the_screenshot_has_ink_where_it_should_be(page: Page, tmp_path: Path) -> None:
    loaded(page.open())
    picture = page.picture(tmp_path / "pipeline.png")
    chart = part(picture, page.boxes("#logs-chart svg")[0])
    green, red = near(chart, OK), near(chart, BAD)
    assert sum(green) > chart.width * chart.height * 0.15
    minutes = len(of("logs.summary"))
    tall = {x * minutes // chart.width for x, count in enumerate(red) if count > 8}
    assert tall, "the outage is red"
    assert tall <= set(range(minutes - 14, minutes - 5)), "and only there"
    for selector in (
        "#visitors-chart svg",
        "#latency-chart svg",
        "#errors-chart svg",
        "#tiles .tile:first-child .spark",
    ):
        inside = part(picture, page.boxes(selector)[0])
        colours = inside.getcolors(1 << 24) or []
        background = max(count for count, _ in colours)
        assert background < inside.width * inside.height * 0.995, f"{selector} is blank"
    assert picture.getpixel((3, picture.height - 3)) == (243, 245, 248)


def test_the_colours_follow_what_the_person_prefers(page: Page, tmp_path: Path) -> None:
    loaded(page.open(dark=True))
    picture = page.picture(tmp_path / "dark.png")
    corner = picture.getpixel((3, picture.height - 3))
    assert isinstance(corner, tuple)
    assert max(corner) < 40
    card = part(picture, page.boxes("#pages")[0])
    ink = [max(colour) for count, colour in card.getcolors(1 << 24) or [] if isinstance(colour, tuple)]
    assert max(ink) > 200, "text is light"


def test_everything_fits_a_desktop_and_a_phone(page: Page) -> None:
    for size in ((1280, 900), PHONE):
        loaded(page.open(size=size))
        assert page.script("return document.documentElement.scrollWidth") == size[0]
        for box in page.boxes(".card, .tile, header.top"):
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= size[0]
        cards = page.boxes("#view-pipeline .card")
        for one in cards:
            for other in cards:
                apart = one is other or (
                    one["x"] + one["width"] <= other["x"] + 0.5
                    or other["x"] + other["width"] <= one["x"] + 0.5
                    or one["y"] + one["height"] <= other["y"] + 0.5
                    or other["y"] + other["height"] <= one["y"] + 0.5
                )
                assert apart, "no card lies over another"


def test_the_page_can_be_used_without_eyes_or_mouse(page: Page) -> None:
    loaded(page.open())
    unnamed = "return [...document.querySelectorAll('table')].filter(each => !each.caption || !each.caption.textContent).length"
    assert page.script(unnamed) == 0
    assert page.script("return document.querySelectorAll('th:not([scope])').length") == 0
    label = page.script("return document.querySelector('#logs-chart [role=img]').getAttribute('aria-label')")
    assert "Requests per second by status class" in label
    assert "5xx" in label
    page.script("document.querySelector('#logs-chart [role=img]').focus()")
    page.element("#logs-chart [role=img]").send_keys("\ue011")  # Home
    first = of("logs.summary")[0]
    tip = page.wait_for("#logs-chart .tip", "2xx", "5xx")
    assert f"{number(first, 'status_2xx') / 60:.0f}" in tip
    page.script("document.querySelector('#logs-table').open = true")
    assert len(page.rows("#logs-table")) == len(of("logs.summary"))
    assert page.script("return document.querySelector('nav a[aria-current]').textContent") == "Pipeline"


def test_nothing_is_asked_of_any_other_place(page: Page) -> None:
    loaded(page.open())
    asked = page.script("return performance.getEntriesByType('resource').map(each => each.name)")
    assert len(asked) > 8
    assert all(each.startswith(page.address) for each in asked)


def test_new_results_appear_without_a_reload(page: Page, shown_broker: BrokerProcess) -> None:
    loaded(page.open())
    page.script("window.untouched = true")
    writer = Writer(shown_broker.bootstrap)
    writer.create("metrics.rejected")
    writer.send(
        [
            result("metrics.rejected", "svc", 1, reason="wrong type: latency_ms", line="{}", received_ms=2),
            result(
                "metrics.latest", "zebra", 9, service="zebra", event_time_ms=9, host="h", memory_bytes=1024
            ),
        ]
    )
    page.wait_for("#rejected", "wrong type: latency_ms · 1")
    page.wait_for("#services", "zebra")
    assert [row[0].strip() for row in page.rows("#services")] == [*SERVICES, "zebra"]
    assert page.rows("#services")[-1][1] == "waiting", "no window of it was counted"
    assert page.script("return window.untouched") is True
    writer.write("metrics.latest", None, "zebra")
    writer.written()
    writer.delete("metrics.rejected")

    def gone() -> bool:
        return "zebra" not in page.text("#services") and "wrong type" not in page.text("#rejected")

    wait_until(gone, "the tombstone and the deleted topic have taken their rows away")
