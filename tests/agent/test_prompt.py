import pytest

from app.agent.prompt import DEFAULT_SYSTEM_PROMPT, system_texts
from app.domain.options import AgentOptions


def texts(system_prompt: object) -> tuple[str, ...]:
    options = AgentOptions.model_validate({"system_prompt": system_prompt})
    return system_texts(options.system_prompt)


@pytest.mark.requirement("context:system-prompt")
def test_unset_means_our_own_prompt() -> None:
    assert texts(None) == (DEFAULT_SYSTEM_PROMPT,)


@pytest.mark.requirement("context:system-prompt")
def test_a_prompt_of_the_client_is_the_whole_prompt() -> None:
    assert texts("Be short.") == ("Be short.",)


def test_a_blank_prompt_is_no_prompt() -> None:
    assert texts(" ") == ()


@pytest.mark.requirement("context:system-prompt")
def test_a_preset_is_our_own_prompt_with_an_addition() -> None:
    preset = {"type": "preset", "preset": "claude_code"}
    assert texts(preset) == texts({**preset, "append": " "}) == texts(None)
    assert texts({**preset, "append": "Be kind."}) == (DEFAULT_SYSTEM_PROMPT, "Be kind.")
    assert texts({**preset, "exclude_dynamic_sections": True}) == texts(None)


def test_our_own_prompt_is_short() -> None:
    assert len(DEFAULT_SYSTEM_PROMPT) < 2_000
