"""What decides about a run's calls, but for hooks and people: its mode, its rules, its place."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from app.domain.options import AgentOptions
from app.domain.permissions import Behavior, PermissionMode, stricter
from app.permissions.place import Place
from app.permissions.rules import MalformedRule, Rules, RuleSource, compiled, misread, parse_rule


@dataclass(frozen=True, slots=True)
class Permissions:
    """Mode, rules, place. A change gives a new one."""

    mode: PermissionMode = "default"
    rules: Rules = field(default_factory=Rules)
    place: Place = field(default_factory=Place)

    @staticmethod
    def of(options: AgentOptions, base: "Permissions | None" = None) -> "Permissions":
        """Lay the mode and the rules of a run's options over what no option changes.

        Raises `MalformedRule`; options that were accepted have none.
        """
        now = replace(base or NOTHING_SET, mode=options.permission_mode)
        given: Sequence[tuple[Behavior, list[str]]] = (
            ("allow", options.allowed_tools),
            ("deny", options.disallowed_tools),
            ("ask", options.ask_tools),
        )
        for behavior, texts in given:
            now = now.with_rules(behavior, texts, "options")
        return now

    def narrowed(self, mode: PermissionMode | None) -> "Permissions":
        """Give what decides about a subagent's calls: its own mode, where it is the stricter one."""
        return self if mode is None else replace(self, mode=stricter(self.mode, mode))

    def with_rules(
        self, behavior: Behavior, texts: Iterable[str], source: RuleSource
    ) -> "Permissions":
        """Add rules. Raises `MalformedRule`."""
        root, home = self.place.root, self.place.home
        new = [compiled(parse_rule(text), behavior, source, root=root, home=home) for text in texts]
        return replace(self, rules=Rules((*self.rules.all, *new))) if new else self

    def with_misread(
        self,
        behavior: Behavior,
        text: str,
        source: RuleSource,
        *,
        where: str,
        known: Collection[str],
    ) -> "Permissions":
        """Add what a text that is no rule counts as. `where` says why, `known` are tools' names."""
        new = misread(text, where, known, behavior, source)
        return replace(self, rules=Rules((*self.rules.all, *new)))

    def with_granted(self, texts: Iterable[str]) -> "Permissions":
        """Add what skills of the tenant's bring. What is no rule, as one of an older program, is none."""
        now = self
        for text in texts:
            with suppress(MalformedRule):
                now = now.with_rules("allow", [text], "skill")
        return now

    def for_reading(self) -> "Permissions":
        """Give what is left without anybody's leave: calls that only read, if no rule forbids them."""
        kept = tuple(rule for rule in self.rules.all if rule.behavior != "allow")
        return replace(self, mode="default", rules=Rules(kept))


NOTHING_SET = Permissions()
