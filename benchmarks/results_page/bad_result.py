# SPDX-License-Identifier: Apache-2.0
"""What stops the page."""


class BadResult(Exception):
    """A file that cannot be on the page; the text names it, what it says and what was expected."""
