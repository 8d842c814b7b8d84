"""Rules: `Tool`, `Tool(specifier)`. What they look like, where they come from, what they cover."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from app.domain.agents import AGENT_ALIAS, AGENT_TOOL, GENERAL
from app.domain.permissions import Behavior, RuleValue
from app.permissions.command_rules import CommandPattern
from app.permissions.path_rules import PathPattern

RuleSource = Literal["operator", "tenant", "options", "project", "local", "skill"]
MAX_RULE_CHARS = 2_000
MAX_NAME_CHARS = 200
READING = frozenset({"Read", "Glob", "Grep"})
EDITING = frozenset({"Edit", "Write", "NotebookEdit"})
_NAMED = {"Agent": ("subagent_type",), "Skill": ("skill", "command")}
"""Tools whose specifier is a name, and the properties of the input that hold it."""
_OLDER_NAMES = {AGENT_ALIAS: AGENT_TOOL, "KillShell": "TaskStop"}
"""Names that rules may still use for tools."""
EVERY_TOOL = "*"
"""Covers all tools. No rule that anybody writes is read as this."""
_TOOL = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_MCP = re.compile(r"mcp__[A-Za-z0-9_.-]*\*?")
_DOMAIN = re.compile(
    r"domain:(\*|(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*)"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_ODD_URL = re.compile(r"[\\\x00-\x20\x7f]")


class MalformedRule(ValueError):
    """The text is no rule; the message says why."""


def parse_rule(text: str) -> RuleValue:
    """Read a rule. Raises `MalformedRule`."""
    if len(text) > MAX_RULE_CHARS:
        raise MalformedRule(f"a rule is at most {MAX_RULE_CHARS} characters long")
    if _CONTROL.search(text):
        raise MalformedRule("it holds a control character")
    name, paren, rest = text.strip().partition("(")
    is_name = _TOOL.fullmatch(name) or _MCP.fullmatch(name)
    if not is_name or len(name) > MAX_NAME_CHARS:
        raise MalformedRule("it must be a tool's name, or Tool(specifier)")
    if not paren:
        return RuleValue(toolName=name)
    if not rest.endswith(")"):
        raise MalformedRule("the parenthesis is not closed at its end")
    specifier = rest[:-1].strip()
    if specifier in ("", "*"):
        return RuleValue(toolName=name)
    _check_specifier(name, specifier)
    return RuleValue(toolName=name, ruleContent=specifier)


def _check_specifier(tool: str, specifier: str) -> None:
    if tool == "WebFetch":
        if not _DOMAIN.fullmatch(specifier.lower()):
            raise MalformedRule("WebFetch takes domain:<host>, such as domain:*.example.com")
    elif tool in READING | EDITING:
        if specifier.startswith("!"):
            raise MalformedRule("a path pattern cannot be negated")
        is_open = specifier.count("[") != specifier.count("]")
        if is_open or not PathPattern(specifier, "/", "/").is_valid:
            raise MalformedRule("it is no valid path pattern")
    elif tool != "Bash" and _OLDER_NAMES.get(tool, tool) not in _NAMED:
        raise MalformedRule(f"{tool} takes no specifier")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a run, ready to be matched."""

    value: RuleValue
    behavior: Behavior
    source: RuleSource
    command: CommandPattern | None = None
    path: PathPattern | None = None
    misread: str | None = None
    """Of a rule that covers more than it may have meant, since it could not be read: where it stands."""

    @property
    def tool(self) -> str:
        """The tool's own name, by whichever the rule calls it."""
        return _OLDER_NAMES.get(self.value.toolName, self.value.toolName)

    @property
    def is_bare(self) -> bool:
        return self.value.ruleContent is None

    def __str__(self) -> str:
        said = self.value if self.misread is None else self.misread
        return f"{self.source}: {self.behavior} {said}"

    def names(self, names: Iterable[str]) -> bool:
        """Say whether the rule is about a tool of one of these names."""
        return any(covers_name(self.tool, name) for name in names)


def misread(
    text: str, where: str, known: Collection[str], behavior: Behavior, source: RuleSource
) -> tuple[Rule, ...]:
    """Give what a text that is no rule has to count as, so that nothing passes that it may have meant.

    That is all of the tool that it names, if that is among the `known` or an MCP server's, else every
    tool. What it names of paths holds for all tools that reach them, so all paths are covered.
    """
    name = text.strip().partition("(")[0].strip()
    name = _OLDER_NAMES.get(name, name)
    is_known = len(name) <= MAX_NAME_CHARS and (name in known or _MCP.fullmatch(name) is not None)
    # It is no tool's name: the check of names that clients send is left out.
    value = RuleValue.model_construct(toolName=name if is_known else EVERY_TOOL)
    whole = Rule(value, behavior, source, misread=where)
    if value.toolName not in READING | EDITING:
        return (whole,)
    paths = RuleValue(toolName=name, ruleContent="//**")
    return whole, Rule(paths, behavior, source, path=PathPattern("//**", "/", "/"), misread=where)


def covers_name(pattern: str, name: str) -> bool:
    """Match a tool's name: exactly, or `mcp__server`, `mcp__server__*`, `mcp__*`; `*` is every one."""
    if pattern in (name, EVERY_TOOL):
        return True
    if not pattern.startswith("mcp__"):
        return False
    pattern = pattern.replace(".", "_")  # as the model is shown a server's name
    if pattern == name:
        return True
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return pattern.count("__") == 1 and name.startswith(f"{pattern}__")


