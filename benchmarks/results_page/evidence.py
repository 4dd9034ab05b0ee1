# SPDX-License-Identifier: Apache-2.0
"""What a result says about a target."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Evidence:
    """`target`: its id; `what`: the row that was measured."""
    target: str
    value: float
    what: str
