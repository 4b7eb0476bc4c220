"""What a node is configured to prove and to ask for; what can't be used is said before it starts."""

import datetime
import time
from pathlib import Path
from typing import Any

import pytest
import trustme

from actors.node.config import load
from actors.node.private_files import SecretError, new_secret, read_secrets, valid_keys, write_secrets
from actors.node.security import load_security
from tests.faults.security import Authority

NODES = '[{"node_id": 1, "host": "192.0.2.1", "port": 5}]'
NEAR = '[{"node_id": 1, "host": "127.0.0.1", "port": 5}]'


def loaded(**flags: Any) -> tuple[Any, list[str]]:
    return load_security(load(environment={}, flags=flags))


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUORATE_CLUSTER_SECRET", raising=False)


def secret_in(folder: Path, *secrets: str) -> str:
    path = folder / "cluster.secret"
    write_secrets(path, list(secrets) or [new_secret()])
    return str(path)


def certificate_in(folder: Path, name: str = "node-1") -> dict[str, str]:
    authority = trustme.CA()
    issued = authority.issue_cert(name)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued.private_key_and_cert_chain_pem.write_to_path(folder / "node.pem")
    return {"cluster_tls_cert": str(folder / "node.pem"), "cluster_tls_ca": str(folder / "ca.pem")}


def test_a_cluster_beyond_this_machine_does_not_start_without_a_proof(tmp_path: Path) -> None:
    _, faults = loaded(cluster_node_list=NODES)
    assert "192.0.2.1" in faults[0]
    assert "qctl cluster secret" in faults[0]
    assert loaded(cluster_node_list=NODES, cluster_secret_file=secret_in(tmp_path))[1] == []
    assert loaded(cluster_node_list=NODES, **certificate_in(tmp_path))[1] == []
    assert loaded(cluster_node_list=NEAR)[1] == []
    assert loaded(cluster_node_list=NEAR, node_host="0.0.0.0")[1] != []


def test_a_cluster_that_is_said_to_be_insecure_starts_and_says_so_in_its_status() -> None:
    security, faults = loaded(cluster_node_list=NODES, insecure_cluster=1)
    assert faults == []
    assert any("insecure_cluster" in one for one in security.warnings)
    assert not security.keyring.is_required


def test_a_node_that_others_can_reach_without_an_access_file_says_so_in_its_status() -> None:
    assert "no access_file" in loaded(host="0.0.0.0")[0].warnings[0]
    assert loaded(host="127.0.0.1")[0].warnings == ()
    page = {"host": "10.0.0.1", "port": 1180, "serves": ["metrics"], "insecure_http": True}
    assert "10.0.0.1:1180 is in the clear" in loaded(http_listeners=[page])[0].warnings[0]
    assert loaded(http_listeners=[{**page, "host": "127.0.0.1"}])[0].warnings == ()


