"""Activity tracking: page views and searches to sessions, top pages a window, and visitors a window.

Tables count visitors exactly, in stages (Spark chains aggregations in append mode); the live rows estimate them with
HyperLogLog sketches in one stage, which is all that update mode allows.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafkacompat.pipeline.jobs.judging import Field, Kind, date_of, judge_json, with_window_bounds
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
"""So many pages of a window are in the table."""

VISITORS_SKETCH_LG_K: Final = 14
"""Of the sketch from which live visitors are estimated: a relative standard error of 0.8 %, and 16 KB at most. A sketch of few
visitors takes a few bytes for each of them, and most pages of a window have few."""


def judge(records: DataFrame) -> DataFrame:
    """Records of both topics to the envelope, the columns of either event, and `reason`: null where it is good."""
    return judge_json(records, FIELDS)


def _is_view() -> Column:
    return F.col("topic") == ACTIVITY_PAGE_VIEWS


def _in_window(window_s: int) -> Column:
    return F.window("event_time", f"{window_s} seconds")


def sessions(events: DataFrame, gap_s: int) -> DataFrame:
    """A user's events with no more than gap_s between one and the next; session_end_ms is the time of the last event.

    Given out when the watermark has passed the end, so that it never changes (Spark has no update mode for it).
    """
    order = F.when(_is_view(), F.struct("event_time_ms", "event_id"))
    gathered = events.groupBy(F.session_window("event_time", f"{gap_s} seconds"), "user_id").agg(
        F.min("event_time_ms").alias("session_start_ms"),
        F.max("event_time_ms").alias("session_end_ms"),
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
    """The pages of a closed window by views, then by name: rank 1 is the first."""
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
    """Views, searches and the exact number of different users of a closed window."""
    users = events.groupBy(_in_window(window_s), "user_id").agg(
        F.count_if(_is_view()).alias("views"), F.count_if(~_is_view()).alias("searches")
    )
    counted = users.groupBy("window").agg(
        F.sum("views").alias("views"), F.sum("searches").alias("searches"), F.count("*").alias("visitors")
    )
    return with_window_bounds(counted).withColumn("date", date_of("window_start_ms"))


def live_windows(events: DataFrame, window_s: int) -> DataFrame:
    """Counts a page and window, and a window: the row of a whole window has no page and `whole` true. One aggregation."""
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
