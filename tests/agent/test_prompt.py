from app.agent.prompt import DEFAULT_SYSTEM_PROMPT, system_texts
from app.domain.options import AgentOptions


def texts(system_prompt: object) -> tuple[str, ...]:
    return system_texts(AgentOptions.model_validate({"system_prompt": system_prompt}), "/workspace")


def test_the_default_prompt_names_the_workspace() -> None:
    first, second = texts(None)
    assert first == DEFAULT_SYSTEM_PROMPT
    assert "/workspace" in second


def test_a_prompt_of_the_client_is_the_whole_prompt() -> None:
    assert texts("Be short.") == ("Be short.",)


def test_a_blank_prompt_is_no_prompt() -> None:
    assert texts(" ") == ()


def test_a_preset_is_the_default_with_an_addition() -> None:
    assert texts({"type": "preset", "preset": "claude_code"}) == texts(None)
    assert texts({"type": "preset", "append": "Be kind."}) == (*texts(None), "Be kind.")