class Rules:
    """The rules of a run, sorted by what they are about."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.all = tuple(rules)
        self.of: Mapping[Behavior, Sequence[Rule]] = {
            behavior: [rule for rule in self.all if rule.behavior == behavior]
            for behavior in ("allow", "deny", "ask")
        }
        self._commands: dict[Behavior, dict[str | None, list[Rule]]] = {
            "allow": {},
            "deny": {},
            "ask": {},
        }
        for rule in self.all:
            if rule.command is not None:
                buckets = self._commands[rule.behavior]
                buckets.setdefault(rule.command.first_word, []).append(rule)
        self._for_commands = {
            behavior: [rule for bucket in buckets.values() for rule in bucket]
            for behavior, buckets in self._commands.items()
        }
        self._paths = {
            behavior: [rule for rule in rules if rule.path] for behavior, rules in self.of.items()
        }

    def bare(self, behavior: Behavior, names: Collection[str]) -> Rule | None:
        """Give the first rule that covers every use of a tool."""
        for rule in self.of[behavior]:
            if rule.is_bare and rule.names(names):
                return rule
        return None

    def commands(self, behavior: Behavior) -> Sequence[Rule]:
        """Give the rules for single commands."""
        return self._for_commands[behavior]

    def command(self, behavior: Behavior, text: str) -> Rule | None:
        """Give the rule that covers the text of a command."""
        buckets = self._commands[behavior]
        if not buckets:
            return None
        first = text.split(None, 1)[0] if text.strip() else ""
        for bucket in (buckets.get(first, ()), buckets.get(None, ())):
            for rule in bucket:
                if rule.command is not None and rule.command.matches(text):
                    return rule
        return None

    def paths(self, behavior: Behavior, tools: Collection[str]) -> Sequence[Rule]:
        """Give the path rules of these tools."""
        return [rule for rule in self._paths[behavior] if rule.tool in tools]

    def host(self, behavior: Behavior, url: object) -> Rule | None:
        """Give the WebFetch rule that covers a URL's host; for a URL that is none, no allow rule."""
        host = host_of(url)
        for rule in self.of[behavior]:
            if rule.tool == "WebFetch" and rule.value.ruleContent:
                domain = rule.value.ruleContent.lower().removeprefix("domain:")
                if host is None and behavior != "allow":
                    return rule
                if host is not None and _is_in(host, domain):
                    return rule
        return None

    def named(
        self, behavior: Behavior, tool: str, given: object, also: Collection[str] = ()
    ) -> Rule | None:
        """Give the rule of a tool whose specifier is a name, such as `Skill(review)`.

        `also` are other names of what the call names.
        """
        if tool not in _NAMED or not isinstance(given, dict):
            return None
        names = {_plain_name(given.get(key)) for key in _NAMED[tool]} - {""}
        if tool == AGENT_TOOL:
            names = names or {GENERAL}
        names.update(also)
        for rule in self.of[behavior]:
            if rule.tool == tool and _plain_name(rule.value.ruleContent) in names:
                return rule
        return None


def _plain_name(given: object) -> str:
    """Give a name as the tool that takes it reads it: ` /review` is `review`."""
    return given.strip().removeprefix("/") if isinstance(given, str) else ""


def withholding(text: str, denied: Sequence[str]) -> str | None:
    """Give the rule among `denied` that leaves nothing of what an allow rule, or a tool's name, means."""
    try:
        wanted = parse_rule(text)
    except MalformedRule:
        return None
    for other in denied:
        rule = parse_rule(other)
        is_whole = rule.ruleContent is None and covers_name(rule.toolName, wanted.toolName)
        if rule == wanted or is_whole or _is_host_in(wanted, rule):
            return other
    return None


def _is_host_in(wanted: RuleValue, rule: RuleValue) -> bool:
    if {rule.toolName, wanted.toolName} != {"WebFetch"} or not wanted.ruleContent:
        return False
    host = wanted.ruleContent.lower().removeprefix("domain:").removeprefix("*.")
    return _is_in(host, str(rule.ruleContent).lower().removeprefix("domain:"))


def host_of(url: object) -> str | None:
    """Give a URL's host; None for what programs may read in different ways."""
    if not isinstance(url, str) or _ODD_URL.search(url):
        return None
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        host = parts.hostname
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host or not host.isascii() or "%" in host:
        return None
    return host.rstrip(".").lower() or None


def _is_in(host: str, domain: str) -> bool:
    if domain == "*":
        return True
    if domain.startswith("*."):
        return host.endswith(domain[1:])
    return host == domain


def compiled(
    value: RuleValue, behavior: Behavior, source: RuleSource, *, root: str, home: str
) -> Rule:
    """Make a rule ready; `root` and `home` are what path patterns stand on."""
    specifier = value.ruleContent
    if specifier is None:
        return Rule(value, behavior, source)
    if value.toolName == "Bash":
        return Rule(value, behavior, source, command=CommandPattern(specifier))
    if value.toolName in READING | EDITING:
        return Rule(value, behavior, source, path=PathPattern(specifier, root, home))
    return Rule(value, behavior, source)
