FROM python:3.11-slim
WORKDIR /opt/kafkacompat
COPY . .
RUN pip install --no-cache-dir -r requirements.lock && pip install --no-cache-dir --no-deps .
VOLUME /data
EXPOSE 9092
CMD ["kafkacompat", "start", \
     "--override", "log.dirs=/data", \
     "--override", "listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093", \
     "--override", "advertised.listeners=PLAINTEXT://localhost:9092"]
