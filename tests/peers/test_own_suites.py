"""Tests that dramatiq, kombu and Celery have for their brokers, with ours in place: what is left out says why."""

import os

import pytest

from tests.conftest import StartNode
from tests.node import free_port
from tests.peers.conftest import RunSuite

RABBITMQ = "tests/test_rabbitmq.py"
REDIS = "tests/test_redis.py"
PIKA = "it is about pika's connections and channels"
CLIENT = "it asks a Redis client"
STUB = "it reaches into the stub broker's queues"

DRAMATIQ = {
    f"{RABBITMQ}::test_rabbitmq_{name}": PIKA
    for name in (
        "broker_raises_an_error_if_given_invalid_parameter_combinations",
        "broker_stops_retrying_declaring_queues_when_max_attempts_reached",
        "broker_reconnects_after_enqueue_failure",
        "workers_handle_rabbit_failures_gracefully",
        "connections_can_be_deleted_multiple_times",
        "channels_can_be_deleted_multiple_times",
        "broker_retries_declaring_queues_when_connection_related_errors_occur",
        "broker_consuming_messages_re_declares_queues_when_declared_queue_disappears",
        "broker_enqueueing_message_re_declares_queues_when_declared_queue_disappears",
    )
} | {
    f"{REDIS}::test_redis_{name}": CLIENT
    for name in (
        "unacked_messages_can_be_requeued",
        "messages_can_be_dead_lettered",
        "dead_lettered_messages_are_cleaned_up",
        "messages_belonging_to_missing_actors_are_rejected",
        "requeues_unhandled_messages_on_shutdown",
        "requeues_unhandled_delay_messages_on_shutdown",
        "broker_can_connect_via_url",
        "broker_can_connect_via_client",
        "consumer_ack_can_retry_on_connection_error",
        "consumer_nack_can_retry_on_connection_error",
        "join_race_condition",
    )
}

ACTORS = {
    "tests/test_actors.py::test_actors_can_be_sent_messages": STUB,
    "tests/test_actors.py::test_worker_handles_non_numeric_eta_and_logs_warning": STUB,
    "tests/test_actors.py::test_worker_handles_none_eta": STUB,
    "tests/test_actors.py::test_actor_messages_can_be_assigned_message_age_limits": "it sleeps for the very age",
    "tests/test_actors.py::test_actor_messages_can_be_assigned_time_limits": "limit and look together last its sleep",
    "tests/test_worker.py::test_exception_from_actor_doesnt_leak": "its fixture keeps what was raised, to raise it",
    "tests/test_broker.py::test_can_instantiate_brokers_without_middleware": PIKA,
    "tests/test_results.py::test_messages_without_actor_not_crashing_lookup_options": "it wants a Redis server",
}


@pytest.mark.slow
def test_dramatiqs_tests_of_its_brokers_pass(start_node: StartNode, run_suite: RunSuite) -> None:
    run_suite("dramatiq", [RABBITMQ, REDIS], start_node(), DRAMATIQ)


@pytest.mark.slow
def test_dramatiqs_tests_of_actors_workers_and_results_pass(start_node: StartNode, run_suite: RunSuite) -> None:
    names = ("actors", "composition", "results", "generic_actors", "callbacks", "worker", "messages", "broker")
    run_suite("dramatiq", [f"tests/test_{name}.py" for name in names], start_node(), ACTORS)


@pytest.mark.slow
def test_kombus_tests_of_a_transport_pass(start_node: StartNode, run_suite: RunSuite) -> None:
    dark = f"quorate://127.0.0.1:{free_port()}"
    said = run_suite(
        *("kombu", ["t/integration/test_quorate.py"], start_node(), {}),
        *("-o", "python_classes=test_*"),
        DARK_URL=dark,
    )
    assert "47 passed" in said


CELERY = "t/integration"
TRACED = f"{CELERY}/test_canvas.py::test_chain::test_chord_header_id_duplicated_on_rabbitmq_msg_duplication"
LEVEL_0 = f"{CELERY}/test_tasks.py::test_task_replacement::test_replaced_task_nesting_level_0"
FAILED_LOG = f"{CELERY}/test_tasks.py::test_trace_log_arguments::test_task_failed"
SUCCEEDED_LOG = f"{CELERY}/test_tasks.py::test_trace_log_arguments::test_task_success"
FROM_CHORD = f"{CELERY}/test_canvas.py::test_chord::test_error_propagates_from_chord"
CHANNELS = f"{CELERY}/test_tasks.py::test_task_redis_result_backend"
ON_ERROR = f"{CELERY}/test_canvas.py::test_chord::test_chord_on_error"
DISABLED = f"{CELERY}/test_canvas.py::test_chord::test_disabling_flag_allow_error_cb_on_chord_header"
CELERYS = {
    DISABLED: "it fails on Redis, too",
    FROM_CHORD: "it is expected to fail on Redis, too",
    CHANNELS: "it looks at Redis's channels",
    ON_ERROR: "it reads the keys that the Redis backend leaves",
    TRACED: "it is expected to fail on Redis, too",
    LEVEL_0: "it sets its flag back after it has sent, when a quick worker has set it already",
    FAILED_LOG: "it gives a worker 10 ms to write what it writes behind the result",
    SUCCEEDED_LOG: "so does this",
}
ALL = os.environ.get("ALL_PEERS_TESTS") == "1"
"""Also those of Celery's tests that take a quarter of an hour."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "some"),
    [
        pytest.param(
            "test_tasks.py", "not (test_retry or revoked_by_headers or keeps_state)", marks=pytest.mark.slow(100)
        ),
        ("test_inspect.py", None),
        ("test_group_chains.py", None),
        ("test_canvas.py", ""),
    ],
)
def test_celerys_integration_tests_pass(
    start_node: StartNode, run_suite: RunSuite, redis_port: int, name: str, some: str | None
) -> None:
    """Those of them that do not wait for long, with results in the node. Redis has their counters."""
    node = start_node()
    url = f"quorate://127.0.0.1:{node.port}"
    more = {"TEST_BROKER": url, "CELERY_BROKER_URL": url, "TEST_BACKEND": url}
    more |= {"REDIS_HOST": "127.0.0.1", "REDIS_PORT": str(redis_port), "WORKER_LOGLEVEL": "INFO"}
    options = ["-p", "quorate.kombu", "--force-reruns", "0", "--reruns", "0"]
    if not ALL:
        if some == "":
            pytest.skip("it takes a quarter of an hour: ALL_PEERS_TESTS=1")
        options += ["-k", some] if some else []
    run_suite("celery", [f"{CELERY}/{name}"], node, CELERYS, *options, **more)
