"""Sending answers to the actors that their calls name; nearly always that is one."""

from actors.messages import Answer, Answered


def send_answers(answers: list[Answer]) -> None:
    """Tell each actor its answers, in one message."""
    if not answers:
        return
    first = answers[0][0].reply_to
    for call, _ in answers:
        if call.reply_to is not first:
            break
    else:
        first.tell(Answered(answers))
        return
    by_actor: dict[str, list[Answer]] = {}
    for answer in answers:
        by_actor.setdefault(answer[0].reply_to.actor_urn, []).append(answer)
    for group in by_actor.values():
        group[0][0].reply_to.tell(Answered(group))
