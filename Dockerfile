FROM python:3.11-slim AS build
# Without a compiler the wheel is built too; records are read in Python then, more slowly.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev || echo "no compiler"
WORKDIR /build
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY kafkacompat kafkacompat
RUN pip wheel --no-cache-dir --no-deps --wheel-dir wheels .

FROM python:3.11-slim
# Health checks of compose files call nc, ps and pgrep.
RUN apt-get update && apt-get install -y --no-install-recommends netcat-openbsd procps && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/kafkacompat
COPY requirements.lock LICENSE NOTICE ./
COPY --from=build /build/wheels wheels
RUN pip install --no-cache-dir -r requirements.lock && pip install --no-cache-dir "$(echo wheels/*.whl)[metrics]" && rm -r wheels
# The user and the folders of the apache/kafka image: its volumes can be mounted here. A new volume takes the owner of
# the folder on which it is mounted, so the folders for data exist too.
RUN useradd --uid 1000 --create-home --shell /bin/bash appuser \
    && install -d -o appuser -g root -m 775 /etc/kafka /etc/kafka/secrets /var/lib/kafka /var/lib/kafka/data \
    && install -d -o appuser -g root -m 775 /mnt/shared/config /opt/kafka /opt/kafka/config /tmp/kraft-combined-logs /tmp/kafka-logs
COPY --chmod=755 deploy/image/run /etc/kafka/docker/run
# Health checks and init containers of compose files call Kafka's tools by these names.
COPY --chmod=755 deploy/image/bin/kafka-tool /opt/kafka/bin/kafka-tool
RUN for each in broker-api-versions cluster console-consumer console-producer consumer-groups get-offsets metadata-quorum server-start storage topics; \
    do ln -s kafka-tool /opt/kafka/bin/kafka-$each.sh; done
USER appuser
WORKDIR /
VOLUME ["/etc/kafka/secrets", "/var/lib/kafka/data", "/mnt/shared/config"]
EXPOSE 9092
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["python", "-m", "kafkacompat.container.health"]
CMD ["/etc/kafka/docker/run"]
