"""Activity tracking: page views and searches become sessions, top pages per window, and visitors per window.

Tables count visitors exactly, in several stages (Spark chains aggregations in append mode). Live rows estimate
visitors with HyperLogLog sketches in one stage, because update mode allows only one.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafkacompat.pipeline.fields import Field, Kind
from kafkacompat.pipeline.jobs.validation import (
    date_of,
    event_order,
    validate_json,
    with_window_bounds,
)
from kafkacompat.pipeline.topics import ACTIVITY_PAGE_VIEWS, ACTIVITY_SEARCHES

FIELDS: Final = (
    Field("event_id", Kind.TEXT, names=True),
    Field("user_id", Kind.TEXT, names=True),
    Field("event_time_ms", Kind.INTEGER),
    Field("page", Kind.TEXT, topic=ACTIVITY_PAGE_VIEWS),
    Field("referrer", Kind.TEXT, required=False, topic=ACTIVITY_PAGE_VIEWS),
    Field("device", Kind.TEXT, required=False, topic=ACTIVITY_PAGE_VIEWS),
    Field("query", Kind.TEXT, topic=ACTIVITY_SEARCHES),
    Field("results", Kind.INTEGER, least=0, topic=ACTIVITY_SEARCHES),
)

TOP_PAGES_A_WINDOW: Final = 100
"""Maximum number of pages of a window in the table."""

VISITORS_SKETCH_LG_K: Final = 14
"""Parameter of the sketch for live visitors: a relative standard error of 0.8 %, and at most 16 KB. A sketch of few
visitors has a few bytes per visitor, and most pages of a window have few."""


def validate(records: DataFrame) -> DataFrame:
    """Turn records of both topics into the envelope, the columns of both event types, and `reason`, which is null for
    valid records."""
    return validate_json(records, FIELDS)


def _is_view() -> Column:
    return F.col("topic") == ACTIVITY_PAGE_VIEWS


def _in_window(window_s: int) -> Column:
    return F.window("event_time", f"{window_s} seconds")


def sessions(events: DataFrame, gap_s: int) -> DataFrame:
    """Group a user's events with gaps of at most gap_s. session_end_ms is the time of the last event.

    A session is emitted when the watermark has passed its end, so it never changes (Spark has no update mode for
    sessions).
    """
    order = F.when(_is_view(), event_order())
    gathered = events.groupBy(F.session_window("event_time", f"{gap_s} seconds"), "user_id").agg(
        F.min(F.unix_millis("event_time")).alias("session_start_ms"),
        F.max(F.unix_millis("event_time")).alias("session_end_ms"),
        F.count_if(_is_view()).alias("page_views"),
        F.count_if(~_is_view()).alias("searches"),
        F.min_by("page", order).alias("first_page"),
        F.max_by("page", order).alias("last_page"),
    )
    return gathered.drop("session_window")


def session_rows(events: DataFrame, gap_s: int) -> DataFrame:
    """Sessions as rows of the table activity/sessions, partitioned by the date of their start."""
    return sessions(events, gap_s).withColumn("date", date_of("session_start_ms"))


def top_page_rows(events: DataFrame, window_s: int) -> DataFrame:
    """The pages of a closed window, ranked by views and then by name. Rank 1 is the first."""
    views = events.where(_is_view())
    visits = views.groupBy(_in_window(window_s), "page", "user_id").agg(F.count("*").alias("views"))
    pages = visits.groupBy("window", "page").agg(
        F.sum("views").alias("views"), F.count("*").alias("visitors")
    )
    listed = pages.groupBy("window").agg(
        F.array_sort(F.collect_list(F.struct((-F.col("views")).alias("order"), "page", "visitors"))).alias(
            "pages"
        )
    )
    ranked = with_window_bounds(listed).select(
        "window_start_ms",
        "window_end_ms",
        F.posexplode(F.slice("pages", 1, TOP_PAGES_A_WINDOW)).alias("position", "one"),
    )
    return ranked.select(
        "window_start_ms",
        "window_end_ms",
        (F.col("position") + 1).alias("rank"),
        "one.page",
        (-F.col("one.order")).alias("views"),
        "one.visitors",
        date_of("window_start_ms").alias("date"),
    )


def visitor_rows(events: DataFrame, window_s: int) -> DataFrame:
    """Views, searches and the exact number of distinct users of a closed window."""
    users = events.groupBy(_in_window(window_s), "user_id").agg(
        F.count_if(_is_view()).alias("views"), F.count_if(~_is_view()).alias("searches")
    )
    counted = users.groupBy("window").agg(
        F.sum("views").alias("views"), F.sum("searches").alias("searches"), F.count("*").alias("visitors")
    )
    return with_window_bounds(counted).withColumn("date", date_of("window_start_ms"))


def live_windows(events: DataFrame, window_s: int) -> DataFrame:
    """Counts per page and window, and per window, in one aggregation. The row of a whole window has no page and
    `whole` is true."""
    timed = events.select(
        _in_window(window_s).alias("window"), "user_id", "page", _is_view().alias("viewed"), "event_time"
    )
    window, page = F.col("window"), F.col("page")
    counted = timed.groupingSets([[window, page], [window]], window, page).agg(
        F.grouping("page").alias("whole"),
        F.count_if("viewed").alias("views"),
        F.count_if(~F.col("viewed")).alias("searches"),
        F.hll_sketch_estimate(F.hll_sketch_agg("user_id", VISITORS_SKETCH_LG_K)).alias("visitors"),
    )
    bounded = with_window_bounds(counted).withColumn("whole", F.col("whole") == 1)
    return bounded.where(F.col("whole") | F.col("page").isNotNull())
