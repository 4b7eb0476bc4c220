"""`celery quorate`: what waits in an application's queues. It also makes `celery -b quorate://...` work."""

import click

import quorate.kombu  # noqa: F401  # it makes the scheme known
from quorate.dead_letters import DEAD, dead_letters_of
from quorate.errors import RefusedError


@click.command("quorate")
@click.pass_context
def command(context: click.Context) -> None:
    """Each queue of the application: ready, delayed, in work, dead letters."""
    app = context.obj.app
    with app.connection_for_read() as connection:
        transport = connection.default_channel.transport
        click.echo(f"{'queue':30} {'ready':>8} {'delayed':>8} {'in work':>8} {'dead':>8}")
        for name in sorted(app.amqp.queues):
            queue = transport.prefix + name
            counts, dead = _counts(transport, queue), _counts(transport, dead_letters_of(queue, DEAD))
            numbers = (counts["ready"], counts["delayed"], counts["in_flight"], dead["size"])
            click.echo(f"{name:30} " + " ".join(f"{number:8}" for number in numbers))


def _counts(transport: object, queue: str) -> dict[str, int]:
    try:
        found: dict[str, int] = transport.broker.monitor(queue)  # type: ignore[attr-defined]  # kombu's types are Any
    except RefusedError:
        return {"ready": 0, "delayed": 0, "in_flight": 0, "size": 0}
    return found
