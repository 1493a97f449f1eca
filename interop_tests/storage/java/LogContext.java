package org.apache.kafka.common.utils;

import org.slf4j.Logger;

/** Kafka 4.4 has moved this class, and LocalTieredStorage, which is published of 4.3 only, looks for it here. */
public class LogContext {
    private final org.apache.kafka.common.utils.internals.LogContext moved;

    public LogContext(String prefix) {
        moved = new org.apache.kafka.common.utils.internals.LogContext(prefix);
    }

    public Logger logger(Class<?> type) {
        return moved.logger(type);
    }
}
