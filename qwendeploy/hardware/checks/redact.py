"""Removal of personal data, host names and secrets from a text.

What is known of this computer (host, user, home) is replaced wherever it stands; addresses,
identifiers, serials and tokens are known by their form, secrets also by the name before them.
Folders outside the system's own are cut to their last part. Loopback and the unspecified address
stay.
"""

from __future__ import annotations

import contextlib
import getpass
import ipaddress
import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from qwendeploy.hardware.live.probe import Probe

GENERIC = frozenset({"root", "localhost", "nvidia", "user", "none", "unknown", "docker", "linux"})
"""Names that say nothing about a person or a computer."""

SECRET_NAME = re.compile(
    r"token|secret|passw|pwd|passphrase|api_?key|_key|credential|auth|private|dsn|cookie|webhook",
    re.IGNORECASE,
)

_HEX = "[0-9A-Fa-f]"
_VALUE = r"(?:\\?\"[^\"\n]*\"|'[^'\n]*'|(?!<)[^\s\"']{2,})"
_NAMED = (
    r"(?:token(?!s|iz)|secret|passw(?:or)?d|passphrase|pwd|api[_-]?key|[_-]key|credential|webhook"
    r"|(?:account|access|shared|private)key)"
)
_NAME = r"(?!localhost\b|127\.|0\.0\.0\.0|::|root\b)[\w.@\\-]+"
"""A name that a variable holds and that says something of a person or computer."""
_SYSTEM = (
    r"(?:(?:usr|opt|bin|sbin|lib\w*|proc|sys|dev|etc|run|root|tmp|home|Users)/"
    r"|var/(?:run|lib/docker)(?![\w.-]))"
)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----.{0,8000}?"
            r"(?:-----END [A-Z0-9 ]{0,50}-----|\Z)",
            re.DOTALL,
        ),
        "<private key>",
    ),
    (re.compile(r"\bhf_[A-Za-z0-9]{6,}"), "<token>"),
    (re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{6,}"), "<token>"),
    (re.compile(r"\b(?:gh[opsur]|glpat|xox[abp])[_-][A-Za-z0-9_-]{8,}"), "<token>"),
    (re.compile(r"\bgithub_pat_\w{8,}|\bA[KS]IA[0-9A-Z]{12,}|\bnvapi-[\w-]{8,}"), "<token>"),
    (re.compile(r"\b(?:npm|dckr_pat|dckr_oat|dop_v1|shpat|glsa)_[\w-]{12,}"), "<token>"),
    (re.compile(r"\b(?:pypi|xapp)-[\w-]{12,}|\bAIza[\w-]{30,}|\bSG\.[\w-]{12,}"), "<token>"),
    (re.compile(r"\bya29\.[\w-]{12,}|\b\d{8,10}:AA[\w-]{30,}"), "<token>"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"), "<token>"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}"), r"\1 <token>"),
    (re.compile(r"(?i)\b((?:set-)?cookie\s*:)[^\n]+"), r"\1 <secret>"),
    (re.compile(r"(?i)\b(authorization\\?[\"']?\s*[:=]\s*)[^\n\"'\\|]+"), r"\1<secret>"),
    (re.compile(r"(?i)(\\?\"auth\\?\"\s{0,8}:\s{0,8}\\?\")[^\"\\\n]+"), r"\1<secret>"),
    (
        re.compile(r"(?i)\b(machine\s+)\S+(\s+login\s+)\S+(\s+password\s+)\S+"),
        r"\1<host>\2<user>\3<secret>",
    ),
    (re.compile(r"(\blogin\b[^\n|]{0,80}?\s-p\s+)\S+"), r"\1<secret>"),
    (re.compile(r"(\w{2,12}://)[^/\s]{1,400}@(?=[\w.\[])"), r"\1<secret>@"),
    (
        re.compile(r"(://[\w.-]{0,60}?(?:hooks?\.|/(?:api/)?web_?hooks?/))[^\s\"'<>]+"),
        r"\1<secret>",
    ),
    (re.compile(r"(\b\w{2,12}://[^\s?\"'<>]{1,400}\?)[^\s\"'<>]+"), r"\1<query>"),
    (
        re.compile(
            r"(?i)((?<![\w-])--?[\w-]{0,40}?(?:key|token|secret|passw(?:or)?d|passphrase|pwd)[= ]"
            rf"\s*){_VALUE}"
        ),
        r"\1<secret>",
    ),
    (
        re.compile(
            rf"(?i)((?<![\w-])[\w-]{{0,60}}?{_NAMED}[\w-]{{0,60}}\\?[\"']?\s{{0,60}}[=:]\s{{0,8}}){_VALUE}"
        ),
        r"\1<secret>",
    ),
    (
        re.compile(r"((?<![\w-])(?:-u|--user|--[\w-]{0,20}auth)[= ]\s*)[^\s:]{1,80}:\S+"),
        r"\1<secret>",
    ),
    (re.compile(r"(\bsshpass\s+-p\s*)\S+"), r"\1<secret>"),
    (re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}"), "<mail>"),
    (re.compile(r"(?<![\w.+/-])[\w.+-]{1,64}@(?!sha256:)[\w-]{1,64}(?![\w@-])"), "<user>@<host>"),
    (re.compile(r"(?i)\b((?:static )?host ?name\s{0,20}[:=]\s{0,20})[\w.-]+"), r"\1<host>"),
    (re.compile(rf"(\b(?:\w{{1,40}}_)?(?:HOST|HOSTNAME|NODENAME|NODE_NAME)=){_NAME}"), r"\1<host>"),
    (re.compile(r"(\bSLURMD?_NODE(?:NAME|LIST)=)\S+"), r"\1<host>"),
    (re.compile(r"(\bDISPLAY=)[\w.-]+(?=:)"), r"\1<host>"),
    (re.compile(rf"(\b(?:\w{{1,40}}_)?(?:USER|USERNAME|LOGNAME)=){_NAME}"), r"\1<user>"),
    (re.compile(r"(\b[ug]id=\d{1,10}\()(?!root\))[\w.@\\-]+"), r"\1<user>"),
    (
        re.compile(r"(\bLinux )(?!version|release|kernel)[\w.-]{1,64}(?= \d{1,2}\.\d{1,3}\.)"),
        r"\1<host>",
    ),
    (
        re.compile(
            r"(?<![\w:.-])((?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
            r"|\d{4}-\d\d-\d\d[T ][\d:.,+Z-]{8,24}) )"
            r"(?!(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR)\b)[\w.-]{1,64}"
            r"(?= [\w./@-]{1,40}(?:\[\d{1,9}\])?: )"
        ),
        r"\1<host>",
    ),
    (
        re.compile(r"(?<![\w.@:/-])[\w.-]{1,64}:(~[\w./-]{0,80}) [\w.-]{1,64}(?=[$#] )"),
        r"<host>:\1 <user>",
    ),
    (re.compile(r"(?i)\bip-\d{1,3}(?:-\d{1,3}){3}(?:\.[\w-]+)*"), "<host>"),
    (
        re.compile(
            r"(?i)\b(?:[a-z0-9-]{1,63}\.){1,6}"
            r"(?:local|lan|internal|intranet|intra|corp|home|localdomain|ts\.net)\b(?![./\w-])"
        ),
        "<host>",
    ),
    (
        re.compile(rf"\b(?:(?:GPU|MIG)-)?{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}\b"),
        "<uuid>",
    ),
    (re.compile(rf"\b(?:GPU|MIG)-(?:GPU-)?{_HEX}{{8}}[\w/.-]*"), "<uuid>"),
    (re.compile(rf"(?<![\w-])(?:{_HEX}{{2}}-){{7}}{_HEX}{{2}}(?![\w-])"), "<serial>"),
    (re.compile(rf"(?<![\w:])(?:{_HEX}{{2}}[:-]){{5}}{_HEX}{{2}}(?![\w:])"), "<mac>"),
    (
        re.compile(
            rf"(?<![\w.])(?=[\d.]{{0,13}}[A-Fa-f])(?:{_HEX}{{4}}\.){{2}}{_HEX}{{4}}(?![\w.])"
        ),
        "<mac>",
    ),
    (
        re.compile(
            rf"(?i)\b((?:ether|hwaddr|mac(?:[ _]?addr(?:ess)?)?)[\s:=]{{1,4}}){_HEX}{{12}}\b"
        ),
        r"\1<mac>",
    ),
    (re.compile(r"(/dev/disk/by-id/)[^\s\"']+"), r"\1<serial>"),
    (
        re.compile(
            r"(?i)(<(?:serial|board_part_number|chassis_serial_number|gpu_fabric_guid|pdi|gpu_pdi"
            r"|host_id)>)[^<]+"
        ),
        r"\1<serial>",
    ),
    (
        re.compile(
            r"(?i)((?<![a-z])serial(?:[ _-]?(?:number|no))?[\"']?\s*[:=,]\s*[\"']?)[\w-]{4,}"
        ),
        r"\1<serial>",
    ),
    (re.compile(r"(?i)(\b(?:PDI|GPU Fabric GUID|Host ID)\s*:\s*)(?!N/A)\S+"), r"\1<serial>"),
    (re.compile(r"\b(?=\d{13}\b)\d{13}\b"), "<serial>"),
    (re.compile(rf"(?<![\w:/.-])(?:0x)?{_HEX}{{32,}}(?!\w)"), "<hex>"),
    (
        re.compile(
            r"(?<![\w+/.-])(?=[A-Z0-9+]{0,200}[a-z])(?=[a-z0-9+]{0,200}[A-Z])"
            r"(?=[A-Za-z+]{0,200}\d)[A-Za-z0-9+]{24,200}={0,2}(?![\w-])"
        ),
        "<random>",
    ),
    (re.compile(r"(/(?:home|Users)/)(?:[^/\n\"':|]{1,64}(?=/)|[^/\s\"':|]+)"), r"\1<user>"),
    (
        re.compile(r"(?i)([A-Z]:\\{1,2}Users\\{1,2})(?:[^\\\n\"':|]{1,64}(?=\\)|[^\\\s\"':|]+)"),
        r"\1<user>",
    ),
    (re.compile(rf"(?<![\w./:<>~-])/(?!{_SYSTEM})(?:[^/\s\"':,|<>]{{1,200}}/)+"), "<path>/"),
    (re.compile(r"(?<![\w/.])~(?!<)[A-Za-z][\w.-]{0,63}(?=/)"), "~<user>"),
    (
        re.compile(r"(?<![\w\\])\\{2,4}(?!n[|+ ])[\w.$-]{2,64}(?:\\{1,2}[^\\\s\"':|<>]{1,200})+"),
        "<path>",
    ),
    (
        re.compile(
            r"(?i)(?<!\w)([A-Z]:)(?!\\{1,2}(?:Users|Windows|Program Files|ProgramData)\b)"
            r"\\{1,2}(?:[^\\\n\"':|<>]{1,200}\\{1,2})+"
        ),
        r"\1<path>\\",
    ),
)
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f:]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(?:%\w+)?(?![\w:])")
_KEPT_ADDRESSES = ("127.0.0.1", "0.0.0.0", "::1", "::")


