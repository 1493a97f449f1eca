FROM python:3.11-slim
WORKDIR /opt/kafkacompat
COPY requirements.lock pyproject.toml README.md LICENSE NOTICE ./
COPY kafkacompat kafkacompat
RUN pip install --no-cache-dir -r requirements.lock && pip install --no-cache-dir --no-deps . \
    && useradd --system kafkacompat && install -d -o kafkacompat /data
USER kafkacompat
WORKDIR /data
VOLUME /data
EXPOSE 9092
# The host by which clients reach the container: they are told it with every answer about the cluster.
ENV ADVERTISED_HOST=localhost
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["kafkacompat", "topics", "list"]
CMD exec kafkacompat start --override log.dirs=/data \
    --override listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093 \
    --override "advertised.listeners=PLAINTEXT://$ADVERTISED_HOST:9092"