def test_a_folder_that_everybody_may_write_is_said_in_the_status(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert "mode 0777" in loaded(data_dir=str(tmp_path))[0].warnings[0]
    tmp_path.chmod(0o755)
    assert loaded(data_dir=str(tmp_path))[0].warnings == ()
    assert loaded(data_dir=str(tmp_path / "none"))[0].warnings == ()


def test_a_secret_is_asked_for_of_others_unless_the_cluster_is_said_to_be_insecure(tmp_path: Path) -> None:
    path = secret_in(tmp_path)
    assert loaded(cluster_secret_file=path)[0].keyring.is_required
    security, _ = loaded(cluster_secret_file=path, insecure_cluster=1)
    assert security.keyring.keys
    assert not security.keyring.is_required
    assert security.keyring.draws_nonce() != security.keyring.draws_nonce()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_secret_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = secret_in(tmp_path)
    Path(path).chmod(mode)
    _, faults = loaded(cluster_secret_file=path)
    assert "chmod 600" in faults[0]


def test_a_secret_is_from_a_file_or_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = new_secret(), new_secret()
    path = secret_in(tmp_path, one, two)
    assert [key.secret.decode() for key in valid_keys(path, {})] == [one, two]
    assert [key.secret.decode() for key in valid_keys("", {"QUORATE_CLUSTER_SECRET": f"{two},{one}"})] == [two, one]
    assert valid_keys("", {}) == ()
    with pytest.raises(SecretError, match="both set"):
        valid_keys(path, {"QUORATE_CLUSTER_SECRET": one})
    monkeypatch.setenv("QUORATE_CLUSTER_SECRET", one)
    assert load().plain().get("cluster_secret") is None, "it is no setting, and is shown nowhere"


@pytest.mark.parametrize("text", ["", "short\n", "a" * 40 + "\n" + "b" * 40 + "\n" + "c" * 40 + "\n"])
def test_a_file_with_no_fit_secret_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(SecretError) as refused:
        read_secrets(path)
    assert "short" not in str(refused.value).replace("too short", "")
    assert "aaaa" not in str(refused.value)


def test_a_port_that_speaks_tls_needs_a_certificate_that_can_be_used(tmp_path: Path) -> None:
    assert "needs tls_cert" in loaded(tls=1)[1][0]
    assert "needs tls_cert" in loaded(listeners='[{"port": 7, "tls": true}]')[1][0]
    assert "tls_cert is missing" in loaded(tls_key="x")[1][0]
    (tmp_path / "bad.pem").write_text("nonsense")
    assert "bad.pem" in loaded(tls=1, tls_cert=str(tmp_path / "bad.pem"))[1][0]
    assert "No such file" in loaded(tls=1, tls_cert=str(tmp_path / "none.pem"))[1][0]
    certificate_in(tmp_path)
    assert loaded(tls=1, tls_cert=str(tmp_path / "node.pem"))[1] == []
    assert "both needed" in loaded(cluster_tls_cert=str(tmp_path / "node.pem"))[1][0]
    assert "ca" in loaded(tls=1, tls_cert=str(tmp_path / "node.pem"), tls_client_ca=str(tmp_path / "no.pem"))[1][0]


def test_a_certificate_that_nobody_will_believe_is_warned_of(tmp_path: Path) -> None:
    """Found: expired certificates, and those of another node, were taken without a word."""
    authority = Authority(tmp_path)
    own = {"cluster_tls_ca": authority.ca}
    security, faults = loaded(cluster_tls_cert=authority.issue("node-1"), tls_cert=authority.issue("localhost"), **own)
    assert (faults, security.warnings) == ([], ())
    assert security.certificates.keys() == {"tls_cert", "cluster_tls_cert"}
    assert all(ends_at > time.time() for ends_at in security.certificates.values())
    over = authority.issue("localhost", is_over=True)
    security, faults = loaded(tls_cert=over)
    assert faults == []
    assert security.warnings == (f"tls_cert: {over}: certificate has expired: clients refuse this node",)
    foreign = authority.issue("node-3")
    security, _ = loaded(cluster_tls_cert=foreign, **own)
    assert security.warnings == (
        f"cluster_tls_cert: {foreign} is for node 3, and this is node 1: other nodes refuse it",
    )
    soon = trustme.CA().issue_cert(
        "localhost", not_after=datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3)
    )
    soon.private_key_and_cert_chain_pem.write_to_path(tmp_path / "soon.pem")
    [warning] = loaded(tls_cert=str(tmp_path / "soon.pem"))[0].warnings
    assert "ends in 3.0 days" in warning or "ends in 2.9 days" in warning
    separate = trustme.CA().issue_cert("localhost")
    separate.cert_chain_pems[0].write_to_path(tmp_path / "own.pem")
    separate.private_key_pem.write_to_path(tmp_path / "own.key")
    security, faults = loaded(tls_cert=str(tmp_path / "own.pem"), tls_key=str(tmp_path / "own.key"))
    assert (faults, security.warnings, len(security.certificates)) == ([], (), 1)


@pytest.mark.parametrize("text", ["", "[anonymous]\nallow = []\n", "[principals.w]\nallow = []\n"])
def test_an_access_file_that_locks_everybody_out_is_refused(tmp_path: Path, text: str) -> None:
    """Found: a file that a full disk had cut to nothing was taken at a reload, and every client was cut off."""
    path = tmp_path / "access.toml"
    path.write_text(text)
    path.chmod(0o600)
    _, [fault] = loaded(access_file=str(path))
    assert "gives nobody any right" in fault
    path.write_text('[anonymous]\nallow = ["look"]\n')
    security, faults = loaded(access_file=str(path))
    assert faults == []
    assert any("nobody may operate" in one for one in security.warnings)
