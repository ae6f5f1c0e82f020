"""Findings that may be there, by identity and with a reason: ``--allow`` and ``step.toml``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import replace

from kernelbench.base.errors import UsageError
from kernelbench.checks.rows import CheckRow, Seen
from kernelbench.project.model import IDENTITY, Step


def require_allowances(allow: Mapping[str, str] | None) -> dict[str, str]:
    """Reasons by identity, none for None; UsageError for what is no identity or has no reason."""
    allow = dict(allow or {})
    for identity, reason in allow.items():
        if not IDENTITY.fullmatch(identity):
            raise UsageError(
                f"allow: {identity!r} is not a finding's identity",
                "a report has it under 'identity', as race-0123456789",
            )
        if not reason.strip():
            raise UsageError(f"allow: {identity} has no reason", f"--allow '{identity}=why'")
    return allow


def of_step(step: Step, more: Mapping[str, str]) -> dict[str, str]:
    """Reasons by identity: those of the step's ``step.toml``, and more."""
    own = {each.what: each.reason for each in step.allowances if IDENTITY.fullmatch(each.what)}
    return own | dict(more)


def apply(found: MutableMapping[str, Seen], allow: Mapping[str, str]) -> None:
    """Mark the findings that are allowed, with the reason."""
    for identity in found.keys() & allow.keys():
        found[identity] = replace(found[identity], allowed=allow[identity])


def unmatched(allow: Iterable[str], rows: Iterable[CheckRow]) -> tuple[str, ...]:
    """The identities that no row has found."""
    found = {seen.finding.identity for row in rows for seen in row.seen}
    return tuple(identity for identity in allow if identity not in found)
