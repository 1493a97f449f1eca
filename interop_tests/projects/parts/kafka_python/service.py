"""What the tests of kafka-python import of its repository's test/service.py, which its package lacks. A Kafka that runs
elsewhere needs no more."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    def __init__(self, *_, **__):
        raise NotImplementedError("these tests take a Kafka that runs")
