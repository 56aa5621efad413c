from collections.abc import Mapping, Sequence
from typing import Any

from sereno import Channel, Rate
from sereno.channels.contract import Callback, Exchange, Message
from sereno.channels.outcome import Outcome, Receipt


# the block of the page


promised = {name for name in {*vars(Channel), *Channel.__annotations__} if not name.startswith("_")} - {"then"}
assert {name for name in vars(Pager) if not name.startswith("_")} == promised
