# SPDX-License-Identifier: Apache-2.0
"""How a run can go wrong: three kinds, three exit codes."""


class BadFlag(Exception):
    """The flags ask for what there is not: exit code 2."""


class Unavailable(Exception):
    """A peer cannot be had here; the text says why. Its rows are left out, and the exit code is not 0."""


class WrongData(Exception):
    """Two sides disagree, or one of them has not done what it was told to: nothing may be printed of it."""
