"""The verbs as functions: the command line and other programs call these and nothing below.

Modules that are slow to import are imported inside the verb that needs them, so that ``--help``
and ``recommend`` stay quick.
"""

from __future__ import annotations
