"""Who reads which partitions: evenly, and so that as few change hands as can be. A function of what holds now."""

from collections.abc import Mapping, Sequence


def assigned(held: Mapping[str, Sequence[int]], partitions: int) -> dict[str, list[int]]:
    """Assign the partitions, from 0 on, to the members, which have those now; no two have the same.

    The counts differ by one at most. A member keeps what it has, but for what is beyond its share, the last of it; the
    larger shares go to those that have most, so that no more changes hands than must.
    """
    if not held:
        return {}
    share, larger = divmod(partitions, len(held))
    by_count = sorted(held, key=lambda member: -len(held[member]))
    shares = {member: share + (place < larger) for place, member in enumerate(by_count)}
    kept: dict[str, list[int]] = {}
    for member, its in held.items():
        kept[member] = [index for index in its if index < partitions][: shares[member]]
    taken = {index for its in kept.values() for index in its}
    free = [index for index in range(partitions) if index not in taken]
    free.reverse()
    for member, its in kept.items():
        while len(its) < shares[member]:
            its.append(free.pop())
    return {member: sorted(its) for member, its in kept.items()}
