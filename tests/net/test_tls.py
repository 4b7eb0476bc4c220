"""What a certificate says of who is there."""

import pytest

from net.tls import names_of, nodes_of


def certificate(common: str, *dns: str) -> dict[str, object]:
    return {"subject": ((("commonName", common),),), "subjectAltName": tuple(("DNS", one) for one in dns)}


def test_the_names_are_the_common_one_and_those_of_hosts() -> None:
    assert names_of(certificate("a", "b", "a")) == ("a", "b")
    assert names_of({}) == ()


@pytest.mark.parametrize(
    ("names", "nodes"),
    [
        (("node-3",), {3}),
        (("x", "node-1.cluster.example", "NODE-2"), {1, 2}),
        (("anode-1", "node-", "node-x", "node-1x", "node-²", "node-99999999"), set()),
    ],
)
def test_a_certificate_is_for_the_nodes_that_its_names_begin_with(names: tuple[str, ...], nodes: set[int]) -> None:
    assert nodes_of(certificate(*names)) == nodes
