"""The position up to which the messages of a queue were acknowledged, as the carrier will still say after a fault."""

from collections import deque

# Seconds: a leader that is cut off from the others resigns in less. Until then it counts acknowledgements that the
# others do not know, and its successor delivers those messages again.
LASTS_AFTER = 60.0


class LastingPosition:
    """The lowest of the positions that the carrier has answered with for a minute."""

    def __init__(self) -> None:
        # Positions, each with the time of the answer: those of the last minute, and the last one before it.
        self._answers: deque[tuple[float, int]] = deque()

    def add(self, position: int, now: float) -> int:
        """Note an answer; return the lasting position, or 0 if it is not known yet."""
        self._answers.append((now, position))
        end = now - LASTS_AFTER
        while len(self._answers) > 1 and self._answers[1][0] <= end:
            self._answers.popleft()
        if self._answers[0][0] > end:
            return 0
        return min(each for _, each in self._answers)
