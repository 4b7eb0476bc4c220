"""Telling answers to whoever took the calls in."""

from actors.messages.call import Answer
from actors.messages.calls import Answered


def send_answers(answers: list[Answer]) -> None:
    """Tell each actor its answers, in one message; nearly always that is one actor."""
    if not answers:
        return
    first = answers[0][0].reply_to
    for call, _ in answers:
        if call.reply_to is not first:
            break
    else:
        first.tell(Answered(answers))
        return
    by_actor: dict[int, list[Answer]] = {}
    for answer in answers:
        by_actor.setdefault(id(answer[0].reply_to), []).append(answer)
    for group in by_actor.values():
        group[0][0].reply_to.tell(Answered(group))