@dataclass(frozen=True, slots=True)
class Identity:
    """Names that must not leave this computer, longest first; ``secrets`` are values."""

    hosts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


def identity_of(probe: Probe) -> Identity:
    """Return the names of this computer and its user, and the values of secret variables."""
    hosts = {
        socket.gethostname(),
        probe.environ("HOSTNAME"),
        (probe.read("/etc/hostname") or "").strip(),
    }
    hosts |= {(host or "").split(".")[0] for host in hosts}
    users = {probe.environ(name) for name in ("USER", "LOGNAME", "SUDO_USER", "USERNAME")}
    with contextlib.suppress(KeyError, OSError, ImportError):
        users.add(getpass.getuser())
    home = probe.environ("HOME")
    users.add(Path(home).name if home else None)
    secrets = [value for name, value in os.environ.items() if SECRET_NAME.search(name)]
    places = (probe.environ("HF_TOKEN_PATH"), f"{home}/.cache/huggingface/token")
    secrets += [(probe.read(place) or "").strip() for place in places if place]
    return Identity(_names(hosts), _names(users), tuple(s for s in secrets if len(s) >= 6))


def _names(found: Iterable[str | None]) -> tuple[str, ...]:
    kept = {name for name in found if name and len(name) > 1 and name.lower() not in GENERIC}
    return tuple(sorted(kept, key=len, reverse=True))


def redact(text: str, identity: Identity) -> str:
    """Return the text without names, addresses, identifiers, serials and tokens."""
    for secret in sorted(identity.secrets, key=len, reverse=True):
        text = text.replace(secret, "<secret>")
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    text = _IPV4.sub(_without_address, text)
    text = _IPV6.sub(_without_address, text)
    for names, replacement in ((identity.hosts, "<host>"), (identity.users, "<user>")):
        for name in names:
            text = re.sub(
                rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])",
                replacement,
                text,
                flags=re.IGNORECASE,
            )
    return text


def _without_address(match: re.Match[str]) -> str:
    text = match[0].split("%")[0].rstrip(".:") if not match[0].endswith("::") else match[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return match[0]
    if str(address) in _KEPT_ADDRESSES:
        return match[0]
    return f"<ip>{match[0][len(text) :] if match[0].startswith(text) else ''}"
