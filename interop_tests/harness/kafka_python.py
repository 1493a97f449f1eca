"""kafka-python's producer at its end.

Its `close` raises while records are unsent, and leaves the producer open: its thread goes on, and the collection of
garbage waits for it in the middle of another test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka import KafkaProducer

ENDS_S = 30.0


def close_at_once(producer: KafkaProducer) -> None:
    """Close the producer. What it has not sent yet is dropped, and its futures fail."""
    producer._sender.force_close()
    producer._sender.join(ENDS_S)
    producer.close(timeout=ENDS_S)
