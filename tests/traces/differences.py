"""The one table of differences between the golden traces and our service.

Each entry rewrites a trace's normal form into what we give instead, and cites the decision that
says so (`README.md` beside the traces lists them). An entry applies only where the trace holds
what its decision says of the reference: anything else stays, and then disagrees with us.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.traces import differences_actions as actions
from tests.traces import differences_answers as answers
from tests.traces import differences_commands as commands
from tests.traces import differences_compaction as compaction
from tests.traces import differences_early as early
from tests.traces import differences_engine as engine
from tests.traces import differences_failures as failures
from tests.traces import differences_hooks as hooks
from tests.traces import differences_loop as loop
from tests.traces import differences_rules as rules
from tests.traces import differences_sessions as sessions
from tests.traces import differences_structured as structured
from tests.traces import differences_subagents as subagents
from tests.traces import differences_tasks as tasks
from tests.traces.normal import Form, form_of_trace
from tests.traces.scenario import Scenario
from tests.traces.story import Line


@dataclass(frozen=True, slots=True)
class Difference:
    cites: str
    """`B` and a number; `2` is the decision on contract strings and our own words."""
    says: str
    rewrite: Callable[[Form, Scenario], None]


def expected_form(lines: Sequence[Line], scenario: Scenario) -> Form:
    """Give the normal form that our service has for a trace.

    Raises `ValueError` for a trace in which an entry does not find what it rewrites.
    """
    form = form_of_trace(lines)
    for difference in DIFFERENCES:
        _apply(difference, form, scenario)
    return form


def decisions_of(lines: Sequence[Line], scenario: Scenario) -> set[str]:
    """Give what the comparison with a trace cites."""
    return {difference.cites for difference in differences_of(lines, scenario)}


def differences_of(lines: Sequence[Line], scenario: Scenario) -> "list[Difference]":
    """Give the entries that change something of a trace."""
    form = form_of_trace(lines)
    found: list[Difference] = []
    for difference in DIFFERENCES:
        before = copy.deepcopy(form)
        _apply(difference, form, scenario)
        if form != before:
            found.append(difference)
    return found


def _apply(difference: Difference, form: Form, scenario: Scenario) -> None:
    try:
        difference.rewrite(form, scenario)
    except (LookupError, TypeError, AttributeError, StopIteration) as error:
        raise ValueError(f"nothing to rewrite: {difference.says}") from error


DIFFERENCES = (
    Difference(
        "B29", "an unknown session is 404: no run, no result", sessions.unknown_sessions_are_refused
    ),
    # what makes runs of its own comes first: the others look at the turns of our runs
    Difference("B17", "a crashed run goes on elsewhere", engine.crashed_runs_go_on),
    Difference("B29", "control changes the session", actions.control_changes_the_session),
    Difference("B27", "callbacks that fail are denials", actions.failed_callbacks_are_denials),
    Difference("B29", "late prompts are runs of their own", engine.late_prompts_have_runs),
    Difference("B29", "a session is never restarted: no filler", engine.no_fillers),
    Difference("B29", "a clear keeps the session", commands.a_clear_keeps_the_session),
    Difference("B29", "a run ends with its main thread", subagents.runs_end_with_their_main_thread),
    Difference("B1", "all blocks of a cut response are aborted", engine.cut_responses_are_marked),
    Difference("B1", "a void preview is told as such", engine.cut_previews_are_closed),
    Difference("B10", "tools start after their response", early.results_follow_responses),
    Difference("B10", "so do subagents", early.subagents_follow_responses),
    Difference("B1", "blocks come after all events", loop.previews_come_first),
    Difference("B26", "broken responses are discarded", failures.broken_responses_are_discarded),
    Difference("B26", "nothing is sent again unseen", failures.refused_requests_are_sent_once),
    Difference("B7", "the output limit ends a run", answers.output_limits_end_runs),
    Difference("B6", "a refusal ends a run", answers.refusals_end_runs),
    Difference("B7", "a paused response goes on", answers.paused_responses_go_on),
    Difference("B29", "each run has its budget", answers.budgets_begin_anew),
    Difference("B23", "what a lost try cost is the run's", failures.lost_tries_count),
    Difference("B23", "what a cut response cost is estimated", engine.cut_responses_count),
    Difference("B1", "blocks carry their response's final usage and reason", loop.final_snapshots),
    Difference("B1", "so do those of subagents", subagents.final_snapshots),
    Difference("B5", "an API failure is an error", failures.failures_are_errors),
    Difference("B2", "requests hold results in the order of calls", loop.requests_in_call_order),
    Difference("B10", "Bash calls never overlap", loop.bash_in_call_order),
    Difference("B4", "num_turns counts responses", loop.turns_are_responses),
    Difference("B8", "usage has the response that spent it", loop.budget_counts_every_response),
    Difference("B8", "an answer is a success, whatever it cost", answers.answers_are_successes),
    Difference("B8", "calls beyond the budget get a result", loop.budget_refuses_calls),
    Difference("B8", "the budget ends subagents", subagents.budgets_end_subagents),
    Difference("B9", "subagents think as their run does", subagents.thoughts_are_asked_alike),
    Difference("B9", "neither effort nor thinking is sent unset", loop.nothing_unasked),
    Difference("B10", "Bash never overlaps the output", structured.output_waits_for_bash),
    Difference("B23", "usage has the last attempt", structured.usage_counts_every_attempt),
    Difference("B11", "an answer in words is a failed attempt", structured.words_are_no_output),
    Difference("2", "commands print no words of hooks", compaction.commands_print_no_hooks),
    Difference("2", "summaries are in our words", compaction.summaries_are_in_our_words),
    Difference("2", "commands are told in ours too", compaction.commands_are_told_in_our_words),
    Difference("2", "prompts come with a notice of ours", engine.steered_prompts_have_our_notice),
    Difference("2", "markers are kept to the letter", engine.markers_end_without_a_line),
    Difference("B25", "prompts are replayed when taken in", engine.prompts_are_replayed),
    Difference("B9", "no effort is told that is not set", hooks.no_unset_effort),
    Difference("B25", "a prompt that is blocked is not told", hooks.blocked_prompts_are_not_told),
    Difference("2", "notifications are in our words", hooks.notifications_are_in_our_words),
    Difference("2", "feedback is sent as it is told", hooks.feedback_is_sent_as_it_is_told),
    Difference("2", "failures are told in our words", failures.failures_have_our_words),
    Difference("2", "notes are sent as they are told", failures.notes_are_sent_as_they_are_told),
    Difference("2", "results hold no reminders", failures.results_hold_no_reminders),
    Difference("2", "error sentences are our own", loop.own_words),
    Difference("2", "what is said of an output is our own", structured.own_words),
    Difference("2", "what a subagent leaves is told in ours", subagents.own_words),
    Difference("2", "denials are told in our words", rules.denials_are_told_in_our_words),
    Difference("2", "a start is told in our words", tasks.starts_are_told_in_our_words),
    Difference("2", "an end is told in our words", tasks.ends_are_told_in_our_words),
)
"""In the order in which they apply."""
