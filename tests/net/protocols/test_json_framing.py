"""What is found in valid JSON byte by byte: where a string ends, and which name stands twice."""

import json

from hypothesis import given
from hypothesis import strategies as st

from net.protocols.json_framing import first_double, string_end

NAMED = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "\\u0061", "", "a:", '\\"', "\\\\"]),
        st.sampled_from(["1", '"a"', '":"', "{}", '{"a":1,"a":2}', '["a","b"]', '"\\\\"', '"' + "x" * 200 + '\\"a"']),
        st.sampled_from(["", " ", "\n\t"]),
    ),
    max_size=6,
)


@given(NAMED)
def test_the_first_name_that_stands_twice_is_found(fields: list[tuple[str, str, str]]) -> None:
    text = "{" + ",".join(f'{space}"{name}"{space}:{space}{value}' for name, value, space in fields) + "}"
    seen: list[str] = []
    doubled = None
    for name, _, _ in fields:
        read = json.loads(f'"{name}"')
        if read in seen and doubled is None:
            doubled = read
        seen.append(read)
    assert first_double(text.encode()) == doubled


@given(
    st.lists(st.sampled_from(['"', "\\", "a", "x" * 130, "\\n" * 40, "é"]), max_size=12),
    st.sampled_from(["", '"', ',"b"']),
)
def test_a_strings_end_is_found_past_any_escapes(parts: list[str], behind: str) -> None:
    text = json.dumps("".join(parts)).encode()
    assert string_end(text + behind.encode(), 1) == len(text)
