"""May this call run? The order of evaluation, in one pure function.

1. What a hook denied. 2. Deny rules: they beat every mode and every hook's allow. 3. What has to be
asked whatever the mode is: ask rules, a hook's wish, tools that need a person, and commands of which
nobody can say whether a deny rule reaches them. 4. A hook's allow. 5. Safety: protected paths,
commands that cannot be understood. 6. The mode. 7. Allow rules and what only reads. 8. Otherwise a
person is asked, or in `dontAsk` nobody.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

from app.domain.permissions import HookVerdict, Scene
from app.domain.tools import ToolCall, ToolSpec
from app.permissions.command_cover import CommandCover, Uncovered
from app.permissions.command_reach import Reach, reaching
from app.permissions.decision import BY_DEFAULT, Allow, Ask, Author, Decision, Deny
from app.permissions.permissions import Permissions
from app.permissions.place import is_protected
from app.permissions.placed_command import PlacedCommand, placed_command
from app.permissions.rules import EDITING, READING, Rule
from app.permissions.suggestions import suggestions_for
from app.permissions.tool_paths import paths_in

NOWHERE = Scene()
BASH = "Bash"


def decide(
    call: ToolCall, spec: ToolSpec, permissions: Permissions, scene: Scene = NOWHERE
) -> Decision:
    """Decide a call of a tool that is on offer. First match wins; nobody is asked here."""
    return _Deciding(call, spec, permissions.narrowed(scene.mode), scene).decide()


@dataclass(slots=True)
class _Deciding:
    call: ToolCall
    spec: ToolSpec
    permissions: Permissions
    scene: Scene
    names: tuple[str, ...] = field(init=False)
    """A call may use an older name of the tool."""
    command: PlacedCommand | None = field(init=False, default=None)
    paths: tuple[tuple[str, ...], ...] = field(init=False)
    """What the call of a file tool names: each path in its forms, see `Place.forms`."""

    def __post_init__(self) -> None:
        own, called = self.spec.name, self.call.name
        self.names = (own,) if own == called else (own, called)
        place = self.permissions.place
        cwd = self.scene.cwd or place.root
        if self.spec.name == BASH:
            text = self.call.input.get("command")
            self.command = placed_command(
                text if isinstance(text, str) else "\0", place, frozenset({cwd})
            )
        named = paths_in(self.spec.name, self.call.input)
        self.paths = tuple([place.forms(path, cwd, of_file_tool=True) for path in named])

    def decide(self) -> Decision:
        hook = self.scene.hook
        if hook and hook.decision == "deny":
            return self._denied_by_hook(hook)
        reach = self._reached_by("deny")
        if reach and reach.is_certain:
            return self._denied(reach.rule, is_announced=hook is None)
        if asked := self._asked(reach, hook):
            return self._never() if self.mode == "dontAsk" else asked
        if hook:
            return Allow("hook", Author("hook", hook.hook), source="hook")
        if self.mode == "bypassPermissions":
            return Allow("mode", self._by_mode)
        uncovered = self._unsafe()
        if uncovered is None:
            allowed = self._allowed()
            if isinstance(allowed, Allow):
                return allowed
            uncovered = allowed
        return self._never() if self.mode == "dontAsk" else self._question(uncovered)

    @property
    def mode(self) -> str:
        return self.permissions.mode

    @property
    def _by_mode(self) -> Author:
        return Author("mode", self.mode)

    # -- what forbids -------------------------------------------------------------------------

    def _reached_by(self, kind: Literal["deny", "ask"]) -> Reach | None:
        rules = self.permissions.rules
        if not rules.of[kind]:
            return None
        rule = rules.bare(kind, self.names) or rules.named(
            kind, self.spec.name, dict(self.call.input), self.scene.also_named
        )
        if self.spec.name == "WebFetch":
            rule = rule or rules.host(kind, self.call.input.get("url"))
        if rule is None:
            rule = self._path_rule(kind)
        if rule is not None:
            return Reach(rule, is_certain=True)
        return reaching(self.command, self.permissions.rules, kind) if self.command else None

    def _path_rule(self, kind: Literal["deny", "ask"]) -> Rule | None:
        if self.spec.name not in READING | EDITING:
            return None
        # Read rules that forbid keep edits out too; Edit rules govern all that writes.
        tools = {"Read", self.spec.name}
        if self.spec.name in EDITING:
            tools.add("Edit")
        for rule in self.permissions.rules.paths(kind, tools):
            for forms in self.paths:
                if rule.path and any(rule.path.touches(form) for form in forms):
                    return rule
        return None

    def _denied(self, rule: Rule, *, is_announced: bool) -> Deny:
        reason = "rule" if rule.is_bare or self.command is None else "subcommandResults"
        message = self._denial_text
        if rule.misread is not None:
            message = f"Permission to use {self.call.name} has been denied: {rule.misread}."
        return Deny(reason, message, Author("rule", str(rule)), is_announced=is_announced)

    @property
    def _denial_text(self) -> str:
        name = self.call.name
        if self.command is not None:
            return f"Permission to use {name} with command {self.command.text} has been denied."
        if self.paths:
            return f"Permission to use {name} on {self.paths[0][0]} has been denied by a rule."
        return f"Permission to use {name} has been denied by a rule."

    def _denied_by_hook(self, hook: HookVerdict) -> Deny:
        told = f"PreToolUse:{self.call.name} hook error: {hook.reason}"
        message = told if hook.reason else "Blocked by hook"
        by = Author("hook", hook.hook)
        return Deny("hook", message, by, source="hook", is_announced=False)

    # -- what has to be asked -----------------------------------------------------------------

    def _asked(self, denied: Reach | None, hook: HookVerdict | None) -> Ask | None:
        name = self.call.name
        if denied:
            message = f"Nobody can say whether the rule {denied.rule.value} forbids this command."
            return Ask("rule", message, Author("rule", str(denied.rule)))
        if reach := self._reached_by("ask"):
            rule = reach.rule
            message = f"The rule {rule.value} wants {name} approved each time."
            if rule.misread is not None:
                message = f"{name} needs an approval: {rule.misread}."
            return Ask("rule", message, Author("rule", str(reach.rule)))
        if hook and hook.decision == "ask":
            message = hook.reason or f"A hook wants {name} approved."
            return Ask("hook", message, Author("hook", hook.hook))
        if self.spec.needs_person:
            return Ask("other", f"{name} needs a person to answer.")
        return None

    def _never(self) -> Deny:
        message = (
            f"{self.call.name} is not among the allowed tools for this call, and in the permission "
            "mode dontAsk nobody is asked. Go on without it."
        )
        return Deny("mode", message, self._by_mode)

    def _question(self, uncovered: Uncovered) -> Ask:
        ask = Ask(
            "safetyCheck" if uncovered.is_safety else None,
            f"{self.call.name} needs an approval: {uncovered.why}.",
            blocked_path=uncovered.path,
            needs_classifier=self.mode == "auto" and not uncovered.is_safety,
        )
        return replace(ask, suggestions=suggestions_for(self.call, self.spec, uncovered.path))

    # -- what is covered ----------------------------------------------------------------------

    def _unsafe(self) -> Uncovered | None:
        if self.command is not None:
            return CommandCover(self.command, self.permissions.rules).unsafe()
        if self.spec.name in EDITING or self.spec.edits_files:
            for forms in self.paths:
                if is_protected(forms):
                    why = f"{forms[0]} is a protected path"
                    return Uncovered(why, forms[0], is_safety=True)
        return None

    def _allowed(self) -> Allow | Uncovered:
        if self.command is not None:
            return self._allowed_command(CommandCover(self.command, self.permissions.rules))
        if self.spec.is_internal:
            named = self.permissions.rules.bare("allow", self.names)
            return Allow("rule", Author("rule", str(named))) if named else Allow("other")
        if self.mode == "plan":
            return self._allowed_plan()
        if self.spec.edits_files or self.spec.name in EDITING:
            return self._allowed_edit()
        rule = self._allowing_rule() if self.permissions.rules.of["allow"] else None
        if rule is not None:
            return Allow("rule", Author("rule", str(rule)))
        return self._allowed_reading()

    def _allowing_rule(self) -> Rule | None:
        rules = self.permissions.rules
        rule = (
            rules.bare("allow", self.names)
            or rules.named("allow", self.spec.name, dict(self.call.input))
            or self._allowing_path(("Read",))
        )
        if self.spec.name == "WebFetch":
            rule = rule or rules.host("allow", self.call.input.get("url"))
        return rule

    def _allowed_reading(self) -> Allow | Uncovered:
        if not self.is_free:
            return Uncovered("no rule covers it")
        for forms in self.paths:
            if not self.permissions.place.is_readable(forms):
                return Uncovered(f"{forms[0]} is outside of the session's folders", forms[0])
        return Allow("other")

    def _allowed_edit(self) -> Allow | Uncovered:
        place, rules = self.permissions.place, self.permissions.rules
        outside = next((forms[0] for forms in self.paths if not place.is_writable(forms)), None)
        if rule := self._allowing_path(("Edit",)):
            return Allow("rule", Author("rule", str(rule)))
        if outside is not None:
            return Uncovered(f"{outside} is outside of where the session works", outside)
        if self.mode in ("acceptEdits", "auto"):
            return Allow("mode", self._by_mode)
        if rule := rules.bare("allow", self.names):
            return Allow("rule", Author("rule", str(rule)))
        return Uncovered("it changes files", self.paths[0][0] if self.paths else None)

    def _allowed_plan(self) -> Allow | Uncovered:
        if self.is_free:
            return Allow("other")
        rule = self.permissions.rules.bare("allow", self.names)
        if rule and self.spec.read_only:
            return Allow("rule", Author("rule", str(rule)))
        return Uncovered("in the permission mode plan all that changes something is approved")

    def _allowed_command(self, command: CommandCover) -> Allow | Uncovered:
        if self.mode == "plan":
            if command.is_only_read(anywhere=True):
                return Allow("subcommandResults")
            return Uncovered("in the permission mode plan all that changes something is approved")
        if rule := self.permissions.rules.bare("allow", self.names):
            return Allow("rule", Author("rule", str(rule)))
        uncovered = command.uncovered(self.permissions.mode)
        if uncovered is not None:
            return uncovered
        covering = command.covering_rules()
        if covering:
            reason = "rule" if len(command.command.commands) == 1 else "subcommandResults"
            return Allow(reason, Author("rule", "; ".join(str(rule) for rule in covering)[:500]))
        by_mode = command.uncovered("default") is not None
        return Allow("subcommandResults", self._by_mode if by_mode else BY_DEFAULT)

    @property
    def is_free(self) -> bool:
        """Whether the tool only reads what is the session's own."""
        is_foreign = self.spec.name.startswith("mcp__") or self.spec.reaches_out
        return self.spec.is_internal or (self.spec.read_only and not is_foreign)

    def _allowing_path(self, tools: tuple[str, ...]) -> Rule | None:
        if not self.paths or (self.spec.name not in READING and tools == ("Read",)):
            return None
        for rule in self.permissions.rules.paths("allow", tools):
            if all(
                rule.path is not None and rule.path.matches(form)
                for forms in self.paths
                for form in forms
            ):
                return rule
        return None
