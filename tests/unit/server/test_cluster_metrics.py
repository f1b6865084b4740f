"""Metrics of all brokers of a cluster: one scrape at any of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_readers import Reader, Readers
from cluster_world import Node, ShardTable, World, may
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

from dragoman.cluster.replicas import Replicas
from dragoman.http.merged_metrics import EOF, MergedMetrics
from dragoman.server.cluster_metrics import ANSWER_TIME, REMEMBERED, BrokerParts, ClusterMetrics
from dragoman.server.cluster_status import cluster_numbers
from unit.operations.world import READY

NAMES = ("a", "b", "c")


class Scraped:
    def __init__(self, accept: str = "application/openmetrics-text") -> None:
        self.world = World(*NAMES, table=ShardTable(*NAMES))
        self.readers = Readers(self.world)
        self.accept = accept
        self.a, self.b, self.c = (self.world.nodes[name] for name in NAMES)
        for node in (self.a, self.b, self.c):
            self.share(node)

    def share(self, node: Node) -> None:
        basics = (node.broker, node.operations, node.runner, lambda: self.world.now, lambda: READY)
        parts = BrokerParts(*basics, lambda: (0, 0), list)
        node.operations.metric_sources = ClusterMetrics(node.side, node.answers, parts, self.readers.loop)
        store = node.store
        store.written, store.bytes = 0, {}  # type: ignore[attr-defined]
        node.operations.cluster_numbers = lambda: cluster_numbers(node.side, store, Replicas(0.0))  # type: ignore[arg-type]

    def scrape(self, node: Node, query: str = "brokers=all", seconds: float = 0.5, principal: str = "local") -> Reader:
        headers = [(b"accept", self.accept.encode())]
        reader = Reader(self.readers, node, "/metrics", query, principal, headers)
        self.readers.run(seconds)
        assert reader.task.done()
        return reader

    def numbers(self, node: Node, query: str = "brokers=all", seconds: float = 0.5) -> dict[str, float]:
        reader = self.scrape(node, query, seconds)
        assert reader.status == 200
        text = reader.received.decode()
        parse = read_openmetrics if "openmetrics" in self.accept else read_prometheus
        found: dict[str, float] = {}
        heads: list[str] = []
        for family in parse(text):
            heads.append(family.name)
            for each in family.samples:
                labels = ",".join(f"{name}={value}" for name, value in each.labels.items())
                name = f"{each.name}{{{labels}}}"
                assert name not in found, f"{name} is there twice"
                found[name] = each.value
        assert len(heads) == len(dict.fromkeys(heads))
        return found


@pytest.fixture(params=["application/openmetrics-text", "text/plain"])
def scraped(request: pytest.FixtureRequest) -> Iterator[Scraped]:
    made = Scraped(request.param)
    yield made
    made.readers.close()


def test_one_scrape_has_the_samples_of_all_brokers_with_their_names(scraped: Scraped) -> None:
    scraped.b.worker("resize")
    scraped.c.enqueue("crop")
    numbers = scraped.numbers(scraped.a)
    assert [numbers[f"dragoman_broker_up{{broker={name}}}"] for name in NAMES] == [1, 1, 1]
    assert numbers["dragoman_workers{broker=b,service=resize,dialect=test,state=idle}"] == 1
    assert [numbers[f"dragoman_jobs_present{{broker={name}}}"] for name in NAMES] == [0, 0, 1]
    assert all("broker=" in name for name in numbers)


def test_a_scrape_of_one_broker_has_no_label_of_it(scraped: Scraped) -> None:
    numbers = scraped.numbers(scraped.a, "")
    assert not [name for name in numbers if "broker=" in name]
    assert len(scraped.numbers(scraped.b)) > 2 * len(numbers)


def test_a_broker_that_does_not_answer_is_down(scraped: Scraped) -> None:
    assert scraped.numbers(scraped.a)["dragoman_broker_up{broker=c}"] == 1
    scraped.world.freeze("c")
    numbers = scraped.numbers(scraped.a, seconds=ANSWER_TIME + 0.5)
    assert [numbers[f"dragoman_broker_up{{broker={name}}}"] for name in NAMES] == [1, 1, 0]
    assert not [name for name in numbers if "broker=c" in name and "broker_up" not in name]


def test_a_broker_that_is_gone_stays_down_for_an_hour(scraped: Scraped) -> None:
    scraped.numbers(scraped.a)
    scraped.world.freeze("c")
    scraped.world.run(30.0)
    assert "c" not in scraped.a.side.peers
    assert scraped.numbers(scraped.a)["dragoman_broker_up{broker=c}"] == 0
    scraped.world.now += REMEMBERED
    scraped.world.run_until(lambda: list(scraped.a.side.peers) == ["b"])
    scraped.world.run(1.0)
    assert "dragoman_broker_up{broker=c}" not in scraped.numbers(scraped.a)


def test_without_nats_the_others_are_down_and_the_scrape_does_not_wait(scraped: Scraped) -> None:
    scraped.numbers(scraped.a)
    scraped.world.cut("a")
    numbers = scraped.numbers(scraped.a, seconds=0.1)
    assert [numbers[f"dragoman_broker_up{{broker={name}}}"] for name in NAMES] == [1, 0, 0]


def test_a_principal_needs_the_right_at_its_broker_and_at_the_others(scraped: Scraped) -> None:
    for node in (scraped.a, scraped.b, scraped.c):
        node.broker.principals.apply({"ann": may(see=("*",)), "bob": may(see=("s",))})
    assert scraped.scrape(scraped.a, principal="bob").status == 403
    assert b'dragoman_broker_up{broker="b"} 1' in scraped.scrape(scraped.a, principal="ann").received
    scraped.b.broker.principals.apply({"ann": may(see=("s",))})
    text = scraped.scrape(scraped.a, principal="ann").received
    assert b'dragoman_broker_up{broker="b"} 0' in text
    assert b'dragoman_ready{broker="b"}' not in text


def test_another_value_of_brokers_is_refused(scraped: Scraped) -> None:
    assert scraped.scrape(scraped.a, "brokers=some").status == 422


def test_jobs_at_other_brokers_are_told_so_that_sums_count_them_once(scraped: Scraped) -> None:
    scraped.b.worker("s", capacity=2)
    scraped.world.run(1.0)
    first, second = scraped.a.enqueue(), scraped.a.enqueue()
    scraped.world.run()
    scraped.b.broker.succeed(scraped.b.attempt(first), b"y", scraped.world.now)
    scraped.world.run()
    assert scraped.a.job(second).state == "running"
    numbers = scraped.numbers(scraped.c)
    running = sum(value for name, value in numbers.items() if name.startswith("dragoman_jobs_running{"))
    assert running - numbers["dragoman_cluster_taken_jobs_running{broker=b,service=s}"] == 1
    ended = sum(value for name, value in numbers.items() if name.startswith("dragoman_jobs_total{"))
    assert ended - numbers["dragoman_cluster_taken_jobs_total{broker=b,service=s,outcome=done}"] == 1
    assert numbers["dragoman_cluster_gives_total{broker=a,result=done}"] == 1


def test_attempts_at_a_broker_that_is_gone_are_counted_as_lost(scraped: Scraped) -> None:
    scraped.b.worker("s")
    scraped.world.run(1.0)
    scraped.a.enqueue()
    scraped.world.run()
    assert scraped.a.side.gives == {}
    scraped.world.freeze("b")
    scraped.world.run(15.0)
    assert scraped.a.side.gives == {"lost": 1}


def test_texts_are_merged_by_metric_whatever_their_labels_contain() -> None:
    first = b'# HELP x Meaning.\n# TYPE x gauge\nx{s="# HELP \\n# HELP y"} 1\n# HELP y Other.\n# TYPE y gauge\n' + EOF
    second = b'# HELP x Meaning.\n# TYPE x gauge\nx{s="b"} 2\nx{s="c"} 3\n# HELP z New.\n# TYPE z gauge\nz 4\n' + EOF
    whole = MergedMetrics()
    for text in (first, second, EOF):
        whole.add(text)
    expected = (
        b'# HELP x Meaning.\n# TYPE x gauge\nx{s="# HELP \\n# HELP y"} 1\nx{s="b"} 2\nx{s="c"} 3\n'
        b"# HELP y Other.\n# TYPE y gauge\n# HELP z New.\n# TYPE z gauge\nz 4\n"
    )
    assert (whole.text(False), whole.text(True)) == (expected, expected + EOF)
